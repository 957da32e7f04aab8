"""Repair gives back queues and index as the log has them, and can be cut short anywhere."""

from __future__ import annotations

import pytest

from aerobee.store.offline.repair import WORK_DIRECTORY, repair
from aerobee.testing.crash import FIXED_MODES
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.faults import DiskCall
from aerobee.testing.offlinekit import fill, open_store, seen, verified, written
from aerobee.testing.storekit import ROOT, bodies, draft, small_config

CONFIG = small_config()


def remove_tree(disk: RecordingDisk, path: str) -> None:
    if not disk.is_dir(path):
        disk.unlink(path)
        return
    for name in disk.listdir(path):
        remove_tree(disk, f"{path}/{name}")
    disk.remove_dir(path)


def derived(disk: RecordingDisk) -> dict[str, bytes]:
    return {
        path: data
        for path, (_, data) in disk.contents().items()
        if path.startswith((f"{ROOT}/consumequeue/", f"{ROOT}/index/"))
    }


def test_everything_derived_comes_back_as_it_was() -> None:
    disk = written(120)
    before = derived(disk)
    assert len(before) > 8
    for name in ("consumequeue", "index", "config"):
        remove_tree(disk, f"{ROOT}/{name}")
    report = repair(seen(disk, config=CONFIG))
    assert derived(disk) == before
    assert report.records == 120
    assert verified(disk).findings.exit_code == 0


def test_damaged_files_are_replaced_and_right_ones_left() -> None:
    disk = written(45)
    before = derived(disk)
    queue = f"{ROOT}/consumequeue/topic0/0/00000000000000000000"
    disk.rot(queue, 33)
    report = repair(seen(disk))  # sizes are those of the files that are there
    assert "consumequeue/topic0/0/00000000000000000000" in report.replaced
    assert report.unchanged == len(before) - 1 + 1  # and the list of index files
    assert derived(disk) == before
    assert verified(disk).findings.exit_code == 0
    assert not disk.exists(f"{ROOT}/{WORK_DIRECTORY}")


def test_the_log_is_never_written_and_what_it_lost_is_told() -> None:
    disk = written(45)
    disk.rot(f"{ROOT}/commitlog/00000000000000000000", 700)
    log = {path: data for path, data in disk.contents().items() if "commitlog" in path}
    remove_tree(disk, f"{ROOT}/consumequeue")
    report = repair(seen(disk, config=CONFIG))
    assert {path: data for path, data in disk.contents().items() if "commitlog" in path} == log
    assert len(report.lost) == 1
    left = verified(disk).findings
    assert [problem.part for problem in left.problems] == ["log"]


def test_a_repaired_store_opens_and_goes_on() -> None:
    disk = written(45)
    remove_tree(disk, f"{ROOT}/consumequeue")
    remove_tree(disk, f"{ROOT}/index")
    repair(seen(disk, config=CONFIG))
    store = open_store(disk)
    assert bodies(store, b"topic0") == [b"message %d" % number for number in range(0, 45, 2)]
    fill(store, 2, 45)
    assert store.max_offset(b"topic1", 0) == 23
    store.close()
    assert verified(disk).findings.exit_code == 0


def test_a_queue_whose_records_have_expired_keeps_its_numbers() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for _ in range(5):
        store.append([draft(b"gone", b"quiet")])
    fill(store, 60)
    assert store.delete_oldest_segment()
    store.close()
    for name in disk.listdir(f"{ROOT}/config"):
        disk.unlink(f"{ROOT}/config/{name}")  # as Apache's store: only the queue's file knows
    repair(seen(disk, config=CONFIG))
    again = open_store(disk)
    assert again.max_offset(b"quiet", 0) == 5
    again.close()


def test_numbers_of_lost_records_are_not_given_again() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(4):
        store.append([draft(b"n%d" % number, b"numbered")])
    last = store.log_end
    store.append([draft(b"lost", b"numbered")])
    store.append([draft(b"other", b"other")])
    store.close()
    disk.rot(f"{ROOT}/commitlog/00000000000000000000", last + 50)
    repair(seen(disk, config=CONFIG))
    again = open_store(disk)
    assert again.max_offset(b"numbered", 0) == 5
    again.close()


@pytest.mark.parametrize("mode", FIXED_MODES)
def test_cut_short_anywhere_it_is_done_again(mode: str) -> None:
    disk = written(45)
    remove_tree(disk, f"{ROOT}/index")
    disk.rot(f"{ROOT}/consumequeue/topic0/0/00000000000000000000", 33)
    disk.sync_everything()
    images: list[RecordingDisk] = []
    disk.after_call = lambda call: images.append(disk.crash(mode, 7)) if len(images) < 400 else None
    repair(seen(disk, config=CONFIG))
    disk.after_call = None
    whole = verified(disk)
    assert whole.findings.exit_code == 0
    assert len(images) > 50
    for image in images[:: max(1, len(images) // 40)]:
        repair(seen(image, config=CONFIG))
        assert verified(image).findings.exit_code == 0
        store = open_store(image)
        assert len(bodies(store, b"topic0")) == 23
        store.close()


def test_a_start_in_the_middle_of_a_repair_finds_a_whole_store() -> None:
    disk = written(45)
    disk.rot(f"{ROOT}/consumequeue/topic0/0/00000000000000000000", 33)
    disk.sync_everything()
    images: list[RecordingDisk] = []

    def take(call: DiskCall) -> None:
        images.append(disk.kill())

    disk.after_call = take
    repair(seen(disk, config=CONFIG))
    for image in images[:: max(1, len(images) // 30)]:
        store = open_store(image)
        assert len(bodies(store, b"topic1")) == 22
        store.close()
