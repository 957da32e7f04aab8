"""Consumers: memory stays bounded, and whatever a handler raises brings its message again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import aerobee
from aerobee import Message, MessageQueue, RetryLater
from aerobee.protocol.bodies.running import ConsumerRunningInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.group import GetConsumerRunningInfoRequestHeader
from aerobee.sync import Producer as SyncProducer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import Seen, send
from aerobee.testing.workload import RawClient, eventually

MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 100))


async def held_mib(client: RawClient, group: str, client_id: str) -> int:
    """What the consumer holds, as it tells administrators itself."""
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
    answer = await client.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert answer.code == 0, answer.remark
    return sum(queue.cached_msg_size_in_mib for queue in ConsumerRunningInfo.decode(answer.body).mq_table.values())


def test_four_queues_of_large_bodies_stay_below_prefetch_bytes(cluster: LocalCluster) -> None:
    cluster.create_topic("large", queues=4)
    with SyncProducer(cluster.namesrv, compression=None) as producer:
        for number in range(48):
            queue = MessageQueue("large", cluster.broker_name(0), number % 4)
            producer.send("large", bytes(MIB), queue=queue)

    async def main() -> None:
        done, seen = asyncio.Event(), Seen()
        consumer = aerobee.PushConsumer(
            cluster.namesrv, group="large", consume_from="first", concurrency=1, prefetch_bytes=12 * MIB
        )

        @consumer.listener("large")
        async def handle(message: Message) -> None:
            seen.add(message)
            await done.wait()

        client = RawClient(cluster.broker_address(0))
        async with consumer:
            await seen.count(1)
            highest, unchanged = 0, 0
            while unchanged < 10:  # until no pull brings more
                held = await held_mib(client, "large", consumer.client_id)
                unchanged = unchanged + 1 if held == highest else 0
                highest = max(highest, held)
                await asyncio.sleep(0.05)
            assert 8 <= highest <= 12
            # Room comes back: all are handed out.
            done.set()
            await seen.count(48)
        await client.close()

    run(main())


def test_a_paused_queue_that_holds_everything_starves_no_other(cluster: LocalCluster) -> None:
    cluster.create_topic("starving", queues=2)
    first, second = (MessageQueue("starving", cluster.broker_name(0), number) for number in range(2))

    async def main() -> None:
        consumer = aerobee.LitePullConsumer(
            cluster.namesrv, group="starving", consume_from="first", prefetch_bytes=2_000
        )
        consumer.assign([first])
        async with aerobee.Producer(cluster.namesrv) as producer:
            for body in (b"small", bytes(3_000), b"small"):  # one pull brings all
                await producer.send("starving", body, queue=first)
        async with consumer:
            assert [message.body for message in await consumer.poll(1, timeout=60)] == [b"small"]
            consumer.pause(first)
            consumer.assign([first, second])
            for start in range(0, 30, 10):
                await send(cluster.namesrv, "starving", 10, start=start, queue=second)
                got = 0
                while got < 10:
                    messages = await consumer.poll(10, timeout=60)
                    assert messages and all(message.queue_id == 1 for message in messages)
                    got += len(messages)

    run(main())


FAILURES = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration, GeneratorExit]


@pytest.mark.parametrize("ordered", [False, True])
def test_whatever_a_handler_raises_its_message_comes_again(cluster: LocalCluster, ordered: bool) -> None:
    """Sent back or kept, never taken for done, and the consumer goes on."""
    topic = f"raises-{ordered}".lower()
    cluster.create_topic(topic, queues=1)

    async def main() -> None:
        seen = Seen()
        loop = asyncio.get_running_loop()
        consumer = aerobee.PushConsumer(cluster.namesrv, group=topic, consume_from="first", suspend=0.01)
        plain = aerobee.PushConsumer(cluster.namesrv, group=f"{topic}-p", consume_from="first", suspend=0.01)

        def fail(message: Message) -> None:
            loop.call_soon_threadsafe(seen.add, message)
            if message.reconsume_times == 0:
                raise FAILURES[int(message.body)]("no")

        @consumer.listener(topic, ordered=ordered)
        async def handle(message: Message) -> None:
            fail(message)

        plain.listener(topic, ordered=ordered)(fail)
        async with consumer, plain:
            await send(cluster.namesrv, topic, len(FAILURES))
            if not ordered:
                await seen.count(2 * len(FAILURES))
                retries = (f"%RETRY%{topic}", f"%RETRY%{topic}-p")

                def given_back() -> bool:
                    cluster.advance(minutes=1)
                    return all(len(cluster.messages(retry)) == len(FAILURES) for retry in retries)

                await eventually(given_back)
            await seen.count(4 * len(FAILURES))
        expected = sorted([number for number in range(len(FAILURES))] * 4)
        assert seen.numbers() == expected

    run(main())


def test_retry_later_halts_an_ordered_queue_for_its_level_whatever_arrives(cluster: LocalCluster) -> None:
    cluster.create_topic("halted", queues=1)

    async def main() -> None:
        seen, times = Seen(), list[float]()
        loop = asyncio.get_running_loop()
        consumer = aerobee.PushConsumer(cluster.namesrv, group="halted", consume_from="first", suspend=0.01)

        @consumer.listener("halted", ordered=True)
        async def handle(message: Message) -> None:
            times.append(loop.time())
            seen.add(message)
            if len(times) == 1:
                raise RetryLater(delay_level=1)

        async with consumer:
            await send(cluster.namesrv, "halted", 1)
            await seen.count(1)
            # What comes meanwhile does not end the halt.
            for number in range(1, 6):
                await send(cluster.namesrv, "halted", 1, start=number)
            await seen.count(7)
        assert seen.bodies == [b"0", b"0", b"1", b"2", b"3", b"4", b"5"]
        assert times[1] - times[0] >= 1.0

    run(main())


def test_a_plain_on_check_runs_in_a_thread(cluster: LocalCluster) -> None:
    cluster.create_topic("checked", queues=1)

    async def main() -> None:
        loop_answered, asked = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        verdicts: list[bool] = []

        def on_check(half: Message) -> bool:
            loop.call_soon_threadsafe(asked.set)
            # On the loop this would stand still until it gives up.
            verdicts.append(loop_answered.wait(20))
            return True

        async with aerobee.Producer(cluster.namesrv, group="checked", on_check=on_check) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction("checked", b"half"):
                    1 / 0  # noqa: B018
            await asyncio.to_thread(cluster.advance, minutes=1)
            await asked.wait()
            loop_answered.set()
            await eventually(lambda: cluster.messages("checked"))
        assert verdicts == [True]

    run(main())
