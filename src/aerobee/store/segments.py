"""The broker's own segments: made, reserved ahead, written by position, mapped for reading, deleted.

Owns the open files of the commit log. A segment has its full length from the start (Apache refuses others)
and its blocks are taken ahead of the writes, so that a full disk is an error to answer and never a SIGBUS.
RocketMQ: MappedFileQueue, AllocateMappedFileService.
"""

from __future__ import annotations

import contextlib
from typing import Final

from aerobee.errors import DiskFullError, StoreError, StoreFencedError
from aerobee.hot.log.units import Mapped
from aerobee.runtime.files import RealFile
from aerobee.runtime.seams import Disk, File
from aerobee.runtime.shortage import is_passing
from aerobee.store.room import require_room
from aerobee.store.segment import is_zero, list_segments, segment_name

RESERVE_AHEAD: Final = 64 * 1024 * 1024
_RESERVE_LEAST: Final = 1024 * 1024
# Where every write is synced, so much is written as zeros first, once for many small writes behind it.
ZERO_AHEAD: Final = 256 * 1024
_ZEROS: Final = bytes(1024 * 1024)


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
    """All segments of one log, found by offset. Serves as the LogSource of scans."""

    def __init__(self, disk: Disk, directory: str, segment_size: int, zero_ahead: bool = False) -> None:
        self._disk = disk
        # For logs whose every write is synced.
        self.zero_ahead = zero_ahead
        self.directory = directory
        self.segment_size = segment_size
        self._segments: dict[int, Segment] = {}
        # Where the first file starts, 0 where there is none: asked for each pull.
        self.start = 0

    # ---- life ----

    def load(self) -> list[str]:
        """Open what is there. Returns a sentence for each file removed because its making was cut short."""
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
                    removed.append(f"{entry.path}: {entry.size} bytes long and empty, removed")
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
        """A segment is used only once it is whole and synced, so a short one can hold nothing."""
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
        """Where the last file ends."""
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
        """A copy by pread, which gives the interpreter lock away: for scans and whatever may be cold."""
        segment = self._of(offset)
        if segment is None or size <= 0:
            return b""
        at = offset - segment.start
        return segment.file.read(at, min(size, self.segment_size - at))

    def next_data(self, offset: int) -> int:
        segment = self._of(offset)
        return offset if segment is None else segment.start + segment.file.next_data(offset - segment.start)

    def view(self, offset: int, size: int) -> memoryview | None:
        """A slice of the mapping; None unless one segment holds all of it. A page fault here holds the
        lock."""
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
        """The segment that holds `offset`: where it starts, and what copies are taken from. As `view`, for hot ones."""
        segment = self._of(offset)
        if segment is None:
            return None
        found = segment.mapped
        if found is None:
            found = segment.mapped = segment.file.mapped()
        return segment.start, found

    def file_at(self, offset: int) -> tuple[File, int] | None:
        """The file that holds `offset`, and the position in it: for Disk.read."""
        segment = self._of(offset)
        return None if segment is None else (segment.file, offset - segment.start)

    # ---- writing ----

    def prepare(self, offset: int, size: int) -> None:
        """Make sure that a write there needs no more space. DiskFullError leaves everything as it was."""
        segment = self._of(offset) or self._create(offset - offset % self.segment_size, size)
        at = offset - segment.start
        if at + size > segment.reserved:
            ahead = self._ahead(segment.path, at, size)
            segment.file.reserve(at, ahead)
            segment.reserved = at + ahead
        if self.zero_ahead and at + size > segment.zeroed and size * 8 <= ZERO_AHEAD:
            # Into blocks that were reserved and never written, each synced write changes the file system's own tables
            # too: for small groups half of what a sync costs. Nothing but zeros may lie here, so none are lost.
            end = min(at + ZERO_AHEAD, segment.reserved)
            segment.file.write(at, memoryview(_ZEROS)[: end - at])
            segment.zeroed = end

    def _ahead(self, path: str, at: int, size: int) -> int:
        """Return how much to reserve at once: a small disk is not given away in one piece, and none is to the last
        byte."""
        room = require_room(self._disk, path, size)
        ahead = min(RESERVE_AHEAD, max(room // 8, _RESERVE_LEAST), room)
        return min(max(size, ahead), self.segment_size - at)

    def _create(self, start: int, size: int) -> Segment:
        """A new segment whose name and length are durable before it is used, with room for `size` bytes."""
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
        """One positioned write into one segment, which `prepare` has made ready."""
        segment = self._of(offset)
        if segment is None or offset - segment.start + len(data) > self.segment_size:
            raise StoreError(f"no segment for {len(data)} bytes at {offset}")
        file = segment.file
        if isinstance(file, RealFile):  # compiled, a call that looks nothing up
            file.write(offset - segment.start, data)
        else:
            file.write(offset - segment.start, data)

    def zero(self, start: int, end: int) -> None:
        """Overwrite with zeros what is not zero already, within one segment."""
        while (start := self.next_data(start)) < end:
            size = min(len(_ZEROS), end - start)
            data = self.read(start, size)
            if len(data) != size or not is_zero(data):
                self.write(start, memoryview(_ZEROS)[:size])
            start += size

    def files_between(self, start: int, end: int) -> list[File]:
        """The files that hold bytes of the range, lowest first: what a flush must sync."""
        return [
            self._segments[first].file
            for first in sorted(self._segments)
            if first < end and first + self.segment_size > start
        ]

    def sync(self, start: int, end: int) -> None:
        """Blocking: for start, stop and truncation."""
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


def sync_file(file: File) -> None:
    """Blocking sync. Its failure is final: what the page cache holds can no longer be trusted."""
    try:
        file.sync()
    except (OSError, DiskFullError) as error:
        raise StoreFencedError(f"sync of {file.path} failed: {error}") from error


def sync_directory(disk: Disk, path: str) -> None:
    """Blocking sync of a directory's names; as final as that of a file, unless the directory could not be opened for
    want of a descriptor: then no sync was begun, and the OSError passes."""
    try:
        disk.sync_dir(path)
    except OSError as error:
        if is_passing(error):
            raise
        raise StoreFencedError(f"sync of directory {path} failed: {error}") from error
