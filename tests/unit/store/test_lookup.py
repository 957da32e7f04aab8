"""Lookups by place and by time, hot and cold."""

from __future__ import annotations

import pytest

from aerobee.errors import StoreError
from aerobee.hot.log.record import decode_record
from aerobee.store.lookup import Boundary
from aerobee.store.messagestore import MessageStore
from aerobee.testing.clock import START_MS, VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft, make_store, read_queue, small_config

# Store times relative to START_MS: three at 10, two at 30, one at 50.
TIMES = [10, 10, 10, 30, 30, 50]


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


@pytest.fixture
def store(disk: RecordingDisk) -> MessageStore:
    clock = VirtualClock()
    store = make_store(disk, clock=clock)
    store.open()
    now = 0
    for time in TIMES:
        clock.advance((time - now) / 1000)
        now = time
        store.append([draft(b"%d" % time)])
    return store


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [(0, 0, 0), (10, 0, 2), (20, 3, 2), (30, 3, 4), (40, 5, 4), (50, 5, 5), (60, 6, 5)],
)
def test_offset_by_time(store: MessageStore, time: int, lower: int, upper: int) -> None:
    """RocketMQ: ConsumeQueue.binarySearchInQueueByTime, with its own example of t1 t1 t1 t3 t3."""
    assert store.run(store.offset_by_time(b"topic", 0, START_MS + time)) == lower
    assert store.run(store.offset_by_time(b"topic", 0, START_MS + time, Boundary.UPPER)) == upper


def test_times_of_messages(store: MessageStore) -> None:
    assert store.run(store.store_time(b"topic", 0, 3)) == START_MS + 30
    assert store.run(store.store_time(b"topic", 0, 6)) == -1
    assert store.run(store.store_time(b"none", 0, 0)) == -1
    assert store.run(store.earliest_time(b"topic", 0)) == START_MS + 10
    assert store.run(store.earliest_time(b"none", 0)) == -1
    assert store.run(store.offset_by_time(b"none", 0, START_MS)) == 0


def test_a_message_by_its_place(store: MessageStore) -> None:
    for record in read_queue(store):
        data = store.run(store.message_at(record.physical_offset))
        assert data is not None
        assert decode_record(data, 0).body == record.body
    for wrong in (-1, 1, store.log_end, store.log_end + 10_000):
        assert store.run(store.message_at(wrong)) is None


def test_large_messages_and_what_is_not_confirmed(disk: RecordingDisk) -> None:
    store = make_store(disk, small_config(sync=False, segment=1 << 16, max_message_size=20_000))
    store.open(confirm_limit=0)
    item = draft(bytes(range(256)) * 60)
    end = store.append([item])
    assert store.run(store.message_at(0)) is None
    store.set_confirm_limit(end)
    data = store.run(store.message_at(0))
    assert data is not None
    assert decode_record(data, 0).body == item.body


def test_cold_lookups_use_the_reader(disk: RecordingDisk, store: MessageStore) -> None:
    disk.complete_queued()
    done: list[int | StoreError] = []
    store.run(store.offset_by_time(b"topic", 0, START_MS + 30), done.append)
    assert done == []
    disk.run_pending()
    assert done == [3]
    disk.fail(1, "read", path="commitlog")
    store.run(store.offset_by_time(b"topic", 0, START_MS + 30), done.append)
    disk.run_pending()
    assert isinstance(done[1], StoreError)


def test_a_search_passes_over_a_rotten_record(disk: RecordingDisk, store: MessageStore) -> None:
    place = read_queue(store)[3].physical_offset
    disk.rot("/store/commitlog/00000000000000000000", place + 4)
    assert store.run(store.offset_by_time(b"topic", 0, START_MS + 30)) in (3, 4)
    assert store.run(store.offset_by_time(b"topic", 0, START_MS + 50)) == 5
