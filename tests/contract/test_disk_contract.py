"""What every Disk promises: the real one, the inline one and the recording one, by the same tests."""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aerobee.errors import StoreClosedError, StoreLockedError
from aerobee.runtime.disk import InlineDisk, RealDisk
from aerobee.runtime.seams import Disk, File
from aerobee.testing.disk import RecordingDisk


class Bench:
    """A disk, a directory on it, and a way to wait for what was submitted."""

    def __init__(self, disk: Disk, root: str, calls: queue.Queue[Callable[[], None]] | None) -> None:
        self.disk = disk
        self.root = root
        self.calls = calls

    def path(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def settle(self, done: list[object], count: int = 1) -> None:
        while len(done) < count:
            if isinstance(self.disk, RecordingDisk):
                assert self.disk.run_pending(1) == 1
            else:
                assert self.calls is not None, "an inline disk had not finished"
                self.calls.get(timeout=10)()


@pytest.fixture(params=["real", "inline", "recording", "recording-queued"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    if request.param == "real":
        made = Bench(RealDisk(calls.put), str(tmp_path), calls)
    elif request.param == "inline":
        made = Bench(InlineDisk(), str(tmp_path), None)
    else:
        disk = RecordingDisk()
        if request.param == "recording-queued":
            disk.complete_queued()
        made = Bench(disk, "/store", None)
    yield made
    made.disk.close()


def test_what_was_written_is_read_and_seen_in_the_view(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.truncate(4096)
    view, mapped = file.view(), file.mapped()
    file.write(1000, b"hello")
    file.write(1005, memoryview(bytearray(b" world")))
    assert file.read(1000, 11) == b"hello world"
    assert bytes(view[1000:1011]) == b"hello world"
    assert mapped[1000:1011] == b"hello world"
    assert type(mapped[1000:1011]) is bytes
    assert mapped[4090:5000] == bytes(6)
    assert view.readonly and len(view) == 4096
    assert file.view() is view
    file.close()


def test_a_view_outlives_its_file(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"abcdef")
    part = file.view()[2:4]
    file.close()
    file.close()
    bench.disk.unlink(bench.path("a"))
    assert bytes(part) == b"cd"


def test_the_view_of_an_empty_file_is_empty(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    assert len(file.view()) == 0
    assert file.mapped()[0:1] == b""
    file.close()


def test_reads_end_at_the_end_of_the_file(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"abc")
    assert file.read(1, 100) == b"bc"
    assert file.read(3, 1) == b""
    assert file.read(50, 1) == b""
    assert file.size() == 3
    file.close()


def test_a_hole_and_a_longer_length_read_as_zeros(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(2000, b"x")
    assert file.read(0, 3) == b"\0\0\0" and file.size() == 2001
    file.truncate(3000)
    assert file.read(2000, 2000) == b"x" + bytes(999)
    file.close()


def test_what_was_cut_off_does_not_come_back(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"y" * 2000)
    file.truncate(700)
    assert file.size() == 700
    file.truncate(2000)
    assert file.read(0, 2000) == b"y" * 700 + bytes(1300)
    file.close()


def test_reserving_changes_no_byte_and_makes_the_file_long_enough(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"abc")
    file.reserve(0, 8192)
    assert file.size() == 8192 and file.read(0, 4) == b"abc\0"
    file.close()


def test_two_handles_see_one_file(bench: Bench) -> None:
    one = bench.disk.open(bench.path("a"), create=True)
    two = bench.disk.open(bench.path("a"), write=False)
    one.write(0, b"abc")
    assert two.read(0, 10) == b"abc"
    with pytest.raises(OSError) as caught:
        two.write(0, b"x")
    assert caught.value.errno == errno.EBADF
    one.close()
    two.close()


def test_creating_an_existing_file_keeps_its_contents(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"abc")
    file.close()
    file = bench.disk.open(bench.path("a"), create=True)
    assert file.read(0, 10) == b"abc"
    file.close()


def test_a_closed_file_is_a_bad_descriptor(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.close()
    for use in (
        file.size,
        file.view,
        file.sync,
        lambda: file.read(0, 1),
        lambda: file.write(0, b"x"),
        lambda: file.truncate(1),
        lambda: file.reserve(0, 1),
    ):
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_missing_files_and_directories_are_told_apart(bench: Bench) -> None:
    disk = bench.disk
    for missing in (
        lambda: disk.open(bench.path("none")),
        lambda: disk.open(bench.path("none", "a"), create=True),
        lambda: disk.unlink(bench.path("none")),
        lambda: disk.rename(bench.path("none"), bench.path("b")),
        lambda: disk.remove_dir(bench.path("none")),
        lambda: disk.sync_dir(bench.path("none")),
        lambda: disk.used_ratio(bench.path("none")),
    ):
        with pytest.raises(FileNotFoundError):
            missing()
    assert disk.listdir(bench.path("none")) == []
    disk.make_dirs(bench.path("d"))
    for write in (True, False):
        with pytest.raises(IsADirectoryError):
            disk.open(bench.path("d"), write=write)


def test_directories(bench: Bench) -> None:
    disk = bench.disk
    disk.make_dirs(bench.path("d", "e"))
    disk.make_dirs(bench.path("d", "e"))
    disk.open(bench.path("d", "b"), create=True).close()
    disk.open(bench.path("d", "a"), create=True).close()
    assert disk.listdir(bench.path("d")) == ["a", "b", "e"]
    assert disk.is_dir(bench.path("d", "e")) and not disk.is_dir(bench.path("d", "a"))
    assert disk.exists(bench.path("d", "a")) and not disk.exists(bench.path("d", "c"))
    with pytest.raises(FileExistsError):
        disk.make_dirs(bench.path("d", "a"))
    with pytest.raises(OSError) as caught:
        disk.remove_dir(bench.path("d"))
    assert caught.value.errno == errno.ENOTEMPTY
    disk.remove_dir(bench.path("d", "e"))
    disk.sync_dir(bench.path("d"))
    assert disk.listdir(bench.path("d")) == ["a", "b"]
    assert 0.0 <= disk.used_ratio(bench.root) <= 1.0


def test_rename_replaces_and_moves_directories(bench: Bench) -> None:
    disk = bench.disk
    for name, data in (("new", b"new"), ("old", b"old")):
        file = disk.open(bench.path(name), create=True)
        file.write(0, data)
        file.close()
    disk.rename(bench.path("new"), bench.path("old"))
    disk.make_dirs(bench.path("d"))
    disk.rename(bench.path("old"), bench.path("d", "x"))
    disk.rename(bench.path("d"), bench.path("e"))
    assert disk.listdir(bench.root) == ["e"]
    file = disk.open(bench.path("e", "x"))
    assert file.read(0, 10) == b"new"
    file.close()


def test_an_unlinked_file_stays_readable_through_its_handle(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"abc")
    bench.disk.unlink(bench.path("a"))
    assert file.read(0, 3) == b"abc" and not bench.disk.exists(bench.path("a"))
    file.close()


def test_a_lock_is_held_once_until_released(bench: Bench) -> None:
    lock = bench.disk.lock(bench.path("lock"))
    for _ in range(2):  # the refused attempt must not drop the lock
        with pytest.raises(StoreLockedError):
            bench.disk.lock(bench.path("lock"))
    lock.release()
    lock.release()
    bench.disk.lock(bench.path("lock")).release()
    file = bench.disk.open(bench.path("lock"))
    assert file.read(0, 10) == b"lock"
    file.close()


def test_syncs_are_done_in_the_order_asked(bench: Bench) -> None:
    files = [bench.disk.open(bench.path(str(number)), create=True) for number in range(3)]
    done: list[object] = []

    def sync(number: int, file: File) -> None:
        bench.disk.sync([file, files[0]], lambda error: done.append((number, error)))

    for number, file in enumerate(files):
        file.write(0, b"x")
        sync(number, file)
    bench.settle(done, 3)
    assert done == [(0, None), (1, None), (2, None)]
    for file in files:
        file.sync()
        file.close()


def test_a_file_closed_after_its_sync_was_asked_for_is_synced(bench: Bench) -> None:
    done: list[object] = []
    for _ in range(20):
        file = bench.disk.open(bench.path("a"), create=True)
        file.write(0, b"x" * 5000)
        bench.disk.sync([file], done.append)
        bench.disk.read(file, 0, 1, done.append)
        file.close()
    bench.settle(done, 40)
    assert done.count(None) == 20 and done.count(b"x") == 20


def test_a_sync_or_read_of_a_closed_file_is_told_to_done(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.close()
    done: list[object] = []
    bench.disk.sync([file], done.append)
    bench.disk.read(file, 0, 1, done.append)
    bench.settle(done, 2)
    assert [getattr(error, "errno", None) for error in done] == [errno.EBADF, errno.EBADF]


def test_reads_come_to_done_in_the_order_asked(bench: Bench) -> None:
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, bytes(range(100)))
    done: list[object] = []
    for at in range(10):
        bench.disk.read(file, at * 10, 20, done.append)
    bench.settle(done, 10)
    assert done == [bytes(range(100))[at * 10 : at * 10 + 20] for at in range(10)]
    file.close()


def test_close_finishes_what_was_submitted_and_refuses_more(bench: Bench) -> None:
    if isinstance(bench.disk, InlineDisk) and not isinstance(bench.disk, RealDisk):
        pytest.skip("an inline disk has nothing under way")
    file = bench.disk.open(bench.path("a"), create=True)
    file.write(0, b"abc")
    done: list[object] = []
    bench.disk.sync([file], done.append)
    bench.disk.read(file, 0, 3, done.append)
    bench.disk.close()
    bench.settle(done, 2)
    assert set(done) == {None, b"abc"}
    with pytest.raises(StoreClosedError):
        bench.disk.sync([file], done.append)
    with pytest.raises(StoreClosedError):
        bench.disk.read(file, 0, 1, done.append)
    file.close()
