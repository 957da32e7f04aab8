"""The commit log: one append-only log for all topics, the truth from which everything else is derived.

This module owns the log's open files (segments), its end, store time, and the repair of writes that failed half way. A
segment has its full length from the start, because Apache refuses other lengths. Its blocks are reserved ahead of the
writes, so that a full disk is an error to answer and never a SIGBUS.
RocketMQ: CommitLog.asyncPutMessage, DefaultAppendMessageCallback.doAppend, CommitLog.appendData, MappedFileQueue,
AllocateMappedFileService.
"""

from __future__ import annotations

import contextlib
from typing import Final

from aerobee.errors import DiskFullError, InvalidArgumentError, StoreError
from aerobee.hot.log.layout import BLANK_SIZE_MIN
from aerobee.hot.log.record import Draft, encode_blank, encode_records, records_size
from aerobee.hot.log.units import Mapped
from aerobee.runtime.seams import Clock, Disk, File
from aerobee.store.config import StoreConfig
from aerobee.store.diskrules import require_room, sync_directory, sync_file
from aerobee.store.segment import is_zero, list_segments, segment_name

RESERVE_AHEAD: Final = 64 * 1024 * 1024
_RESERVE_LEAST: Final = 1024 * 1024
# Where every write is synced, this many bytes are first written as zeros, once for many small writes after them.
ZERO_AHEAD: Final = 256 * 1024
_ZEROS: Final = bytes(1024 * 1024)


class CommitLog:
    """Appends records. The caller serialises calls: there is one writer."""

    def __init__(self, segments: Segments, clock: Clock, config: StoreConfig) -> None:
        self.segments = segments
        self._clock = clock
        self._with_crc = config.enabled_append_prop_crc
        self._body_size_max = config.max_message_size
        self.end = 0
        self.store_timestamp = 0
        # Ranges beyond the end where a failed write may have left bytes. They are zeroed before anything else is
        # written, or a whole record among them could come back after a crash.
        self._garbage: list[tuple[int, int]] = []
        # With replicas: what was written last is kept, and sent without a look into the file.
        self.keeps_last = False
        self._last = b""
        self._last_at = -1

    def reconfigure(self, config: StoreConfig) -> None:
        """Take a new limit for bodies. How records are written cannot change while the log is open."""
        self._body_size_max = config.max_message_size

    @property
    def start(self) -> int:
        return self.segments.start if not self.segments.is_empty else self.end

    def append(self, drafts: list[Draft]) -> int:
        """Encode and write drafts that have their queue offsets. Return the new end of the log.

        All drafts of one call lie in one segment. On an error none is stored and the end stays where it was.
        """
        if not drafts:
            return self.end
        total = self._measure(drafts)
        self.repair()
        position, blank = self._place(total)
        self._prepare(position, total)
        now = max(self._clock.now_ms(), self.store_timestamp)
        try:
            data = encode_records(drafts, position, now, self._with_crc, True)
            self._write(position, data, blank)
        except BaseException:
            for draft in drafts:
                draft.physical_offset = -1
            raise
        self.store_timestamp = now
        self.end = position + total
        return self.end

    def _measure(self, drafts: list[Draft]) -> int:
        """Return the size of all drafts. RocketMQ: MessageExtEncoder.encode (MESSAGE_SIZE_EXCEEDED)."""
        total = records_size(drafts, self._with_crc, self._body_size_max)
        room = self.segments.segment_size - BLANK_SIZE_MIN
        if total > room:
            raise InvalidArgumentError(f"{total} bytes at once do not fit into a segment of {room}")
        return total

    def _place(self, total: int) -> tuple[int, int]:
        """Return where `total` bytes go, and the size of the blank record that must stand before them (0: none)."""
        rest = -self.end % self.segments.segment_size
        if rest == 0 or total + BLANK_SIZE_MIN <= rest:
            return self.end, 0
        return self.end + rest, rest

    def _prepare(self, position: int, size: int) -> None:
        try:
            self.segments.prepare(position, size)
        except OSError as error:
            raise StoreError(f"no segment can be made ready at {position}: {error}") from error

    def _write(self, position: int, data: bytes, blank: int) -> None:
        """Write the blank record, if there is one, and the data: one write for each segment touched."""
        try:
            if blank:
                self.segments.write(self.end, encode_blank(blank))
            self.segments.write(position, data)
            if self.keeps_last:
                self._last_at, self._last = position, data
        except BaseException as error:
            if blank:
                self._garbage.append((self.end, self.end + BLANK_SIZE_MIN))
            self._garbage.append((position, position + len(data)))
            if isinstance(error, OSError):
                raise StoreError(f"the log cannot be written at {position}: {error}") from error
            raise

    def last(self, offset: int, size: int) -> bytes | None:
        """Return what was written last, if it is at most `size` bytes and begins here."""
        return self._last if offset == self._last_at and len(self._last) <= size else None

    def repair(self) -> None:
        """Zero what a failed write may have left. A failure here is raised, and the next call tries again."""
        while self._garbage:
            start, end = self._garbage[-1]
            try:
                self.segments.zero(start, end)
            except OSError as error:
                raise StoreError(f"the log cannot be written at {start}: {error}") from error
            self._garbage.pop()

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> int:
        """Append bytes of a master's log. They may begin and end inside a record. Return the new end of the log."""
        if self.end != physical_offset and (self.segments.is_empty or self.end == self.segments.start):
            # A replica starts at the first segment its master still has.
            if physical_offset % self.segments.segment_size:
                raise InvalidArgumentError(
                    f"an empty log can start at a multiple of {self.segments.segment_size} only, "
                    f"not at {physical_offset}"
                )
            # A power cut may have left a segment without its records.
            self.segments.delete(self.segments.starts)
            self.end = physical_offset
            self._last_at = -1
        if physical_offset != self.end:
            raise InvalidArgumentError(f"bytes for {physical_offset}, but the log ends at {self.end}")
        self.repair()
        view = memoryview(data)
        while view:
            size = min(len(view), self.segments.segment_size - self.end % self.segments.segment_size)
            self._prepare(self.end, size)
            self._garbage.append((self.end, self.end + size))
            try:
                self.segments.write(self.end, view[:size])
            except OSError as error:
                raise StoreError(f"the log cannot be written at {self.end}: {error}") from error
            self._garbage.clear()
            self.end += size
            view = view[size:]
        return self.end

    def cut(self, end: int) -> None:
        """Make the log end here, durably: delete later segments and zero the rest of this one.

        Cutting again after a crash half way gives the same files.
        """
        size = self.segments.segment_size
        floor = self.segments.start
        later = [start for start in self.segments.starts if start >= end and start > floor]
        self.segments.delete(later)
        limit = self.segments.segment_end(end)
        if limit >= 0:
            self.segments.zero(end, limit)
            self.segments.sync(end, end - end % size + size)
        self.end = end
        self._last_at = -1
        self._garbage.clear()


class Segment:
    """One open file of the log."""

    __slots__ = ("file", "mapped", "path", "reserved", "start", "view", "zeroed")

    def __init__(self, start: int, path: str, file: File) -> None:
        self.start = start
        self.path = path
        self.file = file
        self.reserved = 0
        self.zeroed = 0
        self.view: memoryview | None = None
        self.mapped: Mapped | None = None


class Segments:
    """All segments of one log, found by offset. Scans use it as their LogSource."""

    def __init__(self, disk: Disk, directory: str, segment_size: int, zero_ahead: bool = False) -> None:
        self._disk = disk
        # For logs whose every write is synced.
        self.zero_ahead = zero_ahead
        self.directory = directory
        self.segment_size = segment_size
        self._segments: dict[int, Segment] = {}
        # Where the first file starts, 0 where there is none. Every pull asks for it.
        self.start = 0

    # ---- life ----

    def load(self) -> list[str]:
        """Open the files. Return a sentence for each file that was removed because its making was cut short."""
        self._disk.make_dirs(self.directory)
        # A segment unlinked by a process that died before its sync would come back with the next power cut.
        self._sync_dir()
        removed: list[str] = []
        found = list_segments(self._disk, self.directory)
        for entry in found:
            if entry.start % self.segment_size or entry.size != self.segment_size:
                if entry is found[-1] and entry.size < self.segment_size and self._is_unused(entry.path):
                    self._disk.unlink(entry.path)
                    self._sync_dir()
                    removed.append(f"{entry.path} was removed: it was {entry.size} bytes long and empty")
                    continue
                raise StoreError(
                    f"{entry.path} is {entry.size} bytes long, the configured length is {self.segment_size}",
                    hint="set mappedFileSizeCommitLog to the length of the files",
                )
            self._segments[entry.start] = Segment(entry.start, entry.path, self._disk.open(entry.path))
        self._find_start()
        return removed

    def _find_start(self) -> None:
        self.start = min(self._segments) if self._segments else 0

    def _is_unused(self, path: str) -> bool:
        """Tell whether a file holds only zeros. A segment is used only once it is whole and synced."""
        file = self._disk.open(path, write=False)
        try:
            offset = 0
            while data := file.read(offset, len(_ZEROS)):
                if not is_zero(data):
                    return False
                offset += len(data)
            return True
        finally:
            file.close()

    def close(self) -> None:
        while self._segments:
            self._segments.popitem()[1].file.close()
        self.start = 0

    # ---- where things are ----

    @property
    def is_empty(self) -> bool:
        return not self._segments

    @property
    def stop(self) -> int:
        """Return where the last file ends."""
        return max(self._segments) + self.segment_size if self._segments else 0

    @property
    def starts(self) -> list[int]:
        return sorted(self._segments)

    def path_of(self, offset: int) -> str:
        return f"{self.directory}/{segment_name(offset - offset % self.segment_size)}"

    def _of(self, offset: int) -> Segment | None:
        return self._segments.get(offset - offset % self.segment_size)

    def segment_end(self, offset: int) -> int:
        segment = self._of(offset)
        return -1 if segment is None else segment.start + self.segment_size

    def next_segment(self, offset: int) -> int:
        return min((start for start in self._segments if start >= offset), default=-1)

    # ---- reading ----

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy, read by pread, which releases the interpreter lock: for scans and what may be cold."""
        segment = self._of(offset)
        if segment is None or size <= 0:
            return b""
        at = offset - segment.start
        return segment.file.read(at, min(size, self.segment_size - at))

    def next_data(self, offset: int) -> int:
        segment = self._of(offset)
        return offset if segment is None else segment.start + segment.file.next_data(offset - segment.start)

    def view(self, offset: int, size: int) -> memoryview | None:
        """Return a slice of the mapping, None unless one segment holds all of it.

        A page fault here holds the interpreter lock.
        """
        segment = self._of(offset)
        if segment is None:
            return None
        at = offset - segment.start
        if at + size > self.segment_size:
            return None
        if segment.view is None:
            segment.view = segment.file.view()
        return segment.view[at : at + size]

    def mapped(self, offset: int) -> tuple[int, Mapped] | None:
        """Return the start of the segment that holds `offset`, and its mapping to copy small records from."""
        segment = self._of(offset)
        if segment is None:
            return None
        found = segment.mapped
        if found is None:
            found = segment.mapped = segment.file.mapped()
        return segment.start, found

    def file_at(self, offset: int) -> tuple[File, int] | None:
        """Return the file that holds `offset` and the position in it, as Disk.read takes them."""
        segment = self._of(offset)
        return None if segment is None else (segment.file, offset - segment.start)

    # ---- writing ----

    def prepare(self, offset: int, size: int) -> None:
        """Reserve what a write there needs. A DiskFullError leaves everything as it was."""
        segment = self._of(offset) or self._create(offset - offset % self.segment_size, size)
        at = offset - segment.start
        if at + size > segment.reserved:
            ahead = self._ahead(segment.path, at, size)
            segment.file.reserve(at, ahead)
            segment.reserved = at + ahead
        if self.zero_ahead and at + size > segment.zeroed and size * 8 <= ZERO_AHEAD:
            # A synced write into blocks that were reserved and never written also changes the file system's own tables.
            # That is half of what a sync of a small group costs. Only zeros lie here, so nothing is lost.
            end = min(at + ZERO_AHEAD, segment.reserved)
            segment.file.write(at, memoryview(_ZEROS)[: end - at])
            segment.zeroed = end

    def _ahead(self, path: str, at: int, size: int) -> int:
        """Return how many bytes to reserve at once: never a large share of a small disk, never its last byte."""
        room = require_room(self._disk, path, size)
        ahead = min(RESERVE_AHEAD, max(room // 8, _RESERVE_LEAST), room)
        return min(max(size, ahead), self.segment_size - at)

    def _create(self, start: int, size: int) -> Segment:
        """Make a segment with room for `size` bytes. Its name and length are durable before it is used."""
        path = self.path_of(start)
        ahead = self._ahead(path, 0, size)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(self.segment_size)
            segment = Segment(start, path, file)
            segment.reserved = ahead
            file.reserve(0, ahead)
            sync_file(file)
            self._sync_dir()
        except (DiskFullError, OSError):
            file.close()
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        self._segments[start] = segment
        self._find_start()
        return segment

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write once, at a position in one segment, which `prepare` has made ready."""
        segment = self._of(offset)
        if segment is None or offset - segment.start + len(data) > self.segment_size:
            raise StoreError(f"no segment for {len(data)} bytes at {offset}")
        segment.file.write(offset - segment.start, data)

    def zero(self, start: int, end: int) -> None:
        """Overwrite with zeros what is not zero already, within one segment."""
        while (start := self.next_data(start)) < end:
            size = min(len(_ZEROS), end - start)
            data = self.read(start, size)
            if len(data) != size or not is_zero(data):
                self.write(start, memoryview(_ZEROS)[:size])
            start += size

    def files_between(self, start: int, end: int) -> list[File]:
        """Return the files that hold bytes of the range, lowest first: those a flush must sync."""
        return [
            self._segments[first].file
            for first in sorted(self._segments)
            if first < end and first + self.segment_size > start
        ]

    def sync(self, start: int, end: int) -> None:
        """Sync the range, blocking: for start, stop and truncation."""
        for file in self.files_between(start, end):
            sync_file(file)

    # ---- deleting ----

    def delete(self, starts: list[int]) -> None:
        """Unlink segments, highest first, and make that durable. Slices handed out stay readable."""
        for start in sorted(starts, reverse=True):
            segment = self._segments.pop(start)
            segment.view = segment.mapped = None
            segment.file.close()
            self._find_start()
            self._disk.unlink(segment.path)
        if starts:
            self._sync_dir()

    def _sync_dir(self) -> None:
        sync_directory(self._disk, self.directory)
