"""The commit log read-only: fixed-size segment files named by offset, read in windows and scanned for records.

This module owns how a log is walked: by the broker's own recovery and dispatch, by the offline tools, and by Spark jobs
that read a directory while a live broker writes it. It imports nothing else of the store and never writes.
RocketMQ: MappedFileQueue.doLoad, UtilAll.offset2FileName, CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from aerobee.errors import StoreError
from aerobee.hot.log.layout import BLANK_SIZE_MIN, RECORD_MAGIC_POS
from aerobee.hot.log.record import BAD_SIZE, BLANK, NEED_MORE, VERIFY_RECORD, ZERO, Draft, check_record
from aerobee.hot.log.scan import scan_records
from aerobee.model.numbers import int_or
from aerobee.runtime.seams import Disk, File

NAME_DIGITS: Final = 20
CHUNK_SIZE: Final = 1024 * 1024
_BELIEVED_SIZE_MAX: Final = 32 * CHUNK_SIZE
# The bytes that the magic numbers of both record versions begin with. A record's size stands before its magic number.
_MAGIC_PREFIX: Final = b"\xda\xa3\x20"
# A reason of this module, beside those of hot/log/record.py: the file that should hold the offset is not there.
MISSING_FILE: Final = -100
_ZEROS: Final = bytes(CHUNK_SIZE)


def segment_name(offset: int) -> str:
    """Return the file name of the segment that starts at `offset`."""
    return f"{offset:0{NAME_DIGITS}d}"


def parse_segment_name(name: str) -> int | None:
    """Return the offset a file name says, None for other files."""
    if len(name) == NAME_DIGITS and name.isascii() and name.isdecimal():
        return int_or(name, None, 0)
    return None


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One file of a directory of fixed-size files."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


def is_zero(data: bytes) -> bool:
    """Tell whether there is nothing but zeros, by comparison: counting a mebibyte of them takes 1.5 ms."""
    return data == _ZEROS if len(data) == len(_ZEROS) else data == bytes(len(data))


def segment_starts(disk: Disk, directory: str) -> list[int]:
    """Return where the files named by offset begin, lowest first, without opening them."""
    found = (parse_segment_name(name) for name in disk.listdir(directory))
    return sorted(start for start in found if start is not None)


def list_segments(disk: Disk, directory: str) -> list[SegmentFile]:
    """Return the files named by offset, lowest first. Other names are passed over."""
    found: list[SegmentFile] = []
    for name in disk.listdir(directory):
        start = parse_segment_name(name)
        if start is None:
            continue
        path = f"{directory}/{name}"
        file = disk.open(path, write=False)
        try:
            found.append(SegmentFile(path, start, file.size()))
        finally:
            file.close()
    return found


class LogSource(Protocol):
    """Where log bytes come from: a directory read-only, or the broker's own open segments."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of one segment; fewer at its end, none where no segment holds `offset`."""

    def next_data(self, offset: int) -> int:
        """Return the first place at or after `offset` in its segment that may hold something but zeros; the segment's
        end where none does.
        """

    def segment_end(self, offset: int) -> int:
        """Return where the segment that holds `offset` ends, -1 where there is none."""

    def next_segment(self, offset: int) -> int:
        """Return the start of the first segment at or above `offset`, -1 where there is none."""


class LogReader:
    """A commit log directory opened read-only, also while a broker appends to it and deletes from it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._open: dict[int, File] = {}
        self.segments: list[SegmentFile] = []
        self.refresh()

    def refresh(self) -> None:
        """Look again: segments appear while a broker writes and vanish with retention."""
        self.segments = list_segments(self._disk, self._directory)
        if self.segments and not self.segments[-1].size:
            self.segments.pop()  # the file was made but has no length yet

    @property
    def start(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def stop(self) -> int:
        """Return where the last file ends; the log itself ends before."""
        return self.segments[-1].end if self.segments else 0

    def read(self, offset: int, size: int) -> bytes:
        segment = self._segment_of(offset)
        file = None if segment is None else self._file_of(segment)
        if segment is None or file is None:
            return b""
        return file.read(offset - segment.start, min(size, segment.end - offset))

    def next_data(self, offset: int) -> int:
        segment = self._segment_of(offset)
        file = None if segment is None else self._file_of(segment)
        return offset if segment is None or file is None else segment.start + file.next_data(offset - segment.start)

    def _file_of(self, segment: SegmentFile) -> File | None:
        file = self._open.get(segment.start)
        if file is None:
            if len(self._open) >= 8:
                self._open.pop(next(iter(self._open))).close()
            try:
                file = self._open[segment.start] = self._disk.open(segment.path, write=False)
            except FileNotFoundError:
                return None  # retention deleted the file since the listing
        return file

    def segment_end(self, offset: int) -> int:
        segment = self._segment_of(offset)
        return -1 if segment is None else segment.end

    def next_segment(self, offset: int) -> int:
        return next((s.start for s in self.segments if s.start >= offset), -1)

    def _segment_of(self, offset: int) -> SegmentFile | None:
        for segment in reversed(self.segments):
            if segment.start <= offset:
                return segment if offset < segment.end else None
        return None

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class PieceKind(enum.Enum):
    """What a stretch of the log is."""

    RECORDS = "records"
    BLANK = "blank"  # the unused rest of a segment
    DAMAGE = "damage"  # no sound record; `end` is the next sound one, -1 where none follows
    END = "end"  # nothing more below `stop`; NEED_MORE as reason where a record is still incomplete


@dataclass(frozen=True, slots=True)
class Piece:
    """One stretch of a scan."""

    kind: PieceKind
    start: int
    end: int
    reason: int
    drafts: list[Draft] = field(default_factory=list)


def scan(
    source: LogSource,
    start: int,
    stop: int,
    *,
    verify: int = VERIFY_RECORD,
    delay_levels_ms: Sequence[int] | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[Piece]:
    """Walk the log from a record boundary. Damage is passed over to the next sound record, never guessed at."""
    levels = None if delay_levels_ms is None else list(delay_levels_ms)
    offset, window = start, chunk_size
    while offset < stop:
        limit = source.segment_end(offset)
        if limit < 0:
            following = source.next_segment(offset)
            if not 0 <= following < stop:
                break
            yield Piece(PieceKind.DAMAGE, offset, following, MISSING_FILE)
            offset = following
            continue
        room = min(limit, stop) - offset
        data = source.read(offset, min(window, room))
        drafts, consumed, reason = scan_records(data, offset, verify, 0, levels)
        if drafts:
            yield Piece(PieceKind.RECORDS, offset, offset + consumed, reason, drafts)
            offset += consumed
            window = chunk_size
            continue
        if reason == NEED_MORE and len(data) < room and len(data) == window:
            window = _wider(data, window)
            continue
        if reason == NEED_MORE and stop < limit:
            yield Piece(PieceKind.END, offset, offset, NEED_MORE)
            return
        if reason == BLANK:
            if int.from_bytes(data[:RECORD_MAGIC_POS], "big") == limit - offset:
                if stop < limit:
                    # A replica has received only a part of the unused rest.
                    yield Piece(PieceKind.END, offset, offset, NEED_MORE)
                    return
                yield Piece(PieceKind.BLANK, offset, limit, BLANK)
                offset = limit
                continue
            reason = BAD_SIZE
        following = find_sound(source, offset + 1, stop, verify=verify, chunk_size=chunk_size)
        yield Piece(PieceKind.DAMAGE, offset, following, BAD_SIZE if reason == NEED_MORE else reason)
        if following < 0:
            return
        offset, window = following, chunk_size
    yield Piece(PieceKind.END, offset, offset, ZERO)


def _wider(data: bytes, window: int) -> int:
    """Return a window for the record that begins the data.

    Its size is believed only up to what a send may be: a damaged size must not make us read a gigabyte at once.
    """
    size = int.from_bytes(data[:RECORD_MAGIC_POS], "big", signed=True)
    return size if window < size <= _BELIEVED_SIZE_MAX else window * 2


def find_sound(
    source: LogSource, start: int, stop: int, *, verify: int = VERIFY_RECORD, chunk_size: int = CHUNK_SIZE
) -> int:
    """Return the first position at or above `start` where a sound record names this very position, or -1."""
    offset = start
    while offset < stop:
        limit = source.segment_end(offset)
        if limit < 0:
            offset = source.next_segment(offset)
            if offset < 0:
                break
            continue
        # A segment is made at its full length: to read its unused rest would fill the page cache with zeros.
        offset = source.next_data(offset)
        if offset >= min(limit, stop):
            offset = limit
            continue
        data = source.read(offset, min(chunk_size, min(limit, stop) - offset))
        if not data:
            raise StoreError(f"the log cannot be read at {offset}")
        at = -1 if is_zero(data) else data.find(_MAGIC_PREFIX)
        while at >= 0:
            found = offset + at - RECORD_MAGIC_POS
            if found >= start and _is_sound(source, found, min(limit, stop), verify):
                return found
            at = data.find(_MAGIC_PREFIX, at + 1)
        if offset + len(data) >= min(limit, stop):
            offset = limit
        else:
            # A magic number may lie across the edge of the window.
            offset += max(1, len(data) - BLANK_SIZE_MIN)
    return -1


def _is_sound(source: LogSource, offset: int, limit: int, verify: int) -> bool:
    head = source.read(offset, RECORD_MAGIC_POS)
    size = int.from_bytes(head, "big", signed=True)
    if size <= 0 or offset + size > limit:
        return False
    return check_record(source.read(offset, size), 0, offset, verify) == size


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of the log that holds no sound record. It is never served; its neighbours are."""

    start: int
    end: int
    reason: int
