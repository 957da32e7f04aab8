"""Pulls: every status, filters, limits, hot and cold, damaged units and records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aerobee.errors import StoreError
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.record import decode_records
from aerobee.store.config import BrokerRole
from aerobee.store.messagestore import MessageStore
from aerobee.store.reads import GetMessageStatus, GetResult
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import bodies, draft, make_store, read_queue, small_config

QUEUE = "/store/consumequeue/topic/0/00000000000000000000"


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


@pytest.fixture
def store(disk: RecordingDisk) -> MessageStore:
    store = make_store(disk)
    store.open()
    for number in range(40):
        store.append([draft(b"message %d" % number, tags="AB"[number % 2])])
    return store


def test_statuses_and_next_offsets(store: MessageStore) -> None:
    def status(offset: int, topic: bytes = b"topic") -> tuple[str, int]:
        result = store.get_messages(topic, 0, offset)
        return result.status.name, result.next_begin_offset

    assert status(5, b"other") == ("NO_MATCHED_LOGIC_QUEUE", 0)
    assert status(40) == ("OFFSET_OVERFLOW_ONE", 40)
    assert status(41) == ("OFFSET_OVERFLOW_BADLY", 40)
    assert status(0) == ("FOUND", 32)
    store.queues.find(b"topic", 0).keep(0)  # type: ignore[union-attr]
    store.flush_sinks()
    store.queues.find(b"topic", 0).keep(0)  # type: ignore[union-attr]
    assert status(3) == ("FOUND", 16)  # a pull from files stays within one of them
    assert status(39) == ("FOUND", 40)
    while store.delete_oldest_segment():
        pass
    low = store.min_offset(b"topic", 0)
    assert status(0) == ("OFFSET_TOO_SMALL", low)
    assert status(low)[0] == "FOUND"


def test_a_slave_does_not_correct_its_readers(disk: RecordingDisk) -> None:
    store = make_store(disk, small_config(broker_role=BrokerRole.SLAVE))
    store.open()
    store.append([draft(b"x")])
    assert store.get_messages(b"none", 0, 7).next_begin_offset == 7
    assert store.get_messages(b"topic", 0, 7).next_begin_offset == 7


def test_filters_by_code_and_by_predicate(store: MessageStore) -> None:
    code = tags_code("B")
    for tags in ({code}, frozenset({code}), lambda value: value == code):
        result = store.get_messages(b"topic", 0, 0, tags=tags)
        found = [r.body for b in result.buffers for r in decode_records(bytes(b))]
        assert found == [b"message %d" % n for n in range(1, 2 * len(found), 2)]
        assert result.queue_offsets == [2 * n + 1 for n in range(len(found))]
    nothing = store.get_messages(b"topic", 0, 30, tags=set())
    assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 40)


def test_limits_count_bytes_and_first_message(store: MessageStore) -> None:
    assert store.get_messages(b"topic", 0, 20, 3).count == 3
    size = store.get_messages(b"topic", 0, 20, 1).size
    assert store.get_messages(b"topic", 0, 20, 32, size * 2 + 5).count == 2
    assert store.get_messages(b"topic", 0, 20, 32, 1).count == 1
    assert store.get_messages(b"topic", 0, 20, 1000).count <= 32


def test_large_records_are_slices_small_ones_one_copy(disk: RecordingDisk) -> None:
    store = make_store(disk, small_config(segment=1 << 16, max_message_size=8192))
    store.open()
    for _ in range(3):
        store.append([draft(bytes(5000))])
    buffers = store.get_messages(b"topic", 0, 0).buffers
    assert [type(buffer) for buffer in buffers] == [memoryview] * 3
    store.append([draft(b"s", b"small")])
    assert type(store.get_messages(b"small", 0, 0).buffers[0]) is bytes


def test_cold_reads_go_through_the_reader(disk: RecordingDisk, store: MessageStore) -> None:
    store.reads.hot_bytes = 500
    result = store.get_messages(b"topic", 0, 0)
    assert (result.status, result.buffers) == (GetMessageStatus.COLD, [])
    disk.complete_queued()
    done: list[GetResult | StoreError] = []
    store.fetch(result, done.append)
    assert done == []
    disk.run_pending()
    assert isinstance(done[0], GetResult)
    assert (done[0].status, done[0].count) == (GetMessageStatus.FOUND, 8)  # maxTransferCountOnMessageInDisk
    disk.complete_inline()
    assert bodies(store) == [b"message %d" % n for n in range(40)]
    assert store.get_messages(b"topic", 0, 39).status is GetMessageStatus.FOUND
    disk.fail(1, "read", path="commitlog")
    store.fetch(store.get_messages(b"topic", 0, 0), done.append)
    assert isinstance(done[1], StoreError)


def test_a_cold_record_that_rots_later_is_not_served(disk: RecordingDisk, store: MessageStore) -> None:
    store.reads.hot_bytes = 0
    record = read_queue(store)[7]
    disk.rot("/store/commitlog/00000000000000000000", record.physical_offset + 91)
    assert [r.queue_offset for r in read_queue(store)] == [n for n in range(40) if n != 7]
    assert list(store.damages) == [record.physical_offset]


def test_one_flipped_bit_in_a_unit_never_serves_another_record(disk: RecordingDisk, store: MessageStore) -> None:
    expected = bodies(store)
    store.close()
    for position in range(12):  # place and size; the tags code only filters
        for bit in range(8):
            image = disk.kill()
            image.rot(QUEUE, 5 * 20 + position, 1 << bit)
            after = make_store(image)
            after.open()
            found = bodies(after)
            assert found in (expected, expected[:5] + expected[6:])


def test_counters(store: MessageStore) -> None:
    bodies(store)
    assert store.counters.appended == 40
    assert store.counters.transferred == 40
    assert store.counters.appended_bytes >= store.log_end - 8192
    assert store.counters.syncs == 40


def test_a_damaged_unit_does_not_hide_those_before_it(disk: RecordingDisk, store: MessageStore) -> None:
    while store.delete_oldest_segment():
        pass
    low = store.min_offset(b"topic", 0)
    store.close()
    for number in range(low + 1, 39):
        image = disk.kill()
        path = f"/store/consumequeue/topic/0/{number // 16 * 320:020d}"
        for at in range(6, 8):
            byte = image.open(path).read(number % 16 * 20 + at, 1)[0]
            image.rot(path, number % 16 * 20 + at, byte)  # the place becomes 0
        after = make_store(image)
        after.open()
        assert after.min_offset(b"topic", 0) == low
        offsets = [r.queue_offset for r in read_queue(after)]
        assert offsets in ([n for n in range(low, 40) if n != number], list(range(low, 40)))


def _wants(*values: bytes) -> Callable[[bytes], bool]:
    return lambda block: any(b"TAGS\x01" + value + b"\x02" in block for value in values)


def test_a_filter_by_properties_takes_what_it_accepts_and_stops_when_full(store: MessageStore) -> None:
    result = store.get_messages(b"topic", 0, 0, 5, accept=_wants(b"B"))
    records = [record for buffer in result.buffers for record in decode_records(bytes(buffer))]
    assert [record.body for record in records] == [b"message %d" % number for number in (1, 3, 5, 7, 9)]
    assert result.queue_offsets == [1, 3, 5, 7, 9]
    # Full before the next is looked at.
    assert (result.next_begin_offset, result.filtered) == (10, 5)
    size = result.size // 5
    narrow = store.get_messages(b"topic", 0, 0, 32, size * 2 + 1, accept=_wants(b"B"))
    assert (narrow.count, narrow.next_begin_offset) == (2, 4)
    nothing = store.get_messages(b"topic", 0, 7, accept=_wants(b"C"))
    assert (nothing.status.name, nothing.next_begin_offset, nothing.filtered) == ("NO_MATCHED_MESSAGE", 40, 33)


def test_a_filtered_pull_looks_through_so_many_units_and_no_more(disk: RecordingDisk) -> None:
    store = make_store(disk, small_config(max_filter_message_size=20 * 10))
    store.open()
    for number in range(40):
        store.append([draft(b"%d" % number, tags="AB"[number == 39])])
    passed = 0
    while True:
        result = store.get_messages(b"topic", 0, passed, 4, accept=_wants(b"B"))
        if result.status is GetMessageStatus.FOUND:
            break
        assert (result.status.name, result.next_begin_offset) == ("NO_MATCHED_MESSAGE", passed + 10)
        passed += 10
    assert (passed, result.queue_offsets) == (30, [39])


def test_a_cold_filtered_pull_is_as_a_hot_one(store: MessageStore) -> None:
    store.reads.hot_bytes = 0
    cold = store.get_messages(b"topic", 0, 0, 5, accept=_wants(b"B"))
    assert cold.status is GetMessageStatus.COLD
    result = store.fetch_now(cold)
    assert (result.queue_offsets, result.next_begin_offset, result.filtered) == ([1, 3, 5, 7, 9], 10, 5)
    nothing = store.fetch_now(store.get_messages(b"topic", 0, 7, accept=_wants(b"C")))
    assert (nothing.status.name, nothing.next_begin_offset) == ("NO_MATCHED_MESSAGE", 40)
