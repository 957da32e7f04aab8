"""More queues than files may be open: rounds of flushing, the LRU, the table at the end of a round."""

from __future__ import annotations

import pytest

from aerobee.runtime.disk import InlineDisk
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import bodies, draft, make_store, small_config


@pytest.mark.parametrize("real", [True, False])
def test_more_dirty_queues_than_open_files(real: bool, tmp_path: object) -> None:
    disk = InlineDisk() if real else RecordingDisk()
    root = f"{tmp_path}/store" if real else "/store"
    store = make_store(disk, small_config(segment=1 << 16), root=root)
    store.queues.bound(3, 2)
    store.open()
    for number in range(40):
        store.append([draft(b"%d" % number, b"topic", number % 20)])
    store.flush_sinks()
    assert store.fenced is None
    assert store.queues.position() == store.log_end
    for number in range(20):
        assert bodies(store, queue_id=number) == [b"%d" % number, b"%d" % (number + 20)]
    store.append([draft(b"more", b"topic", 7)])
    store.close()
    again = make_store(disk, small_config(segment=1 << 16), root=root)
    report = again.open()
    assert (report.abnormal, report.problems) == (False, [])
    assert bodies(again, queue_id=7) == [b"7", b"27", b"more"]
    again.close()


def test_a_round_claims_only_what_was_there_when_it_began() -> None:
    disk = RecordingDisk()
    store = make_store(disk, small_config(sync=False, segment=1 << 16))
    store.queues.bound(3, 2)
    store.open()
    for number in range(8):
        store.append([draft(b"%d" % number, b"topic", number)])
    began_at = store.log_end
    disk.complete_queued()
    store.flush_sinks()
    assert store.queues.flusher.is_behind
    store.append([draft(b"late", b"topic", 0)])
    disk.run_pending(1)
    assert store.queues.position() == 0  # the first step is durable, the round is not
    disk.run_pending()
    assert store.queues.position() == began_at
    image = disk.kill()
    after = make_store(image, small_config(sync=False, segment=1 << 16))
    after.open()
    assert bodies(after, queue_id=0) == [b"0", b"late"]


def test_the_flush_of_many_queues_is_rarer() -> None:
    disk, clock = RecordingDisk(), VirtualClock()
    store = make_store(disk, small_config(sync=False, segment=1 << 20), clock=clock)
    store.open()
    clock.advance(2.0)
    store.tick()
    for number in range(200):
        store.append([draft(b"x", b"topic", number)])
    clock.advance(1.5)
    store.tick()
    assert len(store.queues.flusher.dirty) == 200
    clock.advance(3.0)
    store.tick()
    assert len(store.queues.flusher.dirty) == 0


def test_a_full_disk_keeps_units_in_memory_until_there_is_space() -> None:
    disk = RecordingDisk()
    store = make_store(disk, small_config(segment=1 << 16))
    store.open()
    for number in range(40):
        store.append([draft(b"%d" % number)])
    disk.fail(1, "write", path="consumequeue", errno=28, times=None)
    store.flush_sinks()
    assert store.queues.position() == 0
    assert len(bodies(store)) == 40
    assert store.fenced is None
    disk.heal()
    store.append([draft(b"more")])
    store.flush_sinks()
    assert store.queues.position() == store.log_end
    assert len(bodies(store)) == 41
    store.close()


def test_queues_whose_ids_end_alike_are_told_apart_and_a_deleted_one_is_gone() -> None:
    store = make_store(RecordingDisk(), small_config(segment=1 << 16))
    store.open()
    keys = [(topic, queue_id) for topic in (b"one", b"two") for queue_id in (0, 16, 32)]
    for number, (topic, queue_id) in enumerate(keys * 2):
        store.append([draft(b"%d" % number, topic, queue_id)])
    for topic, queue_id in keys:
        queue = store.queues.find(topic, queue_id)
        assert queue is not None and (queue.topic, queue.queue_id, queue.next_offset) == (topic, queue_id, 2)
    store.delete_topics([b"one"])
    assert store.queues.find(b"one", 16) is None
    assert store.queues.find(b"two", 16) is not None
    sent = draft(b"first again", b"one", 16)
    store.append([sent])
    assert (sent.queue_offset, store.max_offset(b"one", 16), store.max_offset(b"two", 16)) == (0, 1, 2)
    store.close()
