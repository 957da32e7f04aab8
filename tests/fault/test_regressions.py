"""What the crash images have found, each as small as it can be shown."""

from __future__ import annotations

from aerobee.store.checkpoint import CheckpointFile
from aerobee.store.durablemark import DurableMark
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.faults import DiskCall
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import ROOT, Shape

FIRST = f"{ROOT}/commitlog/00000000000000000000"
CLOCK = VirtualClock()


def shape_of(units_per_file: int = 5) -> Shape:
    return Shape(
        sync_flush=True,
        segment_size=4096,
        units_per_file=units_per_file,
        with_index=False,
        late_syncs=True,
        queue_count=1,
        topic_count=1,
    )


def test_a_table_never_speaks_of_units_whose_sync_is_still_under_way() -> None:
    """A blocking save came while a round was being synced, and found nothing left to sync."""
    disk, shape = RecordingDisk(), shape_of(units_per_file=90)
    store = shape.store(disk, CLOCK)
    store.open()
    for number in range(60):
        if number == 30:
            store.flush_sinks()
            disk.sync_everything()
        store.append([draft_of(b"%d" % number)])
    disk.complete_queued()
    store.flush_sinks()  # the units are written, their sync waits
    store.queues.flusher.save()
    after = shape.store(disk.crash(CrashMode.NONE), CLOCK)
    assert after.open().problems == []
    assert len(read_all(after, b"orders", 0)) == 60


def test_a_removed_queue_file_does_not_come_back_below_a_new_one() -> None:
    """Recovery removes a torn file and writes a new one of that name; without a sync of the directory a power cut
    brings the torn one back, and the table believes it."""
    disk, shape = RecordingDisk(), shape_of()
    store = shape.store(disk, CLOCK)
    store.open()
    for number in range(3):
        store.append([draft_of(b"%d" % number)])
    image = disk.crash(CrashMode.NONE)
    queue = store.queues.find(b"orders", 0)
    assert queue is not None
    torn = bytearray(queue.units(0, 3))
    torn[:8] = bytes(8)  # the place of the first; what the newest says is right
    torn[20:28] = bytes(8)
    image.put(f"{ROOT}/consumequeue/orders/0/{0:020d}", bytes(torn).ljust(100, b"\0"))
    again = shape.store(image, CLOCK)
    again.open()
    assert len(read_all(again, b"orders", 0)) == 3
    for seed in range(10):
        cut = shape.store(image.crash(CrashMode.RANDOM, seed), CLOCK)
        cut.open()
        assert len(read_all(cut, b"orders", 0)) == 3


def test_a_rebuilding_that_is_cut_short_is_begun_again() -> None:
    """The old table says that the units are there; half of them are written when the power fails."""
    disk, shape = RecordingDisk(), shape_of(units_per_file=90)
    store = shape.store(disk, CLOCK)
    store.open()
    for number in range(60):
        store.append([draft_of(b"%d" % number)])
    store.close()
    path = f"{ROOT}/consumequeue/orders/0/{0:020d}"
    disk.unlink(path)
    disk.sync_everything()
    images: list[RecordingDisk] = []

    def after_call(call: DiskCall) -> None:
        count = 60 if "/consumequeue/" in call.path and call.kind in ("write", "truncate") else 1
        taken = disk.crash_images(len(images), per_mode=count, modes=[CrashMode.RANDOM])
        images.extend(image.disk for image in taken)

    disk.after_call = after_call
    shape.store(disk, CLOCK).open()
    disk.after_call = None
    assert len(images) > 100
    for image in images:
        after = shape.store(image, CLOCK)
        after.open()
        assert len(read_all(after, b"orders", 0)) == 60


def test_a_torn_checksum_does_not_pass_for_none() -> None:
    """Bytes of the checksum itself were lost: the record must not be taken for one that never had a checksum."""
    disk, shape = RecordingDisk(), shape_of()
    store = shape.store(disk, CLOCK)
    store.open()
    store.append([draft_of(b"first", properties={"KEYS": "a"})])
    disk.complete_queued()
    begin = store.log_end
    end = store.append([draft_of(b"second", properties={"KEYS": "abcdefghijklmnop"})])
    whole = store.read_log(begin, end - begin)
    for lost in ((-20, -19, -12, -10, -5, -30, -35), (-12, -10, -5), (-21, -9, -8), (-21, -30), (-12, -11)):
        data = bytearray(whole)
        for place in lost:
            data[place] = 0
        image = disk.crash(CrashMode.NONE)
        image.open(FIRST).write(begin, bytes(data))
        after = shape.store(image, CLOCK)
        report = after.open()
        assert (after.log_end, report.damages) == (begin, []), lost


def test_expired_numbers_outlive_a_truncation_that_is_cut_short() -> None:
    disk, shape = RecordingDisk(), shape_of()
    store = shape.store(disk, CLOCK)
    store.open()
    for number in range(3):
        store.append([draft_of(b"old %d" % number, b"old")])
    for number in range(12):
        store.append([draft_of(b"%d" % number + bytes(900))])
    assert store.delete_oldest_segment()
    last = int.from_bytes(read_all(store, b"orders", 0)[-1][28:36], "big")
    images: list[RecordingDisk] = []
    disk.after_call = lambda call: images.extend(image.disk for image in disk.crash_images(len(images)))
    store.truncate(last)
    for image in images:
        for path in [path for path in image.contents() if "/consumequeue/old/" in path]:
            image.unlink(path)
        after = shape.store(image, CLOCK)
        after.open()
        assert after.max_offset(b"old", 0) == 3


def test_after_a_power_cut_the_store_is_still_known_as_ours() -> None:
    """Mark and checkpoint are written one after the other, each second; any cut must leave a pair that fits."""
    disk, shape, clock = RecordingDisk(), shape_of(), VirtualClock()
    disk.complete_queued()
    store = shape.store(disk, clock)
    store.open()
    images: list[RecordingDisk] = []
    disk.after_call = lambda call: images.extend(image.disk for image in disk.crash_images(len(images)))
    for number in range(12):
        store.append([draft_of(b"%d" % number)])
        clock.advance(1.5)
        store.tick()
        disk.run_pending(3)
    for image in images:
        mark = DurableMark(image, f"{ROOT}/config")
        mark.peek()
        assert mark.believes(CheckpointFile(image, f"{ROOT}/checkpoint").value.encode())
