"""Old records that the system still has in memory are served at once, checked like any other."""

import os
from pathlib import Path

import pytest

from aerobee.runtime.disk import RealDisk
from aerobee.store.reads import GetMessageStatus
from aerobee.testing.storekit import draft, make_store, small_config

needs_nowait = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot be told not to wait")


@needs_nowait
def test_what_is_in_the_page_cache_is_not_cold(tmp_path: Path) -> None:
    disk = RealDisk(lambda done: done())
    store = make_store(disk, small_config(sync=False, segment=1 << 16), root=str(tmp_path))
    store.open()
    for number in range(60):
        store.append([draft(b"%d" % number * 50, b"topic", number % 3)])
    store.reads.hot_bytes = 0
    assert store.get_messages(b"topic", 1, 4, 10).count == 8  # maxTransferCountOnMessageInDisk
    store.reads.memory_bytes = 1 << 40
    result = store.get_messages(b"topic", 1, 4, 10)
    assert (result.status, result.queue_offsets) == (GetMessageStatus.FOUND, list(range(4, 14)))
    store.reads.hot_bytes = 1 << 40
    assert b"".join(store.get_messages(b"topic", 1, 4, 10).buffers) == b"".join(result.buffers)
    store.close()
    disk.close()


@needs_nowait
def test_a_rotten_record_in_the_page_cache_is_not_served(tmp_path: Path) -> None:
    disk = RealDisk(lambda done: done())
    store = make_store(disk, small_config(sync=False, segment=1 << 16), root=str(tmp_path))
    store.open()
    drafts = [draft(b"x" * 100, b"topic", 0) for _ in range(3)]
    store.append(drafts)
    path = next((tmp_path / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[drafts[1].physical_offset + 100] ^= 1
    path.write_bytes(content)
    store.reads.hot_bytes = 0
    store.reads.trusted_from = 1 << 40
    result = store.get_messages(b"topic", 0, 0, 10)
    assert (result.status, result.queue_offsets, result.damaged) == (GetMessageStatus.FOUND, [0, 2], 1)
    store.close()
    disk.close()
