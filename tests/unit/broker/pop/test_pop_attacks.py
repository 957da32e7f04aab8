"""POP under clients that lie, repeat themselves, come late or ask for nonsense."""

from __future__ import annotations

import pytest

from aerobee.admin.pops import read_in_flight
from aerobee.broker.pop import Key
from aerobee.broker.pop.ackrequests import AckHandlers
from aerobee.broker.pop.asked import Lease
from aerobee.broker.pop.table import PopTable
from aerobee.broker.pop.window import AHEAD_MAX
from aerobee.model.topic import TopicConfig
from aerobee.net.turns import Sliced
from aerobee.protocol.bodies.pop import BatchAck
from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.group import DeleteSubscriptionGroupRequestHeader
from aerobee.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.topic import DeleteTopicRequestHeader
from aerobee.store.config import StoreConfig
from aerobee.testing.adminkit import AdminKit
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.popkit import (
    Popped,
    ack,
    batch_ack,
    batch_entry,
    bodies,
    change,
    pop,
    pop_request,
    store,
    with_topic,
)
from aerobee.testing.storekit import draft, small_config

ASYNC = small_config(segment=1 << 20, sync=False)
_DAY_MS = 24 * 3_600_000


def _with(one: Popped, *, offset: int | None = None, pop_time: int | None = None, handle: str | None = None) -> Popped:
    """Return a message whose handle says something else."""
    parts = one.handle.split(" ")
    if pop_time is not None:
        parts[1] = str(pop_time)
    if offset is not None:
        parts[7] = str(offset)
    at = one.offset if offset is None else offset
    return Popped(one.record, one.topic, one.queue_id, at, " ".join(parts) if handle is None else handle)


def _again(kit: BrokerKit, config: StoreConfig = ASYNC) -> BrokerKit:
    """Kill the broker, and start it again."""
    return BrokerKit(kit.store.disk.kill(), kit.clock, None, config)  # type: ignore[attr-defined]


def test_forged_handles_take_nothing_from_others() -> None:
    """Handles of other pops, other groups, the future and of nobody are answered as by Apache, and do nothing."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        assert kit.state.catalog.group("H") is not None
        store(kit, 6)
        await kit.pass_time(20, 1)
        held = await pop(kit, count=3, invisible_ms=5_000)
        (others,) = await pop(kit, count=1, invisible_ms=5_000, group="H")
        now_ms = kit.clock.now_ms()
        for forged in (
            _with(held[0], pop_time=now_ms - 1),
            _with(held[0], pop_time=now_ms + 3_600_000),
            _with(held[0], pop_time=2**63 - 1),
            _with(held[0], pop_time=0),
            # Not handed out yet, and the end of the queue.
            _with(held[0], offset=4),
            _with(held[0], offset=5),
            _with(held[0], offset=6),
        ):
            assert await ack(kit, forged) == 0
            assert (await change(kit, forged, 60_000)).code in (0, 208)
        # The right handle, by a group that does not hold it, and by one that nobody knows.
        assert await ack(kit, held[1], group="H") == 0
        assert await ack(kit, held[1], group="nobody") == 0
        assert Key("T", "nobody", 0) not in kit.broker.pop.table.windows
        for twice in range(2):
            assert await ack(kit, held[2]) == 0, twice
        for broken in ("", "1 2 3", "a b c d e f g h", "0 -1 1000 0 0 b 0 0", f"0 {2**63} 1 0 0 b 0 0", " " * 64_000):
            assert await ack(kit, _with(held[0], handle=broken)) != 0
        assert await ack(kit, others, group="H") == 0
        store(kit, 1)
        assert await bodies(kit) == [b"3", b"4", b"5", b"6"], "nothing that was not held is lost"
        await kit.pass_time(6, 0.1)
        assert sorted(await bodies(kit)) == [b"0", b"1"]
        await kit.pass_time(10, 1)
        assert await bodies(kit, group="H") == [b"1", b"2", b"3", b"4", b"5", b"6"]

    run_broker(main, store_config=ASYNC)


def test_a_handle_from_before_a_crash_works_once() -> None:
    """A take that a crash has lost is acknowledged by its handle; the same handle says nothing of later messages."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        await kit.pass_time(3, 0.1)
        image = kit.store.disk.kill()  # type: ignore[attr-defined]
        one, two, _ = await pop(kit, invisible_ms=60_000)
        # The takes are written after the image was made: nobody knows of them there.
        again = BrokerKit(image, kit.clock, None, ASYNC)
        assert await ack(again, one) == 0
        await again.pass_time(0.1, 0.1)
        store(again, 1)
        assert await ack(again, _with(two, offset=3)) == 0, "stored after that pop"
        assert await bodies(again, invisible_ms=1_000) == [b"1", b"2", b"3"]
        again = _again(again)
        await again.pass_time(3, 0.1)
        assert sorted(await bodies(again)) == [b"1", b"2", b"3"], "and what the journal says is the same"
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


@pytest.mark.parametrize("by", ["ack", "change"])
def test_a_lost_take_beyond_a_queue_that_was_only_looked_at(by: str) -> None:
    """A pop that was full before it came to this queue left no take of it. What lies before the handle is not lost."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        await kit.pass_time(3, 0.1)
        image = kit.store.disk.kill()  # type: ignore[attr-defined]
        last = (await pop(kit, invisible_ms=60_000))[-1]
        again = BrokerKit(image, kit.clock, None, ASYNC)
        again.broker.pop.table.window(Key("T", "G", 0), 0)
        if by == "ack":
            assert await ack(again, last) == 0
        else:
            assert (await change(again, last, 60_000)).code == 0
        await again.pass_time(0.2, 0.1)
        again = _again(again)
        assert await bodies(again) == [b"0", b"1", b"2"]
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


@pytest.mark.parametrize("by", ["ack", "batch", "change"])
def test_a_handle_that_is_over_is_not_revived_by_a_crash(by: str) -> None:
    """The take is lost, and the handle comes after its own time: it has no effect, as without the crash."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        await kit.pass_time(3, 0.1)
        image = kit.store.disk.kill()  # type: ignore[attr-defined]
        (one,) = await pop(kit, invisible_ms=2_000)
        again = BrokerKit(image, kit.clock, None, ASYNC)
        await again.pass_time(2.5, 0.1)
        if by == "ack":
            assert await ack(again, one) == 0
        elif by == "batch":
            assert (await batch_ack(again, batch_entry(one, [0]))).code == 0
        else:
            await change(again, one, 60_000)
        assert await bodies(again) == [b"0"]
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


@pytest.mark.parametrize("what", ["topic", "group"])
def test_what_is_deleted_in_flight_is_forgotten(what: str) -> None:
    """A topic or a group that is deleted and made again begins anew; handles from before touch none of its messages."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        held = await pop(kit, invisible_ms=2_000)
        if what == "topic":
            answer = await AdminKit(kit).call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
        else:
            header = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
            answer = await AdminKit(kit).call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert answer.code == 0
        assert kit.broker.pop.table.in_flight == 0
        assert await ack(kit, held[0]) == (17 if what == "topic" else 0)
        await kit.pass_time(15, 0.5)
        with_topic(kit)
        store(kit, 4)
        assert await ack(kit, held[1]) in (0, 208)
        assert (await change(kit, held[2], 60_000)).code in (0, 208)
        answer = await batch_ack(kit, batch_entry(held[3], [one.offset for one in held]))
        assert answer.code in (0, 208)
        kit = _again(kit)
        assert await ack(kit, held[1]) in (0, 208)
        came = set(await bodies(kit, invisible_ms=60_000))
        high = kit.store.max_offset(b"T", 0)
        assert {b"%d" % number for number in range(high - 4, high)} <= came
        await kit.pass_time(5, 0.5)
        assert await bodies(kit) == []
        kit.close()

    run_broker(main, store_config=ASYNC, close=False)


def test_a_queue_that_goes_gives_back_what_it_holds() -> None:
    """The number of queues shrinks while messages of the last one are held: they come again from the retry topic."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 2)
        store(kit, 2, 0)
        store(kit, 2, 1)
        held = await pop(kit, invisible_ms=1_000)
        assert len(held) == 4
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        for one in held:
            assert await ack(kit, one) == (0 if one.queue_id == 0 else 13)
        await kit.pass_time(2, 0.1)
        assert sorted(await bodies(kit)) == [b"0", b"1"]

    run_broker(main, store_config=ASYNC)


def test_extremes_of_a_pop() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        client = kit.connect()

        async def code(**asked: object) -> int:
            return (await client.call(pop_request(kit, **asked))).code  # type: ignore[arg-type]

        for count in (0, -1, 33, 10**6, 2**31 - 1, -(2**31)):
            assert await code(count=count) == 29, count
        for invisible_ms in (-1, 3 * _DAY_MS + 1, 2**63 - 1, -(2**63)):
            assert await code(invisible_ms=invisible_ms) == 29, invisible_ms
        for invisible_ms in (2**63, -(2**63) - 1):
            assert await code(invisible_ms=invisible_ms) != 0, invisible_ms
        assert await code(order=True, attempt_id="a" * 257) == 29
        assert kit.broker.pop.table.in_flight == 0
        (first, second, _) = await pop(kit, invisible_ms=3 * _DAY_MS)
        for invisible_ms in (-1, 3 * _DAY_MS + 1, 2**63 - 1, -(2**63)):
            assert (await change(kit, first, invisible_ms)).code == 29, invisible_ms
        assert (await change(kit, first, 0)).code == 0
        assert (await change(kit, second, 3 * _DAY_MS)).code == 0
        await kit.pass_time(0.3, 0.1)
        assert await bodies(kit, invisible_ms=0) == [first.body]
        await kit.pass_time(0.3, 0.1)
        assert await bodies(kit) == [first.body], "a time of nothing ends at once"

    run_broker(main, store_config=ASYNC)


def test_a_long_attempt_id_is_kept() -> None:
    """The longest id that is taken survives a start, and so does what others said in the same turn."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        with_topic(kit, 1, "U")
        store(kit, 2)
        store(kit, 2, 0, "U")
        (one, _) = await pop(kit, topic="U", invisible_ms=60_000)
        held = await pop(kit, count=1, order=True, attempt_id="ü" * 256)
        assert await ack(kit, one) == 0
        kit = _again(kit)
        assert await bodies(kit, order=True, attempt_id="other") == []
        assert [one.body for one in await pop(kit, count=1, order=True, attempt_id="ü" * 256)] == [held[0].body]
        await kit.pass_time(61, 1)
        assert await bodies(kit, topic="U") == [b"1"]
        kit.close()

    run_broker(main, store_config=ASYNC, close=False)


def test_a_batch_of_too_many_is_refused_before_it_is_unfolded() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        (one, *_) = await pop(kit)
        entry = batch_entry(one, [0, 1])
        wide = BatchAck(
            entry.consumer_group, entry.topic, entry.retry, -(2**40), 0, entry.revive_queue_id, entry.pop_time,
            entry.invisible_time, "/" * 44_000,
        )  # fmt: skip
        assert (await batch_ack(kit, entry, wide)).code == 13
        assert kit.broker.pop.table.in_flight == 3
        assert (await batch_ack(kit, entry)).code == 0
        assert kit.broker.pop.table.in_flight == 1

    run_broker(main, store_config=ASYNC)


def test_acknowledgements_of_one_turn_fit_into_records() -> None:
    """So many in one turn that one message could not hold them: all are stored, and all are known after a kill."""
    config = small_config(segment=8 << 20, sync=False)

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        count = 40_000
        pops, table = kit.broker.pop, kit.broker.pop.table
        key = Key("T", "G", 0)
        window = table.window(key, 0)
        pops.ledger.writer.take(key, 1_000, 10**13, 0, count, range(count))
        table.take(window, 0, count, range(count), 1_000, 10**13)
        told: list[int] = []
        leases = [Lease("G", "T", 0, offset, 1_000) for offset in range(0, count, 2)]
        pops.ack_all(leases, lambda code, remark: told.append(code))
        await kit.pass_time(1, 0.1)
        assert told == [0]
        again = _again(kit, config)
        assert again.broker.pop.table.in_flight == count - len(leases)
        again.close()

    run_broker(main, store_config=config, close=False)


def test_fifo_keeps_its_order_over_changes() -> None:
    """A change holds the whole queue until its time; what is acknowledged in order never comes again."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        one, two = await pop(kit, count=2, order=True, attempt_id="a", invisible_ms=2_000)
        assert await ack(kit, one) == 0
        assert (await change(kit, two, 6_000)).code == 0
        await kit.pass_time(3, 0.1)
        assert await bodies(kit, order=True, attempt_id="b") == []
        kit = _again(kit)
        assert await bodies(kit, order=True, attempt_id="c") == []
        assert (await change(kit, two, 500)).code == 0
        await kit.pass_time(1, 0.1)
        assert await bodies(kit, order=True, attempt_id="d", invisible_ms=1_000) == [b"1", b"2", b"3"]
        # The handle of the pop before has no effect.
        assert await ack(kit, two) == 0
        await kit.pass_time(2, 0.1)
        assert await bodies(kit, order=True, attempt_id="e") == [b"1", b"2", b"3"]
        kit.close()

    run_broker(main, store_config=ASYNC, close=False)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_a_clock_that_jumps_loses_nothing(jump_ms: int) -> None:
    """After a jump leases end early or late; nothing is lost, and nothing acknowledged comes again."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        held = await pop(kit, invisible_ms=10_000)
        kit.clock.jump(jump_ms)
        assert await ack(kit, held[0]) == 0
        await kit.pass_time(1, 0.1)
        if jump_ms < 0:
            assert await bodies(kit) == []
            store(kit, 1)
            (new,) = await pop(kit, invisible_ms=1_000)
            assert await ack(kit, new) == 0
            kit.clock.jump(-jump_ms + 10_000)
            await kit.pass_time(1, 0.1)
        again = await pop(kit, invisible_ms=60_000)
        assert sorted(one.body for one in again) == [b"1", b"2", b"3"]
        for one in again:
            assert await ack(kit, one) == 0
        await kit.pass_time(70, 1)
        assert await bodies(kit) == []

    run_broker(main, store_config=ASYNC)


def test_changes_without_end_take_no_memory() -> None:
    """Who shortens the time of a message again and again leaves nothing behind, however far off its end is."""
    table = PopTable()
    window = table.window(Key("T", "G", 0), 0)
    table.take(window, 0, 4, range(4), 1_000, 3 * _DAY_MS)
    for number in range(300_000):
        deadline = 3 * _DAY_MS - number * 97 % _DAY_MS
        assert table.change(window, number % 4, 1_000, deadline if number % 8 < 4 else 3 * _DAY_MS, suspend=False)
    assert table.size_in_bytes < 8 << 20
    assert sum(len(one.offsets) for one in table.due(3 * _DAY_MS, 100)) == 4


def test_what_is_in_flight_is_told_in_slices_and_what_is_left_out_is_said() -> None:
    """One question about everything in flight neither holds the loop nor outgrows a frame, and it never cuts unsaid."""

    def told(work: Sliced) -> tuple[int, Command]:
        slices, count = work.slices, 0
        while True:
            try:
                next(slices)
            except StopIteration as end:
                return count, end.value
            count += 1

    async def main(kit: BrokerKit) -> None:
        with_topic(kit, queues=5)
        for queue_id in range(5):
            store(kit, 3, queue_id)
        assert len(await pop(kit, count=15)) == 15
        command = request(PrivateRequestCode.POP_IN_FLIGHT, opaque=9)
        queues, words = read_in_flight(await kit.connect().call(command), "broker-a")
        assert [(one.in_flight, len(one.messages)) for one in queues] == [(3, 3)] * 5
        assert words == ()
        handlers = AckHandlers(kit.broker.pop, kit.state.flow)
        handlers.messages_told, handlers.queues_told = 7, 4
        slices, answer = told(handlers.in_flight(kit.connect().channel, command))
        assert slices == 5, "one for each queue"
        queues, words = read_in_flight(answer, "broker-a")
        assert [(one.in_flight, len(one.messages)) for one in queues] == [(3, 3), (3, 3), (3, 1), (3, 0)]
        assert words == ("broker broker-a left out 1 queues with 3 messages in flight: name a topic or a group",)

    run_broker(main, store_config=ASYNC)


@pytest.mark.parametrize("offset", [70_000, 1 << 32, (1 << 63) - 1])
def test_an_offset_that_is_far_away_costs_no_memory(offset: int) -> None:
    """A client may commit any number. What lies between is passed over, and the queue goes on from its end."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        await kit.pass_time(20, 1)
        assert len(await pop(kit, count=2, invisible_ms=60_000)) == 2
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=offset)
        assert (await AdminKit(kit).call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0
        assert await pop(kit, count=8) == []
        window = kit.broker.pop.table.windows[Key("T", "G", 0)]
        assert window.size_in_bytes < 10_000
        store(kit, 3)
        await kit.pass_time(20, 1)
        assert len(await pop(kit, count=8)) == 3

    run_broker(main, store_config=ASYNC)


def test_what_nobody_holds_is_acknowledged_in_small_records(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of single messages that were never handed out. Each would be a record of a lost take."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        for _ in range(40):
            kit.store.append([draft(b"x", b"T") for _ in range(512)])
        one = (await pop(kit, count=1))[0]
        start, end = kit.store.log_end, kit.store.max_offset(b"T", 0)
        every_other = list(range(1, end, 2))
        for _ in range(2):
            assert (await batch_ack(kit, batch_entry(one, every_other))).code == 0
        window = kit.broker.pop.table.windows[Key("T", "G", 0)]
        assert len(window.ahead) == AHEAD_MAX, "no more are remembered"
        # What is acknowledged costs about ten bytes, and the second time nothing.
        assert kit.store.log_end - start < 25 * AHEAD_MAX
        await kit.pass_time(1)
        assert "is not stored now" not in caplog.text, "no record was too large for a message"
        assert await ack(kit, one) == 0

    run_broker(main)


def test_repeated_acknowledgements_in_order_write_once() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 8)
        found = await pop(kit, order=True, attempt_id="a")
        entry = batch_entry(found[0], [1, 2, 3])
        assert (await batch_ack(kit, entry)).code == 0
        end = kit.store.log_end
        assert (await batch_ack(kit, *[entry] * 200)).code == 0
        assert kit.store.log_end == end, "they say nothing new"
        # The first is left: it holds the others back until it comes again.
        assert (await batch_ack(kit, batch_entry(found[0], [0, 4, 5, 6, 7]))).code == 0
        store(kit, 1)
        assert await bodies(kit, order=True, attempt_id="b") == [b"8"]

    run_broker(main)


def test_a_batch_that_is_right_in_parts() -> None:
    """Messages of a pop that were acknowledged, changed, or taken by others are each decided about."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        assert kit.state.catalog.group("H") is not None
        store(kit, 40)
        first = await pop(kit, count=16, invisible_ms=1_000)
        second = await pop(kit, count=16, invisible_ms=60_000)
        assert await ack(kit, first[3]) == 0
        assert (await change(kit, first[5], 9_000)).code == 0
        assert (await change(kit, first[6], 9_000, suspend=True)).code == 0
        # Another group, and a time that no pop had, hold nothing of it.
        assert (await batch_ack(kit, batch_entry(first[0], list(range(16)), group="H"))).code == 0
        parts = first[0].handle.split(" ")
        other = Popped(first[0].record, "T", 0, 0, " ".join([parts[0], str(int(parts[1]) - 1), *parts[2:]]))
        assert (await batch_ack(kit, batch_entry(other, list(range(16))))).code == 0
        assert kit.broker.pop.table.in_flight == 31
        # What the first pop holds, and beyond it what the second does, what nobody does and what is not there.
        assert (await batch_ack(kit, batch_entry(first[0], [*range(1, 16), *range(16, 100)]))).code == 0
        held = kit.broker.pop.table.windows[Key("T", "G", 0)].held()
        by_second = {one.offset for one in second} if second[0].handle.split(" ")[1] != parts[1] else set()
        assert {offset for offset, _, _ in held} == {0} | by_second
        await kit.pass_time(2, 0.05)
        again = _again(kit)
        assert {offset for offset, _, _ in again.broker.pop.table.windows[Key("T", "G", 0)].held()} == by_second
        again.close()

    run_broker(main, store_config=ASYNC, close=False)
