from __future__ import annotations

import asyncio
import errno

import pytest

from aerobee.errors import DiskFullError
from aerobee.runtime.tasks import LoopTimers
from aerobee.testing.crash import CrashMode, NamesMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.faults import DiskCall
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.platter import SECTOR, NameChange, SectorWrite

PATH = "/store/log"


def _disk_with_log(size: int = 4 * SECTOR) -> RecordingDisk:
    """A durable file of zeros."""
    disk = RecordingDisk()
    disk.put(PATH, bytes(size))
    return disk


def _read(disk: RecordingDisk, path: str = PATH) -> bytes:
    file = disk.open(path)
    data = file.read(0, file.size())
    file.close()
    return data


def _letters(disk: RecordingDisk) -> str:
    """The first byte of each sector; a dot for zero."""
    data = _read(disk)
    return "".join(chr(data[at]) if data[at] else "." for at in range(0, len(data), SECTOR))


def _write_abcd(disk: RecordingDisk) -> None:
    file = disk.open(PATH)
    for sector, letter in enumerate(b"abcd"):
        file.write(sector * SECTOR, bytes([letter]) * SECTOR)
    file.close()


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        (CrashMode.NONE, {"...."}),
        (CrashMode.ALL, {"abcd"}),
        (CrashMode.ALL_BUT_FIRST, {".bcd"}),
        (CrashMode.LAST_ONLY, {"...d"}),
        (CrashMode.PREFIX, {"....", "a...", "ab..", "abc.", "abcd"}),
        (CrashMode.SUFFIX, {"....", "...d", "..cd", ".bcd", "abcd"}),
    ],
)
def test_the_modes_of_a_power_cut(mode: CrashMode, left: set[str]) -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    assert {_letters(disk.crash(mode, seed)) for seed in range(60)} == left
    assert _letters(disk) == "abcd"


def test_a_random_cut_reaches_every_subset() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    assert len({_letters(disk.crash(CrashMode.RANDOM, seed)) for seed in range(600)}) == 16


@pytest.mark.parametrize("mode", [CrashMode.TORN, CrashMode.TORN_RANDOM])
def test_a_torn_sector_mixes_old_and_new_bytes(mode: CrashMode) -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    mixed = 0
    for seed in range(50):
        data = _read(disk.crash(mode, seed))
        for sector, letter in enumerate(b"abcd"):
            found = set(data[sector * SECTOR : (sector + 1) * SECTOR])
            assert found <= {0, letter}
            mixed += len(found) == 2
    assert mixed > 10


def test_a_seed_gives_one_image() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    for mode in CrashMode:
        assert disk.crash(mode, 9).contents() == disk.crash(mode, 9).contents()
    assert disk.crash(CrashMode.RANDOM).contents() == disk.crash(CrashMode.RANDOM, disk.seed).contents()


def test_a_sector_written_twice_may_show_its_first_version() -> None:
    disk = _disk_with_log(SECTOR)
    file = disk.open(PATH)
    file.write(0, b"1")
    file.write(1, b"2")
    assert {_read(disk.crash(CrashMode.RANDOM, seed))[:2] for seed in range(50)} == {b"\0\0", b"1\0", b"12"}


def test_what_was_synced_survives_every_cut() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    file = disk.open(PATH)
    file.sync()
    file.write(0, b"A")
    for image in disk.crash_images(per_mode=20):
        assert _letters(image.disk) in ("abcd", "Abcd")
        assert _letters(disk.crash(image.mode, image.seed)) == _letters(image.disk)


def test_images_cover_every_mode_and_are_one_where_nothing_is_at_stake() -> None:
    disk = _disk_with_log()
    assert [image.mode for image in disk.crash_images(per_mode=5)] == [CrashMode.NONE]
    _write_abcd(disk)
    modes = [image.mode for image in disk.crash_images(per_mode=5)]
    assert set(modes) == set(CrashMode) and len(modes) == 4 + 5 * 5


def test_unsynced_lists_the_changes_and_any_of_them_can_be_kept() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    changes = disk.unsynced()
    assert [change.sector for change in changes if isinstance(change, SectorWrite)] == [0, 1, 2, 3]
    assert _letters(disk.crash_keeping({changes[1].seq, changes[3].seq})) == ".b.d"
    torn = disk.crash_keeping({changes[0].seq}, {changes[0].seq: b"\1" * 5 + bytes(SECTOR - 5)})
    assert _read(torn)[:6] == b"aaaaa\0"


def test_a_length_is_lost_apart_from_its_bytes() -> None:
    disk = RecordingDisk()
    disk.put(PATH, b"ab")
    disk.open(PATH).write(2, b"cd")
    seen = {_read(disk.crash(CrashMode.RANDOM, seed)) for seed in range(60)}
    assert seen == {b"ab", b"ab\0\0", b"abcd"}


def test_a_lost_shortening_takes_the_later_writes_along() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    file = disk.open(PATH)
    file.sync()
    file.truncate(SECTOR)
    file.write(SECTOR, b"B" * SECTOR)
    seen = {_letters(disk.crash(CrashMode.RANDOM, seed)) for seed in range(100)}
    assert seen == {"abcd", "a", "a.", "aB"}
    file.sync()
    assert _letters(disk.crash(CrashMode.NONE)) == "aB"


def test_a_name_is_durable_after_sync_dir_only() -> None:
    disk = RecordingDisk()
    file = disk.open(PATH, create=True)
    file.write(0, b"abc")
    file.sync()
    assert not disk.crash(CrashMode.NONE).exists(PATH)
    disk.sync_dir("/store")
    assert _read(disk.crash(CrashMode.NONE)) == b"abc"
    disk.unlink(PATH)
    assert disk.crash(CrashMode.NONE).exists(PATH) and not disk.crash(CrashMode.ALL).exists(PATH)
    disk.sync_dir("/store")
    assert not disk.crash(CrashMode.NONE).exists(PATH)


def test_a_directory_needs_its_parent_synced() -> None:
    disk = RecordingDisk()
    disk.make_dirs("/store/a/b")
    disk.open("/store/a/b/f", create=True).close()
    disk.sync_dir("/store/a/b")
    disk.sync_dir("/store/a")
    assert disk.crash(CrashMode.NONE).listdir("/store") == []
    disk.sync_dir("/store")
    assert disk.crash(CrashMode.NONE).listdir("/store/a/b") == ["f"]


def test_a_rename_replaces_whole_or_not_at_all() -> None:
    disk = RecordingDisk()
    disk.put("/store/config", b"old")
    disk.put("/store/config.tmp", b"new")
    disk.rename("/store/config.tmp", "/store/config")
    seen = set()
    for seed in range(20):
        image = disk.crash(CrashMode.RANDOM, seed)
        seen.add((_read(image, "/store/config"), tuple(image.listdir("/store"))))
    assert seen == {(b"old", ("config", "config.tmp")), (b"new", ("config",))}


def test_a_replaced_file_whose_contents_were_not_synced_can_be_empty() -> None:
    """The classic mistake: rename before fsync."""
    disk = RecordingDisk()
    disk.put("/store/config", b"old")
    file = disk.open("/store/config.tmp", create=True)
    file.write(0, b"new")
    file.close()
    disk.rename("/store/config.tmp", "/store/config")
    disk.sync_dir("/store")
    assert {_read(disk.crash(CrashMode.RANDOM, seed), "/store/config") for seed in range(60)} == {
        b"", b"\0\0\0", b"new",
    }  # fmt: skip


def test_a_move_between_directories_may_leave_both_names() -> None:
    disk = RecordingDisk()
    disk.make_dirs("/store/to")
    disk.put("/store/f", b"x")
    disk.rename("/store/f", "/store/to/f")
    disk.sync_dir("/store/to")
    image = disk.crash(CrashMode.NONE)
    assert image.exists("/store/f") and image.exists("/store/to/f")
    disk.sync_dir("/store")
    assert not disk.crash(CrashMode.NONE).exists("/store/f")


def test_names_can_be_chosen_apart_from_contents() -> None:
    disk = RecordingDisk()
    disk.open(PATH, create=True).write(0, b"x")
    assert _read(disk.crash(CrashMode.NONE, names=NamesMode.ALL)) == b""
    assert not disk.crash(CrashMode.ALL, names=NamesMode.NONE).exists(PATH)
    assert isinstance(disk.unsynced()[0], NameChange)


def test_a_failed_sync_forgets_and_its_retry_lies() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    file = disk.open(PATH)
    disk.fail(1, "sync")
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert _letters(disk) == "abcd"
    assert _letters(disk.kill()) == "abcd"
    assert {_letters(image.disk) for image in disk.crash_images(per_mode=5)} == {"...."}
    file.write(SECTOR + 1, b"!")  # a sector written again is written whole
    file.sync()
    assert _letters(disk.crash(CrashMode.NONE)) == ".b.."


def test_a_failed_sync_dir_forgets_too() -> None:
    disk = RecordingDisk()
    disk.open(PATH, create=True).close()
    disk.fail(1, "sync_dir")
    with pytest.raises(OSError):
        disk.sync_dir("/store")
    disk.sync_dir("/store")
    assert disk.exists(PATH) and not disk.crash(CrashMode.ALL).exists(PATH)


def test_a_sync_that_lies_makes_nothing_durable() -> None:
    disk = _disk_with_log()
    _write_abcd(disk)
    disk.lie_about_sync(1)
    file = disk.open(PATH)
    file.sync()
    assert _letters(disk.crash(CrashMode.NONE)) == "...."
    file.sync()
    assert _letters(disk.crash(CrashMode.NONE)) == "abcd"


def test_a_killed_process_leaves_everything_and_nothing_more_durable() -> None:
    disk = RecordingDisk()
    file = disk.open(PATH, create=True)
    file.write(0, b"abc")
    lock = disk.lock("/store/lock")
    image = disk.kill()
    image.lock("/store/lock").release()
    assert _read(image) == b"abc"
    assert not image.crash(CrashMode.NONE).exists(PATH)
    image.sync_dir("/store")
    assert _read(image.crash(CrashMode.NONE)) == b""
    image.open(PATH).sync()
    assert _read(image.crash(CrashMode.NONE)) == b"abc"
    assert not disk.crash(CrashMode.NONE).exists(PATH)
    lock.release()


def test_every_call_can_fail_in_turn() -> None:
    """The loop that fault tests are built on: fail call 1, call 2, ... until nothing is left to fail."""

    def work(disk: RecordingDisk) -> None:
        disk.make_dirs("/store/d")
        file = disk.open("/store/d/f", create=True)
        file.truncate(100)
        file.reserve(0, 100)
        file.write(0, b"x")
        file.read(0, 1)
        file.sync()
        file.close()
        disk.rename("/store/d/f", "/store/f")
        disk.sync_dir("/store")
        disk.unlink("/store/f")
        disk.remove_dir("/store/d")

    failed = []
    for nth in range(1, 100):
        disk = RecordingDisk()
        fault = disk.fail(nth)
        try:
            work(disk)
        except OSError as error:
            assert error.errno == errno.EIO and disk.calls == nth and fault.hits == 1
            failed.append(disk.trace[-1].kind)
        else:
            assert fault.hits == 0
            break
    assert failed == [
        "make_dirs", "open", "truncate", "reserve", "write", "read", "sync",
        "rename", "sync_dir", "unlink", "remove_dir",
    ]  # fmt: skip
    assert disk.counts["write"] == 1 and disk.trace[4] == DiskCall(5, "write", "/store/d/f", 0, 1)


def test_faults_by_kind_path_and_from_a_call_on() -> None:
    disk = RecordingDisk()
    one, two = disk.open("/store/one", create=True), disk.open("/store/two", create=True)
    disk.fail(2, "write", errno=errno.ENOSPC, times=None, path="one")
    one.write(0, b"x")
    two.write(0, b"x")
    two.write(1, b"x")
    for _ in range(3):
        with pytest.raises(DiskFullError):
            one.write(1, b"x")
    disk.heal()
    one.write(1, b"x")
    disk.fail(1, "sync", errno=errno.ENOSPC)
    with pytest.raises(OSError):
        one.sync()
    with pytest.raises(ValueError):
        disk.fail(1, "wriet")
    with pytest.raises(ValueError):
        disk.fail(0)


def test_a_failing_write_may_leave_its_beginning() -> None:
    disk = _disk_with_log(SECTOR)
    disk.fail(1, "write", errno=errno.ENOSPC, partial_bytes=3)
    with pytest.raises(DiskFullError):
        disk.open(PATH).write(0, b"abcdef")
    assert _read(disk)[:6] == b"abc\0\0\0"


def test_reads_can_be_wrong_short_or_fail() -> None:
    disk = RecordingDisk()
    disk.put(PATH, b"abcdef")
    file = disk.open(PATH)
    disk.flip_read(1, bit=9)
    assert file.read(0, 6) == b"a`cdef" and file.read(0, 6) == b"abcdef"
    disk.short_read(1, size=2)
    assert file.read(0, 6) == b"ab"
    disk.fail(1, "read")
    done: list[object] = []
    disk.read(file, 0, 6, done.append)
    disk.read(file, 0, 6, done.append)
    assert isinstance(done[0], OSError) and done[1] == b"abcdef"


def test_rot_is_seen_everywhere_and_stays() -> None:
    disk = RecordingDisk()
    disk.put(PATH, b"abc")
    view = disk.open(PATH).view()
    disk.rot(PATH, 1, 0x03)
    assert bytes(view) == b"aac" == _read(disk) == _read(disk.crash(CrashMode.NONE)) == _read(disk.kill())
    with pytest.raises(ValueError):
        disk.rot(PATH, 3)


def test_space_runs_out_and_comes_back() -> None:
    disk = RecordingDisk(free_bytes=1000)
    one, two = disk.open("/store/one", create=True), disk.open("/store/two", create=True)
    one.truncate(1 << 30)
    one.reserve(0, 600)
    with pytest.raises(DiskFullError):
        two.write(0, bytes(401))
    two.write(0, bytes(400))
    one.write(0, bytes(600))
    with pytest.raises(DiskFullError):
        one.write(5000, b"x")
    assert disk.used_ratio("/store") == 1.0
    two.close()
    disk.unlink("/store/two")
    one.write(5000, b"x")
    assert disk.used_ratio("/store") == pytest.approx(0.601)
    disk.used_share = 0.9
    assert disk.used_ratio("/store") == 0.9


def test_a_hook_sees_each_step_and_may_take_images() -> None:
    disk = RecordingDisk()
    seen: list[tuple[str, bytes]] = []

    def look(call: DiskCall) -> None:
        image = disk.crash(CrashMode.NONE)
        seen.append((call.kind, _read(image) if image.exists(PATH) else b"-"))

    disk.after_call = look
    file = disk.open(PATH, create=True)
    disk.sync_dir("/store")
    file.write(0, b"a")
    disk.sync([file], lambda error: None)
    disk.fail(1, "sync")
    file.write(0, b"b")
    disk.sync([file], lambda error: None)
    assert seen == [
        ("open", b"-"), ("sync_dir", b""), ("write", b""), ("sync", b"a"), ("write", b"a"), ("sync", b"a"),
    ]  # fmt: skip


def test_a_queued_sync_covers_what_was_written_before_it() -> None:
    disk = _disk_with_log()
    file = disk.open(PATH)
    disk.complete_queued()
    done: list[object] = []
    file.write(0, b"a")
    disk.sync([file], done.append)
    file.write(SECTOR, b"b")
    assert done == [] and disk.pending_count == 1 and _letters(disk.crash(CrashMode.NONE)) == "...."
    assert disk.run_pending() == 1
    assert done == [None] and _letters(disk.crash(CrashMode.NONE)) == "a..."


def test_syncs_complete_on_virtual_time_in_order() -> None:
    async def main(loop: VirtualLoop) -> None:
        disk = _disk_with_log()
        file = disk.open(PATH)
        delays = iter([0.5, 0.1, 0.2, 0.3])
        disk.complete_by(LoopTimers(loop), lambda: next(delays))
        done: list[tuple[str, float]] = []
        disk.sync([file], lambda error: done.append(("first", round(loop.time(), 6))))
        disk.sync([file], lambda error: done.append(("second", round(loop.time(), 6))))
        disk.read(file, 0, 1, lambda outcome: done.append(("read", round(loop.time(), 6))))
        assert done == []
        await asyncio.sleep(2)
        assert done == [("read", 0.1), ("first", 0.5), ("second", 0.7)]

    run_virtual(main)


def test_a_huge_sparse_file_costs_what_is_written() -> None:
    disk = RecordingDisk()
    file = disk.open(PATH, create=True)
    file.truncate(1 << 30)
    view = file.view()
    file.write(900 << 20, b"deep")
    assert bytes(view[900 << 20 : (900 << 20) + 4]) == b"deep"
    disk.sync_everything()
    image = disk.crash(CrashMode.NONE)
    found = image.open(PATH)
    assert found.size() == 1 << 30 and found.read((900 << 20) - 1, 6) == b"\0deep\0"


def test_a_mapped_file_keeps_its_length() -> None:
    disk = _disk_with_log(SECTOR)
    file = disk.open(PATH)
    file.view()
    with pytest.raises(ValueError, match="mapped"):
        file.write(SECTOR, b"x")
    with pytest.raises(ValueError, match="mapped"):
        file.truncate(1)
    file.close()
    file = disk.open(PATH)
    file.write(SECTOR, b"x")
    assert file.size() == SECTOR + 1


def test_an_image_can_be_written_out(tmp_path) -> None:
    disk = RecordingDisk()
    disk.put("/store/d/f", b"abc")
    disk.open("/store/d/f").truncate(10)
    disk.export(str(tmp_path))
    assert (tmp_path / "store" / "d" / "f").read_bytes() == b"abc" + bytes(7)


def _forgotten(data: bytes) -> RecordingDisk:
    """A file that was empty, and whose first write a failed sync has forgotten."""
    disk = RecordingDisk()
    disk.put(PATH, b"")
    file = disk.open(PATH)
    file.write(0, data)
    disk.fail(1, "sync")
    with pytest.raises(OSError):
        file.sync()
    return disk


def test_a_length_outlives_a_failed_sync_and_shows_zeros() -> None:
    disk = _forgotten(b"abcd")
    assert _read(disk.crash(CrashMode.NONE)) == b""
    disk.open(PATH).sync()
    assert _read(disk.crash(CrashMode.NONE)) == bytes(4)


def test_a_forgotten_sector_that_was_rewritten_is_not_forgotten() -> None:
    disk = _forgotten(b"abcd")
    file = disk.open(PATH)
    file.write(0, b"X")
    file.sync()
    assert _read(disk.kill()) == b"Xbcd" == _read(disk.crash(CrashMode.NONE))


def test_a_forgotten_sector_that_was_cut_off_does_not_come_back() -> None:
    disk = _forgotten(b"abcd")
    file = disk.open(PATH)
    file.truncate(0)
    file.sync()
    file.truncate(4)
    assert _read(disk.kill()) == bytes(4)


def test_a_sector_forgotten_after_a_shortening_is_not_cut_by_it() -> None:
    disk = RecordingDisk()
    disk.put(PATH, b"old")
    file = disk.open(PATH)
    file.truncate(0)
    file.write(0, b"new")
    disk.fail(1, "sync")
    with pytest.raises(OSError):
        file.sync()
    assert _read(disk.kill()) == b"new"
