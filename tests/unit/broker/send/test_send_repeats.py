"""Sends of idempotent producers that come twice: stored once, answered alike."""

from __future__ import annotations

import pytest

from aerobee.broker.send.dedup import Dedup, named
from aerobee.broker.send.marks import learn_marks
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from aerobee.model.producermark import PRODUCER_MARK, SEQUENCE_WINDOW, ProducerMark
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import half, send
from aerobee.testing.storekit import bodies, read_queue, small_config

PRODUCER = "0123456789abcdef"


def marked(sequence: int, body: bytes = b"body", *, opaque: int = 8, **properties: str) -> Command:
    mark = ProducerMark(PRODUCER, sequence).encode()
    return send(f"K{sequence}", body, opaque=opaque, properties={PRODUCER_MARK: mark, **properties})


def place(answer: Command) -> tuple[str, ...]:
    return tuple(answer.ext.get(name, "") for name in ("msgId", "queueId", "queueOffset", "transactionId"))


def test_a_repeat_is_answered_as_the_first_and_not_stored() -> None:
    async def main(kit: BrokerKit) -> None:
        client, other = kit.connect(), kit.connect()
        first = await client.call(marked(0, b"a"))
        await client.call(marked(1, b"b"))
        again = await other.call(marked(0, b"a"))
        assert (first.code, again.code) == (0, 0)
        assert place(again) == place(first)
        assert bodies(kit.store, b"T") == [b"a", b"b"]

    run_broker(main)


def test_both_of_one_tick_get_the_same_answer() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        client.send(marked(0, opaque=1))
        client.send(marked(0, opaque=2))
        first, again = await client.answers()
        assert {first.opaque, again.opaque} == {1, 2}
        assert (first.code, place(first)) == (again.code, place(again)) == (0, place(first))
        assert bodies(kit.store, b"T") == [b"body"]

    run_broker(main)


def test_a_repeat_waits_for_the_sync_that_the_first_waits_for() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(send("plain"))
        disk.complete_queued()
        client.send(marked(0, opaque=1))
        await settle()
        client.send(marked(0, opaque=2))
        assert await client.answers() == []
        await kit.pass_time(6)
        late = await client.answers()
        assert [one.code for one in late] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 2
        client.send(marked(0, opaque=3))
        assert await client.answers() == [], "stored, and still not safe"
        while disk.pending_count:
            disk.run_pending()
            await settle()
        disk.complete_inline()
        (safe,) = await client.answers()
        assert (safe.code, place(safe)) == (0, place(late[0]))
        assert len(bodies(kit.store, b"T")) == 2

    run_broker(main, disk=disk)


@pytest.mark.parametrize("segment", [4096, 1 << 20])
def test_a_killed_broker_knows_what_its_log_holds(segment: int) -> None:
    disk, answers = RecordingDisk(seed=1), list[Command]()

    def requests() -> list[Command]:
        mark = ProducerMark(PRODUCER, 99).encode()
        return [
            *(marked(n, b"%d" % n * 100) for n in range(30)),
            marked(50, b"later", DELAY="3"),
            half("K99", b"half", properties={PRODUCER_MARK: mark}),
        ]

    async def before(kit: BrokerKit) -> None:
        client = kit.connect()
        for one in requests():
            answers.append(await client.call(one))

    async def after(kit: BrokerKit) -> None:
        client = kit.connect()
        for one, first in zip(requests(), answers, strict=True):
            assert place(await client.call(one)) == place(first)
        assert len(read_queue(kit.store, b"T", 0)) == 30
        assert len(read_queue(kit.store, SCHEDULE_TOPIC.encode(), 2)) == 1
        assert len(read_queue(kit.store, HALF_TOPIC.encode(), 0)) == 1

    config = small_config(segment=segment)
    run_broker(before, disk=disk, store_config=config, close=False)
    run_broker(after, disk=disk.kill(), store_config=config, wall_ms=1_700_000_010_000)
    run_broker(after_a_long_time, disk=disk.kill(), store_config=config, wall_ms=1_700_000_000_000 + 16 * 60_000)


async def after_a_long_time(kit: BrokerKit) -> None:
    await kit.connect().call(marked(0, b"new"))
    assert len(read_queue(kit.store, b"T", 0)) == 31, "what is remembered ends after 15 minutes"


def test_what_was_refused_may_come_again() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        refused = await client.call(marked(0, INNER_NUM="1"))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await client.call(marked(0))).code == 0
        assert bodies(kit.store, b"T") == [b"body"]

    run_broker(main)


def test_one_that_is_too_far_behind_is_refused_and_never_stored_twice() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await client.call(marked(0))
        await client.call(marked(SEQUENCE_WINDOW))
        answer = await client.call(marked(0))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "too far behind" in (answer.remark or "")
        assert len(bodies(kit.store, b"T")) == 2

    run_broker(main)


def test_retries_that_a_consumer_sends_itself_are_no_repeats() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_group(SubscriptionGroupConfig("G"))
        client = kit.connect()
        properties = {PRODUCER_MARK: ProducerMark(PRODUCER, 0).encode()}
        for _ in range(2):
            answer = await client.call(send(topic="%RETRY%G", properties=properties))
            assert answer.code == 0, answer.remark
        assert len(bodies(kit.store, b"%RETRY%G")) == 2

    run_broker(main)


def test_the_tail_of_the_log_is_read_from_anywhere() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for sequence in range(30):
            assert (await client.call(marked(sequence, b"%d" % sequence * 100))).code == 0
        stored = read_queue(kit.store, b"T", 0)
        for size in range(1, kit.store.log_end, 97):
            memory = Dedup()
            learn_marks(kit.store, memory, kit.state.name, kit.clock, bytes_max=size)
            for sequence, record in enumerate(stored):
                sent = memory.find(ProducerMark(PRODUCER, sequence), named("T", f"K{sequence}"))
                assert (sent is not None) == (record.physical_offset >= kit.store.log_end - size)

    run_broker(main, store_config=small_config(segment=4096))
