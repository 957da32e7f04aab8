"""A disk that is nearly full: what stays free, what a stop leaves out, and how it goes on."""

from __future__ import annotations

import errno
import logging

import pytest

from aerobee.errors import DiskFullError, StoreFencedError
from aerobee.store.commitlog import RESERVE_AHEAD, Segments
from aerobee.store.diskrules import kept_free, require_room
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.statefile import StateFile
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import bodies, draft, make_store, small_config

MIB = 1 << 20


@pytest.mark.parametrize(("total", "kept"), [(0, 0), (64 * MIB, 4 * MIB), (128 * MIB, 8 * MIB), (1 << 40, 8 * MIB)])
def test_what_stays_free(total: int, kept: int) -> None:
    assert kept_free(total) == kept


def test_room_is_what_is_left_above_that() -> None:
    disk = RecordingDisk(free_bytes=64 * MIB)
    assert require_room(disk, "/store/x", 60 * MIB) == 60 * MIB
    with pytest.raises(DiskFullError, match="/store/x"):
        require_room(disk, "/store/x", 60 * MIB + 1)


def test_segments_of_a_gibibyte_on_a_disk_of_64_mib() -> None:
    disk = RecordingDisk(free_bytes=64 * MIB)
    segments = Segments(disk, "/store/commitlog", 1 << 30)
    segments.load()
    written = 0
    with pytest.raises(DiskFullError):
        while True:
            segments.prepare(written, 100_000)
            assert disk.free_bytes is not None
            assert disk.free_bytes >= 4 * MIB
            written += 100_000
    assert 59 * MIB < written <= 60 * MIB


def test_a_large_disk_is_reserved_in_large_pieces() -> None:
    disk = RecordingDisk(free_bytes=1 << 40)
    segments = Segments(disk, "/store/commitlog", 1 << 30)
    segments.load()
    segments.prepare(0, 100)
    assert disk.free_bytes == (1 << 40) - RESERVE_AHEAD


def indexed(disk: RecordingDisk) -> MessageStore:
    config = small_config(max_hash_slot_num=200_000, max_index_num=400_000)
    return make_store(disk, config, sinks=(MessageIndex(disk, "/store", config),))


def test_a_stop_without_room_for_the_index_leaves_a_store_that_starts() -> None:
    """Slots are built again from the entries: they must not take what the next start needs."""
    disk = RecordingDisk(free_bytes=600_000)
    store = indexed(disk)
    store.open()
    for number in range(20):
        store.append([draft(b"message %d" % number, keys=f"key{number}")])
    store.flush_sinks()
    disk.free_bytes = 200_000  # the slots would take 800,000
    store.close()
    assert disk.free_bytes > 100_000
    assert not disk.exists("/store/abort")
    again = indexed(disk)
    report = again.open()
    assert report.problems == []
    assert again.index is not None
    assert len(again.index.query("topic", "key7", 10).offsets) == 1
    assert len(bodies(again)) == 20
    disk.free_bytes = 10 * MIB
    again.append([draft(b"more", keys="key7")])
    again.close()
    last = indexed(disk)
    last.open()
    assert last.index is not None
    assert len(last.index.query("topic", "key7", 10).offsets) == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_name_that_could_not_be_made_durable_is_before_the_next_save(number: int) -> None:
    disk = RecordingDisk()
    state = StateFile(disk, "/store/state")
    told: list[object] = []
    state.submit(b'{"a": 1}', told.append)
    disk.fail(1, "sync_dir", errno=number, times=2)
    state.submit(b'{"a": 2}', told.append)
    assert [type(one) for one in told] == [type(None), OSError]
    with pytest.raises(OSError, match=r"store"):
        state.save(b'{"a": 3}')  # the second name is not durable yet: nothing may go over it
    state.save(b'{"a": 3}')
    for image in (disk.kill(), disk.crash(CrashMode.NONE)):
        assert StateFile(image, "/store/state").load(bytes) == b'{"a": 3}'


def test_a_checkpoint_that_was_not_saved_is_tried_again() -> None:
    disk, clock = RecordingDisk(), VirtualClock()
    store = make_store(disk, clock=clock)
    store.open()
    store.append([draft(b"one")])
    fault = disk.fail(1, "open", errno=errno.EMFILE, times=None, path="checkpoint.tmp")
    store.flush_sinks()
    assert fault.hits == 1
    assert store.fenced is None
    before = store.checkpoint.on_disk
    disk.heal()
    clock.advance(5)
    store.append([draft(b"two")])
    store.flush_sinks()
    assert store.checkpoint.on_disk != before
    assert store.checkpoint.on_disk == store.checkpoint.value == store.checkpoint_value()


def test_a_fence_is_said_once_with_the_file_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = RecordingDisk(), VirtualClock()
    store = make_store(disk, clock=clock)
    store.open()
    store.append([draft(b"kept")])
    disk.fail(1, "sync", path="commitlog", times=None)
    logger = logging.getLogger("aerobee.store")
    logger.addHandler(caplog.handler)  # a server of another test may lead all lines elsewhere
    try:
        for _ in range(3):
            if store.fenced is None:
                store.append([draft(b"lost")])
            else:
                with pytest.raises(StoreFencedError):
                    store.append([draft(b"lost")])
            clock.advance(2)
            store.tick()
    finally:
        logger.removeHandler(caplog.handler)
    (line,) = {record.getMessage(): record for record in caplog.records if record.levelno == logging.ERROR}
    assert store.fenced is not None
    assert f"/store/commitlog/{0:020d}" in line
    assert "restart the broker" in line
    assert "Check the disk" in line
