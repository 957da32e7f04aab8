import errno
import json
from typing import Any

import pytest

from aerobee.errors import DiskFullError, StoreError
from aerobee.store.statefile import StateFile
from aerobee.testing.disk import RecordingDisk

PATH = "/store/config/x.json"


def decode(content: bytes) -> Any:
    return json.loads(content)["n"]


def encode(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


def test_nothing_was_ever_saved() -> None:
    assert StateFile(RecordingDisk(), PATH).load(decode) is None


def test_saves_and_keeps_the_one_before() -> None:
    disk = RecordingDisk()
    state = StateFile(disk, PATH)
    for number in (1, 22, 333):
        state.save(encode(number))
    assert StateFile(disk, PATH).load(decode) == 333
    assert decode(disk.open(PATH + ".bak").read(0, 100)) == 22
    assert disk.listdir("/store/config") == ["x.json", "x.json.bak"]
    assert disk.unsynced() == []


def test_every_crash_leaves_the_old_or_the_new() -> None:
    """The power goes at each call of a save in turn; every image holds one of the two contents."""
    images = 0
    for nth in range(1, 40):
        disk = RecordingDisk(seed=nth)
        disk.make_dirs("/store")
        disk.sync_everything()
        StateFile(disk, PATH).save(encode(1))
        disk.fail(nth, times=None)
        try:
            StateFile(disk, PATH).save(encode(2))
            done = True
        except (OSError, StoreError):
            done = False
        disk.heal()
        for image in disk.crash_images(nth, per_mode=5):
            found = StateFile(image.disk, PATH).load(decode)
            assert found == 2 if done else found in (1, 2), (nth, image.mode, image.seed)
            images += 1
        if done:
            break
    else:
        raise AssertionError("the save never ran to its end")
    assert images > 50


def test_an_unreadable_file_gives_way_to_its_backup_and_never_covers_it() -> None:
    for bad in (b"", b"\0\0\0", b'{"n": 1', b'{"m": 1}', b"\xff\xfe", b"[]"):
        disk = RecordingDisk()
        disk.put(PATH, bad)
        disk.put(PATH + ".bak", encode(7))
        state = StateFile(disk, PATH)
        assert state.load(decode) == 7
        assert PATH in state.problems[0]
        state.save(encode(8))
        assert StateFile(disk, PATH).load(decode) == 8
        assert decode(disk.open(PATH + ".bak").read(0, 100)) == 7
        assert disk.open(PATH + ".damaged").read(0, 100) == bad


def test_both_unreadable_stops_the_start_and_names_the_file() -> None:
    disk = RecordingDisk()
    disk.put(PATH, b"{")
    disk.put(PATH + ".bak", b"")
    with pytest.raises(StoreError, match=r"config/x\.json.*config/x\.json\.bak"):
        StateFile(disk, PATH).load(decode)
    disk.unlink(PATH + ".bak")
    with pytest.raises(StoreError, match=r"config/x\.json"):
        StateFile(disk, PATH).load(decode)


def test_saves_off_the_thread_join_and_tell_everyone() -> None:
    disk = RecordingDisk()
    disk.complete_queued()
    state = StateFile(disk, PATH)
    told: list[tuple[int, object]] = []
    for number in range(4):
        state.submit(encode(number), lambda error, number=number: told.append((number, error)))
    disk.run_pending(1)
    assert told == [(0, None)]
    disk.run_pending()
    assert told == [(0, None), (1, None), (2, None), (3, None)]
    assert StateFile(disk, PATH).load(decode) == 3


def test_a_full_disk_is_told_and_the_old_content_stays() -> None:
    disk = RecordingDisk()
    state = StateFile(disk, PATH)
    state.save(encode(1))
    told: list[object] = []
    disk.fail(1, "write", errno=errno.ENOSPC)
    state.submit(encode(2), told.append)
    assert isinstance(told[0], DiskFullError)
    assert StateFile(disk, PATH).load(decode) == 1
    state.submit(encode(3), told.append)
    assert told[1] is None
    assert StateFile(disk, PATH).load(decode) == 3
