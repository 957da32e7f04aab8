"""Real files: a storing process killed again and again, and a real file system that fills up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.errors import DiskFullError
from aerobee.runtime.disk import InlineDisk
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.offline.directory import look_at
from aerobee.store.offline.verify import verify
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crashcheck import read_all
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.killtarget import shape_of
from aerobee.testing.recordcases import draft_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 and mount are POSIX")
ROUNDS = 20


def open_here(directory: Path, sync_flush: bool) -> MessageStore:
    config = shape_of(sync_flush).config()
    disk = InlineDisk()
    store = MessageStore(str(directory), config, disk, VirtualClock(), (MessageIndex(disk, str(directory), config),))
    store.open()
    return store


def numbers_of(store: MessageStore) -> list[int]:
    bodies = (record[88 : 88 + int.from_bytes(record[84:88], "big")] for record in read_all(store, b"orders", 0))
    return [int(body.partition(b" ")[0]) for body in bodies]


@pytest.mark.parametrize("sync_flush", [True, False], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_kill_9_loses_nothing_acknowledged(tmp_path: Path, sync_flush: bool) -> None:
    """A process death takes nothing that was written, at any flush level."""
    entropy = SeededEntropy(7)
    last = -1  # the newest acknowledged
    for _ in range(ROUNDS // 2):
        words = [sys.executable, "-m", "aerobee.testing.killtarget", str(tmp_path), "sync" if sync_flush else "async"]
        with subprocess.Popen([*words, str(last + 1)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            lines: list[int] = []
            for _ in range(1 + entropy.below(120)):
                lines.append(int(child.stdout.readline()))
            child.kill()
            lines += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        assert lines == list(range(last + 1, lines[-1] + 1))
        store = open_here(tmp_path, sync_flush)
        found = numbers_of(store)
        assert found[: lines[-1] + 1] == list(range(lines[-1] + 1)), "acknowledged and lost"
        assert found == list(range(len(found))), "out of order or twice"
        assert store.damages == {}
        store.close()
        last = len(found) - 1
    report = verify(look_at(InlineDisk(), str(tmp_path), config=shape_of(sync_flush).config()))
    assert report.findings.problems == []
    assert report.records == last + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=640k", "none", str(mount)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_real_disk_fills_up_and_is_emptied(small_disk: Path) -> None:
    """Refused with DiskFullError and never by a signal; readers go on; writing resumes without a restart."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    store = open_here(small_disk / "store", True)
    sent = 0
    with pytest.raises(DiskFullError):
        while True:
            store.append([draft_of(b"%d " % sent + bytes(900))])
            sent += 1
    for _ in range(3):
        with pytest.raises(DiskFullError):
            store.append([draft_of(b"%d " % sent + bytes(900))])
    assert numbers_of(store) == list(range(sent))
    ballast.unlink()
    for _ in range(60):
        store.append([draft_of(b"%d " % sent + bytes(900))])
        sent += 1
    assert numbers_of(store) == list(range(sent))
    store.close()
    again = open_here(small_disk / "store", True)
    assert numbers_of(again) == list(range(sent))
    again.close()
