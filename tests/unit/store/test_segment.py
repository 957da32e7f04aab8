"""The log seen read-only: names, windows, scans that pass over damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.hot.log.record import BAD_CRC, NEED_MORE, ZERO, encode_records
from aerobee.runtime.disk import InlineDisk
from aerobee.store.segment import (
    MISSING_FILE,
    LogReader,
    PieceKind,
    find_sound,
    list_segments,
    parse_segment_name,
    scan,
    segment_name,
)
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft, make_store


@pytest.fixture
def disk() -> RecordingDisk:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    for number in range(60):
        store.append([draft(b"message %d" % number + bytes(number))])
    store.close()
    return disk


def test_names() -> None:
    assert segment_name(1073741824) == "00000000001073741824"
    assert parse_segment_name("00000000001073741824") == 1073741824
    assert [parse_segment_name(name) for name in ("1", "0000000000107374182x", "", "new")] == [None] * 4


def test_lists_files_by_offset_and_passes_others_over(disk: RecordingDisk) -> None:
    disk.put("/store/commitlog/notes.txt", b"x")
    found = list_segments(disk, "/store/commitlog")
    assert [(entry.start, entry.size) for entry in found] == [(0, 4096), (4096, 4096), (8192, 4096)]
    assert list_segments(disk, "/store/none") == []


@pytest.mark.parametrize("chunk_size", [100, 257, 4096, 1 << 20])
def test_scan_finds_every_record_whatever_the_window(disk: RecordingDisk, chunk_size: int) -> None:
    log = LogReader(disk, "/store/commitlog")
    pieces = list(scan(log, log.start, log.stop, chunk_size=chunk_size))
    drafts = [item for piece in pieces for item in piece.drafts]
    assert [item.queue_offset for item in drafts] == list(range(60))
    assert [piece.kind for piece in pieces if piece.kind is not PieceKind.RECORDS] == [
        PieceKind.BLANK,
        PieceKind.BLANK,
        PieceKind.DAMAGE,
    ]
    assert (pieces[-1].reason, pieces[-1].end) == (ZERO, -1)
    log.close()


def test_scan_reports_damage_and_goes_on(disk: RecordingDisk) -> None:
    log = LogReader(disk, "/store/commitlog")
    drafts = [item for piece in scan(log, 0, log.stop) for item in piece.drafts]
    hurt = drafts[5]
    disk.rot("/store/commitlog/00000000000000000000", hurt.physical_offset + 90)
    pieces = list(scan(log, 0, log.stop))
    damage = next(piece for piece in pieces if piece.kind is PieceKind.DAMAGE)
    assert (damage.start, damage.end) == (hurt.physical_offset, drafts[6].physical_offset)
    assert damage.reason == BAD_CRC
    assert len([item for piece in pieces for item in piece.drafts]) == 59
    assert find_sound(log, hurt.physical_offset, log.stop, chunk_size=64) == drafts[6].physical_offset


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_record_whose_size_begins_in_a_hole_is_found(tmp_path: Path, lost: int) -> None:
    """Its size begins with zeros; where these end a block that a power cut lost, the record is sound all the same."""
    at = 3 * 65536 - lost
    data = encode_records([draft(b"message")], at, 1, True)
    with (tmp_path / segment_name(0)).open("wb") as file:
        file.truncate(1 << 20)
        file.seek(at + lost)
        file.write(data[lost:])
    log = LogReader(InlineDisk(), str(tmp_path))
    assert find_sound(log, 1, log.stop) == at
    assert find_sound(log, at + 1, log.stop) == -1
    assert log.next_data(1 << 19) == log.stop
    log.close()


def test_scan_passes_over_a_missing_file(disk: RecordingDisk) -> None:
    disk.unlink("/store/commitlog/00000000000000004096")
    log = LogReader(disk, "/store/commitlog")
    pieces = list(scan(log, 0, log.stop))
    assert any(piece.reason == MISSING_FILE and piece.end == 8192 for piece in pieces)
    assert log.read(5000, 10) == b""
    assert log.segment_end(5000) == -1


def test_scan_stops_before_an_incomplete_record(disk: RecordingDisk) -> None:
    log = LogReader(disk, "/store/commitlog")
    drafts = [item for piece in scan(log, 0, log.stop) for item in piece.drafts]
    for short in (1, 9, 50):
        end = drafts[3].physical_offset + drafts[3].size
        pieces = list(scan(log, 0, end - short))
        assert (pieces[-1].kind, pieces[-1].reason) == (PieceKind.END, NEED_MORE)
        assert pieces[-1].start == drafts[3].physical_offset


def test_a_reader_follows_a_live_store() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    log = LogReader(disk, "/store/commitlog")
    seen = 0
    position = 0
    for number in range(60):
        store.append([draft(b"message %d" % number)])
        log.refresh()
        for piece in scan(log, position, log.stop):
            seen += len(piece.drafts)
            if piece.kind in (PieceKind.RECORDS, PieceKind.BLANK):
                position = piece.end
        assert seen == number + 1
    while store.delete_oldest_segment():
        pass
    log.refresh()
    assert log.start == store.log_start > 0
    assert log.read(0, 10) == b""
    log.close()
