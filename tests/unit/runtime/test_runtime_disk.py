from __future__ import annotations

import errno
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from aerobee.errors import DiskFullError, InvalidArgumentError, StoreLockedError
from aerobee.runtime import files
from aerobee.runtime.disk import InlineDisk, RealDisk
from aerobee.runtime.files import naming_full_disk
from aerobee.runtime.paths import join

needs_dev_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")


@needs_dev_full
def test_no_space_is_disk_full_and_names_the_file() -> None:
    file = InlineDisk().open("/dev/full")
    with pytest.raises(DiskFullError, match="/dev/full") as caught:
        file.write(0, b"x")
    assert isinstance(caught.value.__cause__, OSError)
    file.close()


def test_a_quota_is_a_full_disk_and_other_errors_pass() -> None:
    with pytest.raises(DiskFullError), naming_full_disk("f"):
        raise OSError(errno.EDQUOT, "quota")
    with pytest.raises(PermissionError), naming_full_disk("f"):
        raise OSError(errno.EACCES, "no")


def test_a_short_write_is_continued(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(files.os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:7], offset))
    file = InlineDisk().open(str(tmp_path / "a"), create=True)
    file.write(3, bytes(range(50)))
    assert file.read(0, 100) == bytes(3) + bytes(range(50))
    file.close()


def test_a_short_read_is_continued(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    monkeypatch.setattr(files.os, "pread", lambda fd, size, offset: real(fd, min(size, 7), offset))
    file = InlineDisk().open(str(tmp_path / "a"), create=True)
    file.write(0, bytes(range(50)))
    assert file.read(1, 30) == bytes(range(1, 31))
    assert file.read(45, 30) == bytes(range(45, 50))
    file.close()


def test_what_was_never_written_is_passed_over(tmp_path) -> None:
    file = InlineDisk().open(str(tmp_path / "a"), create=True)
    file.truncate(64 << 20)
    file.reserve(0, 1 << 20)
    file.write(40 << 20, b"x")
    assert file.next_data(0) > 30 << 20, "the file system tells of holes, and of what was only reserved"
    for offset in (0, 5000, 40 << 20):
        found = file.next_data(offset)
        assert offset <= found <= 40 << 20
        assert not file.read(offset, found - offset).strip(b"\0")
    assert file.next_data(50 << 20) == 64 << 20
    file.close()


def test_one_sync_serves_every_request_that_waits(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sync is held back; the four requests that come meanwhile share one."""
    synced: list[int] = []
    gate, entered = threading.Event(), threading.Event()

    def sync(fd: int) -> None:
        synced.append(fd)
        entered.set()
        assert gate.wait(10)

    monkeypatch.setattr(files.os, "fdatasync", sync)
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    disk = RealDisk(calls.put)
    file = disk.open(str(tmp_path / "a"), create=True)
    done: list[object] = []
    disk.sync([file], done.append)
    assert entered.wait(10)
    for _ in range(4):
        disk.sync([file], done.append)
    gate.set()
    disk.close()
    while len(done) < 5:
        calls.get(timeout=10)()
    assert len(synced) == 2 and done == [None] * 5
    file.close()


def test_a_failed_sync_is_told_to_all_who_share_it_and_to_none_before(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing: list[int] = []
    gate, entered = threading.Event(), threading.Event()

    def sync(fd: int) -> None:
        entered.set()
        assert gate.wait(10)
        if fd in failing:
            failing.remove(fd)  # the next sync would succeed, as on a real kernel
            raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(files.os, "fdatasync", sync)
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    disk = RealDisk(calls.put)
    good, bad = (disk.open(str(tmp_path / name), create=True) for name in "ab")
    failing.append(bad.pin())
    bad.unpin()
    done: list[object] = []
    disk.sync([good], done.append)
    assert entered.wait(10)
    disk.sync([good], done.append)
    disk.sync([good, bad], done.append)
    disk.sync([bad], done.append)
    gate.set()
    disk.close()
    while len(done) < 4:
        calls.get(timeout=10)()
    assert done[:2] == [None, None]
    assert [getattr(outcome, "errno", None) for outcome in done[2:]] == [errno.EIO, errno.EIO]
    good.close()
    bad.close()


@needs_dev_full
def test_any_error_of_a_sync_passes_as_it_is() -> None:
    disk = InlineDisk()
    file = disk.open("/dev/full")
    done: list[object] = []
    disk.sync([file], done.append)
    assert isinstance(done[0], OSError) and done[0].errno == errno.EINVAL
    file.close()


HOLDER = """
import sys
from aerobee.runtime.disk import InlineDisk
lock = InlineDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_keeps_the_lock_until_it_ends(tmp_path) -> None:
    path = str(tmp_path / "lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match="another process"):
            InlineDisk().lock(path)
        holder.stdin.close()
    InlineDisk().lock(path).release()


def test_a_refused_second_lock_leaves_the_first_in_force(tmp_path) -> None:
    """Closing any descriptor of the file would drop a POSIX lock of this process."""
    path = str(tmp_path / "lock")
    lock = InlineDisk().lock(path)
    with pytest.raises(StoreLockedError):
        InlineDisk().lock(path)
    probe = subprocess.run([sys.executable, "-c", HOLDER, path], stdin=subprocess.DEVNULL, capture_output=True)
    assert b"StoreLockedError" in probe.stderr
    lock.release()


def test_used_ratio_is_what_df_shows(tmp_path) -> None:
    df = subprocess.run(["df", "--output=pcent", str(tmp_path)], capture_output=True, text=True)
    shown = int(df.stdout.split()[-1].rstrip("%"))
    assert abs(InlineDisk().used_ratio(str(tmp_path)) * 100 - shown) <= 2


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b", "/", "../x"])
def test_no_name_leads_out_of_its_directory(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        join("/store", "consumequeue", name)


def test_join_keeps_the_root_as_it_is() -> None:
    assert join("/store", "commitlog", "0") == "/store/commitlog/0"
    assert join("/store/", "%RETRY%g") == "/store/%RETRY%g"
    assert join("/", "a") == "/a"
    assert join("C:/data", "a") == "C:/data/a"
    assert join(".", "a") == "./a"
