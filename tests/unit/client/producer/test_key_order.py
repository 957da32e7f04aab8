"""A sharding key keeps its queue and its order while brokers are away, busy or moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import aerobee
from aerobee import QueueUnavailableError, TooManyInFlightError
from aerobee.client.producer.selectors import hashed_index
from aerobee.errors import NotConnectedError, TransportError
from aerobee.errors.codes import MessageIllegalError, SystemBusyError
from aerobee.model.producermark import ORDER_MARK, PRODUCER_MARK, parse_mark
from aerobee.model.route import QueueData
from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.runtime.clock import SystemClock
from aerobee.testing.workload import eventually

LONG_S = 60.0
FOLLOWER = "[REJECTREQUEST]system busy, start flow control for a while"


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, LONG_S))


def keys_of(broker: int, count: int, brokers: int = 2, queue_nums: int = 4) -> Iterator[str]:
    """Yield keys whose queues are on a broker."""
    number = 0
    while count:
        key = f"key-{number}"
        if hashed_index(key, brokers * queue_nums) // queue_nums == broker:
            yield key
            count -= 1
        number += 1


def bodies(broker: Any) -> list[bytes]:
    return [stored.body for stored in broker.stored]


async def leave(cluster: Any, broker: Any, producer: Any) -> None:
    """Stop a broker, which the name server forgets. The producer sees that its connection is lost."""
    await broker.server.close()
    cluster.brokers.remove(broker)
    remoting = producer._running().core.remoting
    await eventually(lambda: remoting.peek(broker.address) is None)


async def come_back(cluster: Any, broker: Any, new_server: Any, port: int | None = None) -> None:
    broker.server = new_server(broker)
    await broker.start(int(broker.address.rpartition(":")[2]) if port is None else port)
    cluster.brokers.append(broker)


def server_of(broker: Any) -> Any:
    return Server(f"scripted.{broker.name}", broker.handlers, clock=SystemClock())


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_a_key_waits_for_its_queue_while_others_go_on(new_cluster: Any, idempotent: bool, moved: bool) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", "b") as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=idempotent, timeout=LONG_S) as producer,
        ):
            b = cluster.brokers[1]
            here, there = next(keys_of(0, 1)), next(keys_of(1, 1))
            first = await producer.send("t", b"0", sharding_key=there)
            assert first.broker == "b"
            await leave(cluster, b, producer)
            waiting = [producer.send_nowait("t", b"%d" % number, sharding_key=there) for number in range(1, 20)]
            for number in range(5):
                assert (await producer.send("t", b"%d" % number, sharding_key=here)).broker == "a"
            assert not any(one.done() for one in waiting)
            await come_back(cluster, b, server_of, 0 if moved else None)
            receipts = await asyncio.gather(*waiting)
            assert {receipt.queue for receipt in receipts} == {first.queue}
            assert list(dict.fromkeys(bodies(b))) == [b"%d" % number for number in range(20)]
            assert producer._running().in_flight == 0 and producer._running().ordered.count == 0

    run(work())


def test_the_error_names_key_queue_and_broker_and_says_that_nothing_is_stored(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv, timeout=0.3) as producer:
            key = next(keys_of(1, 1))
            await producer.send("t", b"0", sharding_key=key, timeout=LONG_S)
            await leave(cluster, cluster.brokers[1], producer)
            with pytest.raises(QueueUnavailableError) as caught:
                await producer.send("t", b"1", sharding_key=key)
            text = str(caught.value)
            assert repr(key) in text and "'b'" in text and "queue" in text and "not stored" in text
            assert caught.value.retriable and isinstance(caught.value, TimeoutError)
            await producer.flush()

    run(work())


def test_reorder_allow_moves_the_key_to_a_queue_that_is_writable(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer:
            key = next(keys_of(1, 1))
            assert (await producer.send("t", b"0", sharding_key=key, reorder="allow")).broker == "b"
            await leave(cluster, cluster.brokers[1], producer)
            receipt = None
            while receipt is None:
                try:
                    receipt = await producer.send("t", b"1", sharding_key=key, reorder="allow")
                except TransportError:
                    await asyncio.sleep(0.01)  # the route still names the broker
            assert receipt.broker == "a"

    run(work())


def test_what_reorder_takes_is_checked(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            with pytest.raises(aerobee.InvalidArgumentError, match="unknown"):
                producer.send_nowait("t", b"x", sharding_key="k", reorder="never")  # type: ignore[typeddict-item]
            with pytest.raises(TypeError):
                producer.send_nowait("t", b"x", sharding_key="k", reorder=1)  # type: ignore[typeddict-item]
            with pytest.raises(aerobee.InvalidArgumentError, match="sharding_key"):
                producer.send_nowait("t", b"x", reorder="allow")
            with pytest.raises(TypeError, match="reorder"):
                producer.send_nowait("t", b"x", re_order="allow")  # type: ignore[call-arg]

    run(work())


@pytest.mark.parametrize("idempotent", [False, True])
def test_one_refused_send_holds_those_behind_it_and_nothing_is_turned_round(new_cluster: Any, idempotent: bool) -> None:
    """A broker that sheds load refuses some of the messages that are on their way together."""

    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=idempotent, timeout=LONG_S) as producer,
        ):
            broker = cluster.brokers[0]
            taken: list[bytes] = []
            last: list[int] = [-1]

            def sometimes(channel: Channel, command: Command, count: int) -> Command | None:
                stored = broker.stored[-1]
                mark = parse_mark(stored.properties.get(PRODUCER_MARK))
                if mark is not None and last[0] < int(stored.properties[ORDER_MARK]):
                    return response(command, ResponseCode.SYSTEM_ERROR, remark="comes before another")
                if count in (3, 4, 30, 41):
                    return response(command, ResponseCode.SYSTEM_BUSY, remark=FOLLOWER)
                taken.append(command.body)
                last[0] = mark.sequence if mark is not None else -1
                answer: Command | None = broker.store(channel, command, count)
                return answer

            broker.answer_send = sometimes
            futures = [producer.send_nowait("t", b"%03d" % number, sharding_key="k") for number in range(50)]
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert taken == sorted(set(taken))
            failed = [b"%03d" % number for number, result in enumerate(results) if isinstance(result, BaseException)]
            assert sorted(taken + failed) == [b"%03d" % number for number in range(50)]
            if idempotent:
                assert not failed
            assert all(isinstance(one, SystemBusyError) for one in results if isinstance(one, BaseException))

    run(work())


def test_a_lost_answer_of_a_plain_producer_is_an_error_and_the_next_ones_go_on(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            broker = cluster.brokers[0]

            def cut(channel: Channel, command: Command, count: int) -> Command | None:
                if count == 2:
                    channel.abort()
                    return None
                answer: Command | None = broker.store(channel, command, count)
                return answer

            broker.answer_send = cut
            await producer.send("t", b"0", sharding_key="k")
            with pytest.raises(TransportError):
                await producer.send("t", b"1", sharding_key="k")
            await producer.send("t", b"2", sharding_key="k")
            assert bodies(broker) == [b"0", b"1", b"2"]

    run(work())


def test_lost_answers_of_a_numbered_producer_are_asked_for_in_order(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=True, timeout=LONG_S) as producer,
        ):
            broker = cluster.brokers[0]
            cuts = iter((5, 12, 20))
            cut_at = [next(cuts)]

            def cut(channel: Channel, command: Command, count: int) -> Command | None:
                if count == cut_at[0]:
                    channel.abort()
                    cut_at[0] = next(cuts, -1)
                    return None
                answer: Command | None = broker.store(channel, command, count)
                return answer

            broker.answer_send = cut
            await asyncio.gather(*(producer.send_nowait("t", b"%02d" % n, sharding_key="k") for n in range(30)))
            assert list(dict.fromkeys(bodies(broker))) == [b"%02d" % n for n in range(30)]
            numbers: dict[bytes, set[str]] = {}
            for stored in broker.stored:
                numbers.setdefault(stored.body, set()).add(stored.properties[PRODUCER_MARK])
            assert all(len(marks) == 1 for marks in numbers.values()), "every try has the same mark"
            follows = [int(one.properties[ORDER_MARK]) for one in broker.stored]
            assert follows[0] == -1 and max(follows) < 30

    run(work())


def test_a_message_that_is_refused_for_good_does_not_hold_the_others(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=True, timeout=LONG_S) as producer,
        ):
            broker = cluster.brokers[0]

            def refuse(channel: Channel, command: Command, count: int) -> Command | None:
                if command.body == b"bad":
                    return response(command, ResponseCode.MESSAGE_ILLEGAL, remark="no")
                answer: Command | None = broker.store(channel, command, count)
                return answer

            broker.answer_send = refuse
            sends = [producer.send_nowait("t", body, sharding_key="k") for body in (b"1", b"bad", b"2")]
            _, bad, _ = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(bad, MessageIllegalError)
            assert sends[2].result().broker == "a"

    run(work())


def test_what_waits_is_bounded_in_number_and_bytes_and_other_keys_are_not(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", "b") as cluster,
            aerobee.Producer(
                cluster.namesrv, timeout=LONG_S, max_in_flight=10, max_waiting_bytes=5000, compression=None
            ) as producer,
        ):
            here, there = next(keys_of(0, 1)), next(keys_of(1, 1))
            await producer.send("t", b"0", sharding_key=there)
            b = cluster.brokers[1]
            await leave(cluster, b, producer)
            waiting = []
            for size in (1, 1000):
                with pytest.raises(TooManyInFlightError, match="without a master"):
                    for _ in range(100):
                        waiting.append(producer.send_nowait("t", b"x" * size, sharding_key=there))
                        await asyncio.sleep(0.01)
                await producer.send("t", b"goes on", sharding_key=here)
                sender = producer._running()
                assert sender.ordered.count <= 10 and sender.ordered.size_bytes <= 6000
                if size == 1:
                    await come_back(cluster, b, server_of)
                    await asyncio.gather(*waiting)
                    waiting.clear()
                    await leave(cluster, b, producer)
            for one in waiting:
                one.cancel()
            await come_back(cluster, b, server_of)
            await producer.flush()

    run(work())


def test_a_caller_that_gives_up_makes_room_for_the_next(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer:
            key = next(keys_of(1, 1))
            await producer.send("t", b"0", sharding_key=key)
            b = cluster.brokers[1]
            await leave(cluster, b, producer)
            first, second = (producer.send_nowait("t", body, sharding_key=key) for body in (b"1", b"2"))
            await asyncio.sleep(0)
            first.cancel()
            await come_back(cluster, b, server_of)
            await second
            assert bodies(b) == [b"0", b"2"]

    run(work())


def test_sends_that_wait_fail_when_the_producer_closes_and_their_time_is_over(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster:
            producer = await aerobee.Producer(cluster.namesrv, timeout=0.2).start()
            key = next(keys_of(1, 1))
            await producer.send("t", b"0", sharding_key=key, timeout=LONG_S)
            await leave(cluster, cluster.brokers[1], producer)
            waiting = [producer.send_nowait("t", b"1", sharding_key=key) for _ in range(3)]
            await producer.close()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(result) for result in results} <= {QueueUnavailableError, NotConnectedError}

    run(work())


def test_queues_that_are_added_or_removed_on_purpose_move_keys(new_cluster: Any) -> None:
    """The broker is there and says that it has more queues, or fewer, or that it takes no messages for the topic."""

    async def work() -> None:
        async with (
            new_cluster("a", "b", queue_nums=2) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S, route_interval_ms=20) as producer,
        ):

            async def spread() -> set[tuple[str, int]]:
                keys = [f"key-{number}" for number in range(60)]
                receipts = [await producer.send("t", b"x", sharding_key=key) for key in keys]
                return {(receipt.broker, receipt.queue_id) for receipt in receipts}

            async def until_declared(count: int) -> None:
                core = producer._running().core
                await eventually(lambda: len(core.routes.declared.of("t")) == count)

            assert len(await spread()) == 4
            cluster.queue_nums = 3
            await until_declared(6)
            assert await spread() == {(name, number) for name in "ab" for number in range(3)}
            cluster.queue_nums = 1
            await until_declared(2)
            assert await spread() == {("a", 0), ("b", 0)}
            route = cluster.route()
            closed = (QueueData("a", 1, 1, 6), QueueData("b", 1, 1, 4))
            cluster.extra["t"] = type(route)(closed, route.broker_datas)
            await until_declared(1)
            assert await spread() == {("a", 0)}

    run(work())


def test_the_order_configuration_of_the_name_server_decides_whoever_is_away(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", queue_nums=4) as cluster:
            route = cluster.route()
            cluster.extra["t"] = type(route)(route.queue_datas, route.broker_datas, "a:2;z:2")
            async with aerobee.Producer(cluster.namesrv, timeout=0.2) as producer:
                outcomes = set()
                for number in range(20):
                    key = f"key-{number}"
                    place = hashed_index(key, 4)
                    try:
                        receipt = await producer.send(
                            "t", b"x", sharding_key=key, timeout=LONG_S if place < 2 else 0.05
                        )
                        outcomes.add((place, receipt.queue_id))
                    except QueueUnavailableError as error:
                        assert "'z'" in str(error)
                        outcomes.add((place, -1))
                assert outcomes == {(0, 0), (1, 1), (2, -1), (3, -1)}

    run(work())


def test_two_producers_of_one_client_both_find_the_queue_that_came_back(new_cluster: Any) -> None:
    """The second producer joins a core that knows the topic, while the broker of the key is away."""

    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv, timeout=LONG_S) as one:
            key = next(keys_of(1, 1))
            await one.send("t", b"0", sharding_key=key)
            b = cluster.brokers[1]
            await leave(cluster, b, one)
            async with aerobee.Producer(cluster.namesrv, timeout=LONG_S) as two:
                sends = [producer.send_nowait("t", b"1", sharding_key=key) for producer in (one, two)]
                await asyncio.sleep(0.05)
                await come_back(cluster, b, server_of)
                assert {receipt.broker for receipt in await asyncio.gather(*sends)} == {"b"}

    run(work())
