"""Inspect tells what is there without reading all of it."""

from __future__ import annotations

from aerobee.store.offline.inspect import inspect
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.offlinekit import fill, open_store, seen, written
from aerobee.testing.storekit import ROOT, draft, read_queue, small_config


def test_segments_queues_index_and_state() -> None:
    disk = RecordingDisk()
    clock = VirtualClock()
    store = open_store(disk, clock=clock)
    fill(store, 100, clock=clock)
    store.close()
    disk.put(f"{ROOT}/config/topics.json", b"{")
    disk.put(f"{ROOT}/stray", b"")
    report = inspect(seen(disk))
    assert (report.log_start, report.log_end) == (0, store.log_end)
    assert not report.is_live
    assert not report.has_abort
    assert report.is_ours
    assert [(segment.start, segment.end) for segment in report.segments] == [
        (0, 4096),
        (4096, 8192),
        (8192, 12288),
        (12288, store.log_end),
    ]
    for earlier, later in zip(report.segments, report.segments[1:], strict=False):
        assert later.first_store_timestamp - earlier.last_store_timestamp == 700
    assert [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in report.queues] == [
        ("topic0", 0, 0, 50),
        ("topic1", 0, 0, 50),
    ]
    assert [file.header.count for file in report.index_files] == [400, 2]
    assert report.checkpoint is not None
    assert report.checkpoint.confirm_phy_offset == store.log_end
    bad = [file for file in report.state_files if file.problem]
    assert [file.name for file in bad] == ["topics.json"]
    assert [other.name for other in report.others] == ["stray"]


def test_expired_units_are_below_the_minimum() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, 100)
    store.delete_oldest_segment()
    report = inspect(seen(disk, holder=1))
    assert report.is_live
    assert report.log_start == 4096
    store.close()
    report = inspect(seen(disk))
    queue = report.queues[0]
    first = next(iter(read_queue(open_store(disk), b"topic0")))
    assert queue.min_offset == first.queue_offset > 0
    assert queue.max_offset == 50


def test_a_large_last_record_and_an_empty_store() -> None:
    config = small_config(segment=4 << 20, max_message_size=3 << 20)
    disk = RecordingDisk()
    store = open_store(disk, config)
    store.append([draft(b"a")])
    store.append([draft(bytes(2 << 20))])
    store.close()
    report = inspect(seen(disk))
    assert report.log_end == store.log_end
    empty = RecordingDisk()
    open_store(empty).close()
    report = inspect(seen(empty))
    assert (report.segments, report.queues, report.log_end) == ([], [], 0)


def test_nothing_is_changed() -> None:
    disk = written(45)
    before = disk.contents()
    inspect(seen(disk))
    assert disk.contents() == before
