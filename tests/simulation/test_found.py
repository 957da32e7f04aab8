"""Bugs that the simulation found, each in a few lines."""

from __future__ import annotations

from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import bodies, draft, make_store


def test_what_a_failed_sync_left_in_memory_is_safe_after_a_restart() -> None:
    """A failed sync leaves pages that the system takes for clean. The next process reads and serves them, and answers a
    repeat of an idempotent producer from them: they must be on the disk then."""
    disk = RecordingDisk(seed=1)
    store = make_store(disk)
    store.open()
    store.append([draft(b"first")])
    store.tick()
    disk.fail(1, "sync", path="commitlog")
    store.append([draft(b"not acknowledged")])
    store.tick()
    after_kill = disk.kill()
    store = make_store(after_kill)
    store.open()
    assert bodies(store) == [b"first", b"not acknowledged"]
    store = make_store(after_kill.crash(CrashMode.NONE))
    store.open()
    assert bodies(store) == [b"first", b"not acknowledged"]
