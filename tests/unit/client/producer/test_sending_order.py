"""Messages begun one after the other for one queue are written in that order, whatever they had to wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aerobee
from aerobee import MessageQueue
from aerobee.net.link import Link
from aerobee.sync import Producer

LONG_S = 60.0


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, LONG_S))


def paused_link(producer: Any, broker: Any) -> Link:
    """Return the connection to `broker`, in the state of one whose server does not read."""
    link = producer._core.remoting.peek(broker.address)
    assert link is not None
    link.pause_writing()
    return link  # type: ignore[no-any-return]


def bodies(broker: Any) -> list[bytes]:
    return [stored.body for stored in broker.stored]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["nowait", "send", "oneway"]), st.integers(0, 1), st.sampled_from(["t", "u"])),
        st.tuples(st.sampled_from(["pause", "resume"]), st.integers(0, 1), st.just("")),
        st.tuples(st.just("ticks"), st.integers(1, 5), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, max_in_flight=st.sampled_from([2, 1000]))
def test_what_is_stored_for_a_queue_is_what_was_begun_for_it(new_cluster: Any, steps: Any, max_in_flight: int) -> None:
    """Under pauses of the connections, sends that wait for room, and routes not known yet."""

    async def work() -> None:
        begun: dict[tuple[str, str], list[bytes]] = {}
        paused: list[Link] = []
        tasks: list[asyncio.Future[Any]] = []
        async with (
            new_cluster("a", "b") as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S, max_in_flight=max_in_flight) as producer,
        ):
            for number, (kind, which, topic) in enumerate(steps):
                broker = cluster.brokers[which % 2]
                queue, body = MessageQueue(topic or "t", broker.name, 0), b"%d" % number
                if kind == "nowait":
                    try:
                        tasks.append(producer.send_nowait(topic, body, queue=queue))
                    except aerobee.TooManyInFlightError:
                        continue
                elif kind in ("send", "oneway"):
                    send = producer.send if kind == "send" else producer.send_oneway
                    tasks.append(asyncio.ensure_future(send(topic, body, queue=queue)))
                    await asyncio.sleep(0)  # its first step: up to where it waits
                elif kind == "pause" and producer._core is not None and producer._core.remoting.peek(broker.address):
                    paused.append(paused_link(producer, broker))
                elif kind == "resume":
                    for link in [link for link in paused if link.address == broker.address]:
                        link.resume_writing()
                elif kind == "ticks":
                    for _ in range(which):
                        await asyncio.sleep(0)
                if topic:
                    begun.setdefault((topic, broker.name), []).append(body)
            for link in paused:
                link.resume_writing()
            await asyncio.gather(*tasks)
            await producer.flush()
            for broker in cluster.brokers:
                expected = sum(len(own) for (_, name), own in begun.items() if name == broker.name)
                await broker.until(lambda broker=broker, expected=expected: len(broker.stored) == expected)
                for topic in "tu":
                    got = [stored.body for stored in broker.stored if stored.topic == topic]
                    assert got == begun.get((topic, broker.name), [])

    run(work())


def test_those_begun_while_the_first_connect_are_behind_it(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            futures = []
            for number in range(300):
                futures.append(producer.send_nowait("t", b"%d" % number))
                await asyncio.sleep(0)
            await asyncio.gather(*futures)
            assert bodies(cluster.brokers[0]) == [b"%d" % number for number in range(300)]

    run(work())


def test_one_that_comes_when_the_server_reads_again_is_behind_those_who_waited(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            await producer.send("t", b"0")
            link = paused_link(producer, cluster.brokers[0])
            before = asyncio.all_tasks()
            futures = [producer.send_nowait("t", b"%d" % number) for number in range(1, 4)]
            assert len(asyncio.all_tasks() - before) == 1, "one task serves all"
            await asyncio.sleep(0)
            link.resume_writing()
            futures.append(producer.send_nowait("t", b"4"))
            await producer.send_oneway("t", b"5")
            await asyncio.gather(*futures)
            assert bodies(cluster.brokers[0]) == [b"%d" % number for number in range(6)]

    run(work())


def test_a_route_that_others_found_lets_nobody_overtake(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            cluster.hold_routes()
            sender = producer._running()
            asking = asyncio.ensure_future(sender.resolve("t"))
            await cluster.route_asked.wait()
            first = producer.send_nowait("t", b"1")
            cluster.answer_routes()
            await asking  # woken before the queue is
            second = producer.send_nowait("t", b"2")
            await asyncio.gather(first, second)
            assert bodies(cluster.brokers[0]) == [b"1", b"2"]

    run(work())


def test_a_short_time_behind_a_long_one_ends_in_time_and_disturbs_nothing(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            cluster.hold_routes()
            patient = [producer.send_nowait("t", b"1", timeout=LONG_S)]
            hasty = [producer.send_nowait("t", b"x", timeout=0.05 + number / 1000) for number in range(3)]
            patient.append(producer.send_nowait("t", b"2", timeout=LONG_S))
            for future in hasty:
                with pytest.raises(aerobee.RequestTimeoutError, match="no route came in time"):
                    await future
            cluster.answer_routes()
            await asyncio.gather(*patient)
            assert cluster.asked == ["t"]

            link = paused_link(producer, cluster.brokers[0])
            patient = [producer.send_nowait("t", b"3", timeout=LONG_S)]
            late = producer.send_nowait("t", b"x", timeout=0.05)
            with pytest.raises(aerobee.RequestTimeoutError, match="no connection was made in time"):
                await late
            patient.append(producer.send_nowait("t", b"4", timeout=LONG_S))
            assert not any(future.done() for future in patient)
            link.resume_writing()
            await asyncio.gather(*patient)
            assert bodies(cluster.brokers[0]) == [b"1", b"2", b"3", b"4"]
            assert producer._running().in_flight == 0

    run(work())


def test_one_given_up_leaves_its_place_once(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            waiting = [producer.send_nowait("t", b"%d" % number) for number in range(3)]
            waiting[1].cancel()
            await asyncio.gather(waiting[0], waiting[2])
            link = paused_link(producer, cluster.brokers[0])
            waiting = [producer.send_nowait("t", b"%d" % number, timeout=0.1) for number in range(3, 6)]
            waiting[0].cancel()
            waiting[1].cancel()
            with pytest.raises(aerobee.RequestTimeoutError):
                await waiting[2]
            waiting = [producer.send_nowait("t", b"%d" % number) for number in range(6, 8)]
            waiting[0].cancel()
            link.resume_writing()
            await waiting[1]
            assert bodies(cluster.brokers[0]) == [b"0", b"2", b"7"]
            assert producer._running().in_flight == 0

    run(work())


def test_everyone_in_the_line_gets_an_error_of_its_own(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", unknown={"none", "TBW102"}) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer,
        ):
            futures = [producer.send_nowait("none", b"x") for _ in range(3)]
            errors = await asyncio.gather(*futures, return_exceptions=True)
            assert all(isinstance(error, aerobee.TopicNotExistError) for error in errors)
            assert len({id(error) for error in errors}) == 3
            assert len({str(error) for error in errors}) == 1 and "aerobee topic create" in str(errors[0])
            assert cluster.asked == ["none", "TBW102"]

    run(work())


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_where_no_connection_is_made_all_go_to_another_broker(new_cluster: Any, is_idempotent: bool) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", "b") as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S, idempotent=is_idempotent) as producer,
        ):
            await cluster.brokers[0].server.close()
            futures = [producer.send_nowait("t", b"%d" % number) for number in range(40)]
            receipts = await asyncio.gather(*futures)
            assert {receipt.broker for receipt in receipts} == {"b"}
            assert producer._running().in_flight == 0 and not producer._running().wait_queues

    run(work())


@pytest.mark.parametrize("has_begun_to_wait", [False, True])
@pytest.mark.parametrize("is_routed", [False, True])
def test_closing_fails_all_who_wait(new_cluster: Any, has_begun_to_wait: bool, is_routed: bool) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            producer = await aerobee.Producer(cluster.namesrv, timeout=LONG_S).start()
            core = producer._core
            assert core is not None
            if is_routed:
                await producer.send("t", b"x", queue=MessageQueue("t", "a", 0))
                paused_link(producer, cluster.brokers[0])
            else:
                cluster.hold_routes()
            futures = [producer.send_nowait("t", b"y") for _ in range(3)]
            if has_begun_to_wait:
                for _ in range(3):
                    await asyncio.sleep(0)
            await core.close()
            for future in futures:
                with pytest.raises(aerobee.ClientStateError, match="closed before the message was sent"):
                    await future
            with pytest.raises(aerobee.ClientStateError, match="closed before the message was sent"):
                await producer.send("t", b"z")
            await producer.close()

    run(work())


def test_who_finds_room_is_behind_those_who_wait_for_it(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", queue_nums=1) as cluster,
            aerobee.Producer(cluster.namesrv, timeout=LONG_S, max_in_flight=1) as producer,
        ):
            first = producer.send_nowait("t", b"1")
            second = asyncio.ensure_future(producer.send("t", b"2"))
            given_up = asyncio.ensure_future(producer.send("t", b"x"))
            await asyncio.sleep(0)
            given_up.cancel()
            await first  # there is room from here on
            with pytest.raises(aerobee.TooManyInFlightError):
                producer.send_nowait("t", b"x")
            await producer.send("t", b"3")
            await second
            await producer.flush()
            assert bodies(cluster.brokers[0]) == [b"1", b"2", b"3"]

    run(work())


@pytest.mark.parametrize("max_in_flight", [7, 1000])
def test_the_synchronous_face_keeps_the_order_too(served_cluster: Any, max_in_flight: int) -> None:
    queue = MessageQueue("t", "a", 2)
    with Producer(served_cluster.namesrv, max_in_flight=max_in_flight, timeout=LONG_S) as producer:
        for future in [producer.send_nowait("t", b"%d" % number, queue=queue) for number in range(500)]:
            future.result(LONG_S)
    assert bodies(served_cluster.brokers[0]) == [b"%d" % number for number in range(500)]
