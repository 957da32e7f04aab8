"""The pushing consumer against our own cluster: handlers, retries, order, share, offsets, stop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import aerobee
from aerobee import DeadLetter, Message, MessageQueue, Producer, PushConsumer, RetryLater
from aerobee.client.consumer.processqueue import LOCK_LEASE_S, LOCK_VALID_S
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.lock import LockBatchRequestBody
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.lock import LockBatchMqRequestHeader
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import Seen, collecting, send, send_stubbornly
from aerobee.testing.workload import eventually

BROKERS = 2


def delayed(cluster: LocalCluster) -> int:
    """Messages put away until their time comes, ever."""
    return len(cluster.messages("SCHEDULE_TOPIC_XXXX"))


def new(cluster: LocalCluster, topic: str, **options: object) -> PushConsumer:
    return PushConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first", **options)  # type: ignore[arg-type]


def run(main: Awaitable[None]) -> None:
    async def wrapped() -> None:
        await main

    asyncio.run(wrapped())


def test_every_message_of_the_tags_wanted_arrives_once(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        for tag in ("A", "B", "C"):
            await send(cluster.namesrv, topic, 20, tags=tag)
        seen = Seen()
        consumer = collecting(cluster.namesrv, topic, seen, tags="A || B")
        async with consumer:
            await seen.count(40)
            await send(cluster.namesrv, topic, 1, start=99, tags="A")
            await seen.count(41)
        assert Counter(message.tags for message in seen.messages) == {"A": 21, "B": 20}
        assert len({message.message_id for message in seen.messages}) == 41

    run(main())


def test_plain_functions_run_in_threads_and_batches_are_lists(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await send(cluster.namesrv, topic, 30)
        sizes: list[int] = []
        threads: set[str] = set()
        seen = Seen()
        loop = asyncio.get_running_loop()
        consumer = new(cluster, topic, concurrency=3)

        @consumer.listener(topic, batch=8)
        def handle(messages: list[Message]) -> None:
            sizes.append(len(messages))
            threads.add(threading.current_thread().name)
            loop.call_soon_threadsafe(seen.add, *messages)

        async with consumer:
            await seen.count(30)
        assert max(sizes) > 1 and max(sizes) <= 8
        assert all(name.startswith("aerobee-g-") for name in threads) and len(threads) <= 3
        assert sorted(seen.bodies) == sorted(b"%d" % i for i in range(30))

    run(main())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aerobee-g-")]


def test_a_handler_that_raises_gets_the_message_again_later(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        consumer = new(cluster, topic)

        @consumer.listener(topic)
        async def handle(message: Message) -> object:
            seen.add(message)
            if message.reconsume_times == 0:
                raise RuntimeError("the first time")
            if message.reconsume_times == 1:
                raise RetryLater(delay_level=1)
            return "not None" if message.reconsume_times == 2 else None

        before = delayed(cluster)
        async with consumer:
            await send(cluster.namesrv, topic, 1)
            for tries in range(1, 5):
                await seen.count(tries)
                # Until the message lies among the delayed ones, whose time then comes.
                await eventually(lambda n=tries: n == 4 or delayed(cluster) >= before + n)
                cluster.advance(minutes=10)
        assert [message.reconsume_times for message in seen.messages] == [0, 1, 2, 3]
        assert {message.topic for message in seen.messages} == {topic}
        assert {message.message_id for message in seen.messages} == {seen.messages[0].message_id}

    run(main())


def test_dead_letters_by_the_handlers_word_and_by_too_many_tries(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        consumer = new(cluster, topic, max_reconsume_times=0)

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            if message.tags == "hopeless":
                raise DeadLetter("cannot be read")
            raise RuntimeError("fails for ever")

        async with consumer:
            await send(cluster.namesrv, topic, 1, tags="hopeless")
            await send(cluster.namesrv, topic, 1, start=1)
            await eventually(lambda: len(cluster.messages(f"%DLQ%g-{topic}")) == 2)
        assert sorted(message.body for message in cluster.messages(f"%DLQ%g-{topic}")) == [b"0", b"1"]

    run(main())


def test_ordered_messages_come_one_after_the_other_until_done(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with Producer(cluster.namesrv) as producer:
            for i in range(40):
                await producer.send(topic, b"%d" % i, sharding_key=str(i % 4))
        seen = Seen()
        running: Counter[tuple[str, int]] = Counter()
        consumer = new(cluster, topic, suspend=0.01)

        @consumer.listener(topic, ordered=True)
        async def handle(message: Message) -> None:
            queue = (message.broker, message.queue_id)
            running[queue] += 1
            assert running[queue] == 1, "two at once"
            await asyncio.sleep(0)
            running[queue] -= 1
            if message.reconsume_times == 0 and int(message.body) % 10 == 0:
                raise RuntimeError("fails once")
            seen.add(message)

        async with consumer:
            await seen.count(40)
        by_key: dict[int, list[int]] = {}
        for message in seen.messages:
            by_key.setdefault(int(message.body) % 4, []).append(int(message.body))
        assert by_key == {key: list(range(key, 40, 4)) for key in range(4)}

    run(main())


def test_an_ordered_message_that_fails_too_often_makes_way(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        queue = MessageQueue(topic, cluster.broker_name(0), 0)
        consumer = new(cluster, topic, suspend=0.01, max_reconsume_times=2)
        tries: list[int] = []

        @consumer.listener(topic, ordered=True)
        async def handle(message: Message) -> None:
            if message.body == b"0":
                tries.append(message.reconsume_times)
                raise RuntimeError("never")
            seen.add(message)

        async with consumer:
            await send(cluster.namesrv, topic, 3, queue=queue)
            await seen.count(2)
        assert tries == [0, 1, 2]
        assert [message.body for message in cluster.messages(f"%DLQ%g-{topic}")] == [b"0"]

    run(main())


def test_offsets_are_kept_over_a_restart(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        for batch in range(3):
            await send(cluster.namesrv, topic, 10, start=batch * 10)
            consumer = new(cluster, topic)

            @consumer.listener(topic)
            async def handle(message: Message) -> None:
                seen.add(message)

            async with consumer:
                await seen.count(10 * (batch + 1))
        assert sorted(int(body) for body in seen.bodies) == list(range(30))

    run(main())


def test_a_stop_lets_handlers_finish_and_a_cancelled_one_is_not_acknowledged(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await send(cluster.namesrv, topic, 2, queue=MessageQueue(topic, cluster.broker_name(0), 0))
        begun = Seen()
        finish = asyncio.Event()
        finished: list[bytes] = []
        consumer = new(cluster, topic, drain_timeout=0.2)

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            begun.add(message)
            if message.body == b"0":
                await finish.wait()
            else:
                await asyncio.Event().wait()
            finished.append(message.body)

        await consumer.start()
        await begun.count(2)
        asyncio.get_running_loop().call_later(0.05, finish.set)
        await consumer.close()
        assert finished == [b"0"]
        again = Seen()
        second = new(cluster, topic)

        @second.listener(topic)
        async def handle_again(message: Message) -> None:
            again.add(message)

        async with second:
            await again.count(1)
        assert again.bodies == [b"1"]

    run(main())


def test_broadcast_reaches_every_consumer_and_each_keeps_its_own_offsets(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    async def main() -> None:
        seen = {name: Seen() for name in "xy"}

        def made(name: str) -> PushConsumer:
            consumer = new(cluster, topic, broadcast=True, instance_name=name, offset_dir=str(tmp_path))

            @consumer.listener(topic)
            async def handle(message: Message) -> None:
                seen[name].add(message)

            return consumer

        await send(cluster.namesrv, topic, 10)
        async with made("x"), made("y"):
            await seen["x"].count(10)
            await seen["y"].count(10)
        await send(cluster.namesrv, topic, 5, start=10)
        async with made("x"):
            await seen["x"].count(15)
        assert sorted(int(body) for body in seen["x"].bodies) == list(range(15))

    run(main())
    assert len(list(tmp_path.glob(f"*@x/g-{topic}/offsets.json"))) == 1


def test_queues_move_as_consumers_join_and_leave(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        told: list[tuple[str, int]] = []

        def made() -> PushConsumer:
            consumer = new(
                cluster,
                topic,
                on_assigned=lambda queues: told.append(("assigned", len(queues))),
                on_revoked=lambda queues: told.append(("revoked", len(queues))),
            )

            @consumer.listener(topic)
            async def handle(message: Message) -> None:
                seen.add(message)

            return consumer

        first, second = made(), made()
        async with first:
            await eventually(lambda: len(first.assignment()) == 4)
            async with second:
                await eventually(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2)
                assert not set(first.assignment()) & set(second.assignment())
                await send(cluster.namesrv, topic, 20)
                await seen.count(20)
            await eventually(lambda: len(first.assignment()) == 4)
            await send(cluster.namesrv, topic, 20, start=20)
            await seen.count(40)
        assert sorted(int(body) for body in seen.bodies) == list(range(40))
        assert ("assigned", 4) in told and ("revoked", 2) in told

    run(main())


def test_ordered_queues_change_hands_without_overlap_or_loss(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        running: set[tuple[str, int]] = set()

        def made() -> PushConsumer:
            consumer = new(cluster, topic)

            @consumer.listener(topic, ordered=True)
            async def handle(message: Message) -> None:
                queue = (message.broker, message.queue_id)
                assert queue not in running, "two consumers at once"
                running.add(queue)
                await asyncio.sleep(0.002)
                running.discard(queue)
                seen.add(message)

            return consumer

        first, second = made(), made()
        sending = asyncio.create_task(send(cluster.namesrv, topic, 300))
        async with first:
            await seen.count(20)
            async with second:
                await eventually(lambda: second.assignment())
                await seen.count(150)
            await sending
            await seen.until(lambda: len(set(seen.bodies)) == 300)
        by_queue: dict[tuple[str, int], list[int]] = {}
        for message in seen.messages:
            by_queue.setdefault((message.broker, message.queue_id), []).append(message.queue_offset)
        assert all(offsets == sorted(set(offsets)) for offsets in by_queue.values()), "out of order, or twice"

    run(main())


def test_pause_and_resume_and_seek(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        consumer = collecting(cluster.namesrv, topic, seen)
        queue = MessageQueue(topic, cluster.broker_name(1), 1)
        async with consumer:
            await send(cluster.namesrv, topic, 5, queue=queue)
            await seen.count(5)
            consumer.pause()
            await send(cluster.namesrv, topic, 5, start=5, queue=queue)
            with pytest.raises(TimeoutError):
                await seen.until(lambda: len(seen.messages) > 5, within_s=0.2)
            consumer.resume()
            await seen.count(10)
            await consumer.seek(queue, 8)
            await seen.count(12)
        assert [int(body) for body in seen.bodies] == [*range(10), 8, 9]

    run(main())


def test_a_request_is_replied_to_from_both_kinds_of_handler(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        consumer = new(cluster, topic)
        plain_topic = f"{topic}-plain"
        cluster.create_topic(plain_topic, queues=1)

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            await message.reply(b"async " + message.body)

        @consumer.listener(plain_topic)
        def handle_plain(message: Message) -> None:
            message.reply(b"plain " + message.body)

        async with consumer, Producer(cluster.namesrv) as producer:
            assert (await producer.request(topic, b"1", timeout=10)).body == b"async 1"
            assert (await producer.request(plain_topic, b"2", timeout=10)).body == b"plain 2"

    run(main())


def test_a_namespace_is_on_the_wire_and_not_in_the_users_hands(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        consumer = new(cluster, topic, namespace="tenant")

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            seen.add(message)
            if message.reconsume_times == 0:
                raise RetryLater(delay_level=1)

        cluster.create_topic(f"tenant%{topic}", queues=1)
        before = delayed(cluster)
        async with consumer, Producer(cluster.namesrv, namespace="tenant") as producer:
            await producer.send(topic, b"x")
            await seen.count(1)
            await eventually(lambda: delayed(cluster) > before)
            cluster.advance(minutes=1)
            await seen.count(2)
            assert {queue.topic for queue in consumer.assignment()} == {topic}
        assert [message.topic for message in seen.messages] == [topic, topic]

    run(main())


def test_a_broker_that_dies_and_comes_back_is_consumed_again(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        consumer = collecting(cluster.namesrv, topic, seen)
        queue = MessageQueue(topic, cluster.broker_name(1), 0)
        async with consumer:
            await send(cluster.namesrv, topic, 5, queue=queue)
            await seen.count(5)
            cluster.kill(1)
            cluster.restart(1)
            for i in range(5, 10):
                await send_stubbornly(cluster.namesrv, topic, i, queue=queue)
            await seen.until(lambda: len(set(seen.bodies)) == 10)

    run(main())


def test_consumers_of_one_group_started_together_are_two_members(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        both = []
        for _ in range(2):
            consumer = new(cluster, topic)
            consumer.listener(topic)(handler_of(seen))
            both.append(consumer)
        await asyncio.gather(*(consumer.start() for consumer in both))
        try:
            assert both[0].client_id != both[1].client_id
            await eventually(lambda: [len(consumer.assignment()) for consumer in both] == [2, 2])
        finally:
            await asyncio.gather(*(consumer.close() for consumer in both))

    run(main())


def handler_of(seen: Seen) -> Callable[[Message], Awaitable[None]]:
    async def handle(message: Message) -> None:
        seen.add(message)

    return handle


def test_a_handler_that_lets_a_cancellation_out_gets_its_message_again(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        consumer = new(cluster, topic, suspend=0.01)

        @consumer.listener(topic, ordered=True)
        async def handle(message: Message) -> None:
            seen.add(message)
            if message.reconsume_times == 0:
                inner = asyncio.ensure_future(asyncio.Event().wait())
                inner.cancel()
                await inner

        async with consumer:
            await send(cluster.namesrv, topic, 1)
            await seen.count(2)
        assert [message.reconsume_times for message in seen.messages] == [0, 1]

    run(main())


def test_a_lock_that_somebody_else_took_ends_the_queue_here_until_it_is_free(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        queue = MessageQueue(topic, cluster.broker_name(0), 0)
        consumer = new(cluster, topic)
        consumer.listener(topic, ordered=True)(handler_of(seen))
        remoting = RemotingClient()

        async def ask(code: int, client_id: str) -> None:
            body = LockBatchRequestBody(f"g-{topic}", client_id, mq_set=(queue,)).encode()
            command = request(code, None, body, opaque=remoting.next_opaque())
            await remoting.ask(cluster.broker_address(0), command)

        async with consumer:
            await send(cluster.namesrv, topic, 3, queue=queue)
            await seen.count(3)
            await ask(RequestCode.UNLOCK_BATCH_MQ, consumer.client_id)
            await ask(RequestCode.LOCK_BATCH_MQ, "thief")
            engine = consumer._engine
            assert engine is not None
            await engine.renew_locks()
            assert queue not in consumer.assignment()
            await send(cluster.namesrv, topic, 3, start=3, queue=queue)
            with pytest.raises(TimeoutError):
                await seen.until(lambda: len(seen.messages) > 3, within_s=0.3)
            await ask(RequestCode.UNLOCK_BATCH_MQ, "thief")
            await seen.until(lambda: seen.bodies[-1] == b"5")
        await remoting.close()
        offsets = [message.queue_offset for message in seen.messages]
        assert sorted(set(offsets)) == list(range(6)), "skipped"

    run(main())


def test_a_message_held_too_long_is_handed_out_again_and_the_queue_goes_on(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        forever = asyncio.Event()
        consumer = new(cluster, topic, consume_timeout=0.05, drain_timeout=0.01)

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            seen.add(message)
            if message.reconsume_times == 0:
                await forever.wait()

        before = delayed(cluster)
        async with consumer:
            await send(cluster.namesrv, topic, 1)
            await eventually(lambda: delayed(cluster) > before)
            cluster.advance(minutes=1)
            await seen.count(2)
        assert [message.reconsume_times for message in seen.messages] == [0, 1]

    run(main())


def test_a_broadcast_message_that_fails_is_tried_again_here(
    cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.client.consumer.push.queue.LOCAL_RETRY_S", 0.01)

    async def main() -> None:
        seen = Seen()
        consumer = new(cluster, topic, broadcast=True, offset_dir=str(tmp_path), max_reconsume_times=2)

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            seen.add(message)
            if message.body == b"0":
                raise RuntimeError("for ever")

        queue = MessageQueue(topic, cluster.broker_name(0), 0)
        async with consumer:
            await send(cluster.namesrv, topic, 1, queue=queue)
            await seen.count(3)
            await send(cluster.namesrv, topic, 1, start=1, queue=queue)
            await seen.count(4)
        assert [message.reconsume_times for message in seen.messages] == [0, 1, 2, 0]

    run(main())


def test_what_is_wrong_is_said_at_once(cluster: LocalCluster) -> None:
    consumer = PushConsumer(cluster.namesrv, group="g")
    with pytest.raises(aerobee.ClientStateError, match="no listener"):
        run(consumer.start())  # type: ignore[arg-type]
    consumer.listener("t")(print)
    with pytest.raises(aerobee.InvalidArgumentError, match="has a listener already"):
        consumer.listener("t")(print)
    with pytest.raises(aerobee.InvalidArgumentError, match="batch=0"):
        consumer.listener("u", batch=0)
    with pytest.raises(aerobee.InvalidArgumentError, match="consume_from"):
        PushConsumer(cluster.namesrv, group="g", consume_from="middle")
    with pytest.raises(aerobee.InvalidArgumentError, match="concurrency"):
        PushConsumer(cluster.namesrv, group="g", concurrency=0)
    with pytest.raises(TypeError, match="'colour'"):
        PushConsumer(cluster.namesrv, group="g", colour="red")  # type: ignore[call-arg]
    with pytest.raises(aerobee.InvalidArgumentError, match="cannot go together"):
        consumer.listener("v", tags="a", sql92="b = 1")


def test_the_queue_of_an_ordered_consumer_that_died_goes_on_when_its_lease_ends(
    cluster: LocalCluster, topic: str
) -> None:
    async def main() -> None:
        seen = Seen()
        queue = MessageQueue(topic, cluster.broker_name(0), 0)
        remoting = RemotingClient()
        # A consumer of ours that was killed: it asked for its lease, and neither unlocks nor renews it.
        body = LockBatchRequestBody(f"g-{topic}", "the-dead", mq_set=(queue,)).encode()
        header = LockBatchMqRequestHeader(lease_ms=round(LOCK_LEASE_S * 1000))
        command = request(RequestCode.LOCK_BATCH_MQ, header, body, opaque=remoting.next_opaque())
        await remoting.ask(cluster.broker_address(0), command)
        await remoting.close()
        loop = asyncio.get_running_loop()
        locked_s = loop.time()
        consumer = new(cluster, topic)
        consumer.listener(topic, ordered=True)(handler_of(seen))
        async with consumer:
            await send(cluster.namesrv, topic, 1, queue=queue)
            await seen.count(1)
            waited_s = loop.time() - locked_s
        assert LOCK_LEASE_S - 0.1 <= waited_s <= 2 * LOCK_LEASE_S, waited_s

    run(main())


def test_a_consumer_stops_handling_by_its_own_clock_when_no_broker_renews_its_lock(
    cluster: LocalCluster, topic: str
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called_s: list[float] = []
        seen = Seen()
        consumer = new(cluster, topic, suspend=0.05)

        @consumer.listener(topic, ordered=True)
        async def handle(message: Message) -> None:
            called_s.append(loop.time())
            seen.add(message)
            raise RetryLater

        async with consumer:
            await send(cluster.namesrv, topic, 1)
            await seen.count(2)
            cluster.pause(0)
            cluster.pause(1)
            paused_s = loop.time()
            try:
                await eventually(lambda: not consumer.assignment())
                assert called_s[-1] - paused_s < LOCK_VALID_S + 0.1, "handled without a lease"
            finally:
                cluster.resume(0)
                cluster.resume(1)
            await seen.count(len(called_s) + 1)

    run(main())


def test_an_ordered_consumer_waits_for_its_lock_when_the_connection_is_lost(tmp_path: Path) -> None:
    """The broker may have restarted and forgotten the lock: what was pulled before is not handled until it confirms."""

    async def main() -> None:
        with LocalCluster() as cluster:
            await send(cluster.namesrv, "orders", 40, queue=MessageQueue("orders", cluster.broker_name(0), 0))
            handled: list[bytes] = []
            seen = Seen()
            consumer = new(cluster, "orders")

            @consumer.listener("orders", ordered=True)
            async def handle(message: Message) -> None:
                await asyncio.sleep(0.01)
                handled.append(message.body)
                seen.add(message)

            async with consumer:
                await seen.count(5)
                await asyncio.to_thread(cluster.kill, 0)
                engine = consumer._engine
                assert engine is not None
                await eventually(lambda: all(queue.in_doubt for queue in engine.queues.values() if queue.ordered))
                at_kill = len(handled)
                await asyncio.sleep(0.3)
                assert len(handled) <= at_kill + 1, "handled more than what was under way"
                await asyncio.to_thread(cluster.restart, 0)
                await seen.until(lambda: handled[-1] == b"39")
            assert handled == [b"%d" % number for number in range(40)], "the queue goes on where it was"

    run(main())
