"""What goes over from one store to another when a broker takes over, and back."""

from __future__ import annotations

import struct

from aerobee.app.takeover import TakeOver, TakeOverNote, give_state_back, raise_to, saved_offsets, saved_timers
from aerobee.broker.delay import TimerCheckpoint, TimerProgress
from aerobee.store.statefile import StateFile
from aerobee.testing.disk import RecordingDisk


def put(disk: RecordingDisk, path: str, content: bytes) -> None:
    StateFile(disk, path, sealed=False).save(content)


def content(disk: RecordingDisk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def test_a_note_outlives_the_process_and_can_be_removed() -> None:
    disk = RecordingDisk()
    note = TakeOverNote(disk, "/store")
    assert note.load() is None
    note.save(TakeOver(master="10.0.0.1:10911", at_ms=5))
    assert TakeOverNote(disk, "/store").load() == TakeOver(master="10.0.0.1:10911", at_ms=5, state_version=1)
    note.remove()
    assert TakeOverNote(disk, "/store").load() is None


def test_saved_offsets_are_read_in_both_forms() -> None:
    disk = RecordingDisk()
    put(disk, "/store/config/consumerOffset.json", b'{"offsetTable":{"T@g":{0:5,1:7}}}')
    put(disk, "/store/config/delayOffset.json", b'{"offsetTable":{1:3,4:9}}')
    assert saved_offsets(disk, "/store", "consumerOffset.json") == {"T@g": {0: 5, 1: 7}}
    assert saved_offsets(disk, "/store", "delayOffset.json") == {"": {1: 3, 4: 9}}
    put(disk, "/store/config/consumerOffset.json", b'{"offsetTable":{}}')
    assert saved_offsets(disk, "/store", "consumerOffset.json") == {}
    assert saved_offsets(disk, "/elsewhere", "consumerOffset.json") == {}


def test_an_older_file_takes_nothing_back() -> None:
    told = {0: 10, 1: 20}
    raise_to(told, {0: 5, 1: 25, 2: 1})
    assert told == {0: 10, 1: 25, 2: 1}


def test_apaches_directory_gets_state_and_keeps_its_own_place_in_the_timer_log() -> None:
    disk = RecordingDisk(existing=("/ours", "/theirs"))
    put(disk, "/ours/config/consumerOffset.json", b'{"offsetTable":{"T@g":{0:5}}}')
    progress = TimerProgress(1_700_000_000_450, 12, {}, 0)
    StateFile(disk, "/ours/timers/progress").save(progress.encode())
    put(disk, "/theirs/config/timercheck", struct.pack(">4q", 1, 104, 3, 4) + bytes(32))
    assert give_state_back(disk, "/ours", "/theirs") == ["consumerOffset.json", "timercheck"]
    check = content(disk, "/theirs/config/timercheck")
    assert struct.unpack_from(">4q", check) == (1_700_000_000_000, 104, 3, 12)
    assert saved_timers(disk, "/theirs") == TimerCheckpoint(1_700_000_000_000, 3)
    assert content(disk, "/theirs/config/consumerOffset.json") == b'{"offsetTable":{"T@g":{0:5}}}'
