"""The order of an idempotent producer in one queue: no message is stored before one that it follows."""

from __future__ import annotations

import itertools

import pytest

from aerobee.broker.send.dedup import QUEUES_MAX, Dedup, Sent
from aerobee.broker.send.marks import learn_marks
from aerobee.model.names import SCHEDULE_TOPIC
from aerobee.model.producermark import ORDER_MARK, PRODUCER_MARK, ProducerMark
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import send
from aerobee.testing.storekit import bodies, small_config

PRODUCER = "0123456789abcdef"
OTHER = "f" * 16
AGAIN = ResponseCode.SYSTEM_ERROR
NEVER = ResponseCode.MESSAGE_ILLEGAL
_opaques = itertools.count(1)


def ordered(sequence: int, after: int | str, *, producer: str = PRODUCER, queue_id: int = 0, **more: str) -> Command:
    own = {PRODUCER_MARK: ProducerMark(producer, sequence).encode(), ORDER_MARK: str(after), **more}
    key, body = f"{producer}{sequence}", b"%d" % sequence
    return send(key, body, queue_id=queue_id, opaque=next(_opaques), properties=own)


def test_a_message_that_comes_before_the_one_it_follows_is_refused_and_may_come_again() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        early = await client.call(ordered(2, 1))
        assert early.code == AGAIN and "before message 1" in (early.remark or "")
        assert (await client.call(ordered(1, -1))).code == 0
        assert (await client.call(ordered(2, 1))).code == 0
        assert bodies(kit.store, b"T") == [b"1", b"2"]

    run_broker(main)


def test_those_of_one_tick_are_stored_in_their_order() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for sequence in range(10):
            client.send(ordered(sequence, sequence - 1))
        assert {answer.code for answer in await client.answers()} == {0}
        assert bodies(kit.store, b"T") == [b"%d" % sequence for sequence in range(10)]

    run_broker(main)


def test_one_that_was_given_up_is_not_stored_behind_a_later_one() -> None:
    async def main(kit: BrokerKit) -> None:
        client, old = kit.connect(), kit.connect()
        assert (await client.call(ordered(7, -1))).code == 0
        late = await old.call(ordered(6, -1))
        assert late.code == NEVER and "too late" in (late.remark or "")
        assert (await old.call(ordered(7, 6))).code == 0, "a repeat is answered, whatever it follows"
        assert bodies(kit.store, b"T") == [b"7"]

    run_broker(main)


def test_queues_and_producers_do_not_wait_for_each_other() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(ordered(5, -1))).code == 0
        assert (await client.call(ordered(4, -1, queue_id=1))).code == 0
        assert (await client.call(ordered(1, -1, producer=OTHER))).code == 0
        assert (await client.call(ordered(6, 5, queue_id=1))).code == AGAIN, "5 is in another queue"
        # Messages of the producer without an order do not count.
        mark = {PRODUCER_MARK: ProducerMark(PRODUCER, 9).encode()}
        assert (await client.call(send("free", b"9", opaque=99, properties=mark))).code == 0
        assert (await client.call(ordered(8, -1))).code == 0

    run_broker(main)


@pytest.mark.parametrize("text", ["", "x", "-2", "1" * 5000])
def test_an_order_that_is_no_number_asks_for_nothing(text: str) -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(ordered(5, -1))).code == 0
        assert (await client.call(ordered(4, text))).code == 0

    run_broker(main)


def test_a_killed_broker_keeps_the_order_that_its_log_shows() -> None:
    disk, config = RecordingDisk(seed=1), small_config()

    async def before(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(ordered(3, -1))).code == 0
        assert (await client.call(ordered(4, 3, DELAY="3"))).code == 0
        assert (await client.call(ordered(9, -1, queue_id=1))).code == 0

    async def after(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(ordered(2, -1))).code == NEVER
        assert (await client.call(ordered(6, 5))).code == AGAIN
        assert (await client.call(ordered(5, 4))).code == 0
        assert bodies(kit.store, b"T") == [b"3", b"5"]
        assert bodies(kit.store, SCHEDULE_TOPIC.encode(), 2) == [b"4"]
        memory = Dedup()
        learn_marks(kit.store, memory, "broker-a", kit.clock)
        assert memory.is_overtaken(ProducerMark(PRODUCER, 8), ("T", 1))
        assert not memory.is_overtaken(ProducerMark(PRODUCER, 8), ("T", 0))

    run_broker(before, disk=disk, store_config=config, wall_ms=1_700_000_000_000)
    run_broker(after, disk=disk.kill(), store_config=config, wall_ms=1_700_000_001_000)


def test_what_follows_a_refused_message_waits_for_it() -> None:
    memory = Dedup()
    queue, marks = ("T", 0), [ProducerMark(PRODUCER, sequence) for sequence in range(3)]
    turns = []
    for mark in marks:
        memory.begin(mark, "name", 0.0)
        turns.append(memory.take_turn(mark, queue))
    memory.turn_refused(turns[0])
    assert memory.is_early(marks[1], queue, 0)
    memory.turn_refused(turns[1])
    memory.turn_refused(turns[2])
    assert memory.is_early(marks[2], queue, 1)
    assert not memory.is_early(marks[0], queue, -1) and not memory.is_overtaken(marks[0], queue)


def test_one_that_was_stored_although_the_one_before_was_refused_ends_the_chance_of_that_one() -> None:
    memory = Dedup()
    queue, first, second = ("T", 0), ProducerMark(PRODUCER, 1), ProducerMark(PRODUCER, 2)
    memory.begin(first, "name", 0.0)
    memory.begin(second, "name", 0.0)
    turns = [memory.take_turn(first, queue), memory.take_turn(second, queue)]
    memory.turn_refused(turns[0])
    memory.turn_stored(turns[1])
    assert memory.is_overtaken(first, queue)


def test_the_memory_of_queues_is_bounded_and_counted() -> None:
    memory = Dedup()
    for number in range(QUEUES_MAX + 50):
        mark = ProducerMark(PRODUCER, number)
        memory.learn(mark, "name", Sent(None), 0.0, ("T", number))
    assert memory.entries == 2 * QUEUES_MAX + 50
    assert not memory.is_overtaken(ProducerMark(PRODUCER, 0), ("T", 1)), "the longest unused is forgotten"
    memory.learn(ProducerMark(OTHER, 0), "name", Sent(None), 16 * 60.0)
    assert (len(memory), memory.entries) == (1, 1)
