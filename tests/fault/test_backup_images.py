"""A backup and a restore that end anywhere: the backup before is whole, and no broker takes a half for the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aerobee.cli.output import exit_code_of
from aerobee.errors import StoreError
from aerobee.runtime.linking import never_link
from aerobee.store.messagestore import MessageStore
from aerobee.store.offline.backup import BackupError, make_backup, restore_backup, verify_backup
from aerobee.store.offline.directory import look_at
from aerobee.store.readonly import REPLICA_FILE
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.faults import CHANGING_KINDS, DiskCall
from aerobee.testing.offlinekit import fill, open_store, seen, written
from aerobee.testing.storekit import ROOT, bodies, make_store, small_config

PLACE = "/backup/one"
TARGET = "/target/one"
COUNT = 45
MODES = (CrashMode.NONE, CrashMode.ALL_BUT_FIRST, CrashMode.LAST_ONLY, CrashMode.RANDOM, CrashMode.SUFFIX)


def back_up(disk: RecordingDisk) -> int:
    """Make a backup and return its mark."""
    return make_backup(seen(disk), PLACE, now_ms=1, release="test", link=never_link).manifest.mark


def grow(disk: RecordingDisk, start: int) -> None:
    store = open_store(disk)
    fill(store, 30, start)
    store.close()


def images_of(disk: RecordingDisk, work: Callable[[], object]) -> Iterator[tuple[str, RecordingDisk]]:
    """Return what a power cut or a killed process leaves after each call that changes the disk."""
    taken: list[tuple[str, RecordingDisk]] = []

    def after(call: DiskCall) -> None:
        if call.kind in CHANGING_KINDS:
            where = f"{call.kind} {call.path}"
            taken.append((f"killed after {where}", disk.kill()))
            taken.extend((f"{mode.value} after {where}", disk.crash(mode, len(taken))) for mode in MODES)

    disk.after_call = after
    work()
    disk.after_call = None
    return iter(taken)


def test_the_backup_before_is_whole_until_the_next_one_is() -> None:
    disk = written(COUNT)
    first = back_up(disk)
    # A backup that was reported survives a power cut.
    assert verify_backup(disk.crash(CrashMode.NONE), PLACE).problems == []
    grow(disk, COUNT)
    marks: list[int] = []
    found = []
    for where, image in images_of(disk, lambda: marks.append(back_up(disk))):
        check = verify_backup(image, PLACE)
        assert check.problems == [], where
        found.append(check.manifest.mark)
        # The next one is made over what this one has left.
    assert set(found) == {first, marks[0]} and first < marks[0]
    assert len(found) > 100


def test_the_backup_before_keeps_its_own_of_a_segment_that_was_written_anew() -> None:
    disk = written(COUNT)
    first = back_up(disk)
    write_anew(disk)
    marks: list[int] = []
    found = set()
    for where, image in images_of(disk, lambda: marks.append(back_up(disk))):
        check = verify_backup(image, PLACE)
        assert check.problems == [], where
        found.add(check.manifest.mark)
    assert found == {first, marks[0]}
    names = [one.path for one in verify_backup(disk, PLACE).manifest.files if one.path.startswith("commitlog/")]
    kept = {path for path in disk.contents() if path.startswith(f"{PLACE}/commitlog/")}
    assert kept == {f"{PLACE}/{name}" for name in names}, "nothing is left of the one before"
    # What has another name now is kept by the next one.
    mark = back_up(disk)
    assert [one.path for one in verify_backup(disk, PLACE).manifest.files if one.path.startswith("commitlog/")] == names
    restore_backup(disk, PLACE, TARGET)
    assert mark == marks[0] and bodies(open_store(disk), b"topic0") == restored(disk)


def test_the_next_backup_is_made_over_what_a_killed_one_has_left() -> None:
    disk = written(COUNT)
    back_up(disk)
    grow(disk, COUNT)
    for number, (where, image) in enumerate(images_of(disk, lambda: back_up(disk))):
        if number % 7 == 0:
            mark = back_up(image)
            check = verify_backup(image, PLACE)
            assert (check.problems, check.manifest.mark) == ([], mark), where


def test_a_store_that_was_restored_half_way_never_starts() -> None:
    disk = written(COUNT)
    back_up(disk)
    whole = bodies(open_store(disk), b"topic0")
    refused = started = 0
    for where, image in images_of(disk, lambda: restore_backup(disk, PLACE, TARGET)):
        if not any(path.startswith(TARGET) for path in image.contents()):
            continue  # nothing of the backup is there
        config = small_config()
        store = make_store(image, config, root=TARGET)
        try:
            store.open()
        except StoreError as error:
            assert "not restored to its end" in error.message, where
            refused += 1
            continue
        assert bodies(store, b"topic0") == whole, where
        started += 1
    assert refused > 20 and started > 0


@pytest.mark.parametrize("look", [lambda disk: look_at(disk, PLACE), lambda disk: make_store(disk, root=PLACE).open()])
def test_a_backup_is_no_store(look: Callable[[RecordingDisk], object]) -> None:
    disk = written(COUNT)
    back_up(disk)
    before = disk.contents()
    with pytest.raises(StoreError, match="is a backup, not a store") as told:
        look(disk)
    # A service manager must not start it again and again.
    assert exit_code_of(told.value) == 2
    assert told.value.hint is not None and f"aerobee store restore {PLACE}" in told.value.hint
    after = {path: entry for path, entry in disk.contents().items() if not path.endswith("/lock")}
    assert after == {path: entry for path, entry in before.items() if not path.endswith("/lock")}


def test_a_backup_is_not_restored_into_itself() -> None:
    disk = written(COUNT)
    back_up(disk)
    with pytest.raises(BackupError, match="lies in the backup"):
        restore_backup(disk, PLACE, f"{PLACE}/again")
    assert seen(disk).root == ROOT


def write_anew(disk: RecordingDisk) -> None:
    """Give up most of the log, as a replica does, and write the first segment again with other records."""
    store = make_store(disk, small_config())
    store.open()
    store.truncate(store.log.start + 1024)
    fill(store, COUNT, COUNT)
    store.close()


def restored(disk: RecordingDisk) -> list[bytes]:
    store = make_store(disk, small_config(), root=TARGET)
    store.open()
    return bodies(store, b"topic0")


@pytest.mark.parametrize("linked", [True, False])
def test_a_segment_that_was_written_anew_is_copied_anew(linked: bool) -> None:
    """A replica that gave up the end of its log has other records under the same name, in a file of the same size."""
    disk = written(COUNT)
    back_up(disk)
    segment = f"{ROOT}/commitlog/00000000000000000000"
    write_anew(disk)
    if linked:
        # What a hard link would have done: the backup's file has the new content already.
        size, data = disk.contents()[segment]
        disk.put(f"{PLACE}/commitlog/00000000000000000000", data.ljust(size, b"\0"))
    back_up(disk)
    assert verify_backup(disk, PLACE).problems == []
    restore_backup(disk, PLACE, TARGET)
    again = make_store(disk, small_config(), root=TARGET)
    again.open()
    assert bodies(again, b"topic0") == bodies(make_open(disk), b"topic0")


def make_open(disk: RecordingDisk) -> MessageStore:
    store = make_store(disk, small_config())
    store.open()
    return store


def test_segments_of_a_replica_are_copied() -> None:
    def link(source: str, target: str) -> bool:
        linked.append(source)
        return False

    linked: list[str] = []
    disk = written(COUNT)
    make_backup(seen(disk), PLACE, now_ms=1, release="test", link=link)
    assert linked
    linked.clear()
    file = disk.open(f"{ROOT}/{REPLICA_FILE}", create=True)
    file.write(0, b"{}")
    file.close()
    make_backup(seen(disk), f"{PLACE}-2", now_ms=1, release="test", link=link)
    assert linked == []
