"""Consume queue extensions (`consumequeue_ext/<topic>/<queue>/`): tags code, store time and filter bit map
of a message, too long for a queue unit, whose tags code is then the address of one of these. RocketMQ:
ConsumeQueueExt.

    0   2  size of the unit; -1 closes a file before its end, 0 is unwritten
    2   8  tags code
    10  8  store time
    18  2  bytes of the bit map, then the bit map

An address is the offset across all files plus Java's smallest long, so it cannot be taken for a tags code.
Off by default (`enableConsumeQueueExt`). Like its queue it is derived from the log; the queue decides what
is cut.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aerobee.errors import CorruptLogError
from aerobee.model.numbers import int_or
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Disk, File

_LONG_MIN: Final = -(2**63)
# RocketMQ: MAX_ADDR and MAX_REAL_OFFSET. Tags codes are ints, so everything below the ints is an address.
ADDRESS_MAX: Final = -(2**31) - 1
OFFSET_MAX: Final = ADDRESS_MAX - _LONG_MIN
UNIT_SIZE_MIN: Final = 20
UNIT_SIZE_MAX: Final = 32767
_END_SIZE: Final = 4
_HEAD: Final = struct.Struct(">hqqh")
_END_MARK: Final = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class ExtUnit:
    """One unit."""

    tags_code: int
    store_timestamp: int
    filter_bitmap: bytes = b""

    def encode(self) -> bytes:
        """Its bytes."""
        bitmap = self.filter_bitmap
        size = UNIT_SIZE_MIN + len(bitmap)
        return _HEAD.pack(size, self.tags_code, self.store_timestamp, len(bitmap)) + bitmap


def is_address(tags_code: int) -> bool:
    """Whether a queue unit's tags code is the address of an extension."""
    return tags_code <= ADDRESS_MAX


def decorate(offset: int) -> int:
    """The address of an offset."""
    return offset + _LONG_MIN if not is_address(offset) else offset


def undecorate(address: int) -> int:
    """The offset of an address."""
    return address - _LONG_MIN if is_address(address) else address


class ConsumeQueueExt:
    """The extension of one queue."""

    def __init__(self, disk: Disk, root: str, topic: str, queue_id: int, file_size: int) -> None:
        self._disk = disk
        self._directory = join(root, "consumequeue_ext", topic, str(queue_id))
        self._file_size = file_size
        self._files: dict[int, File] = {}  # by the offset each begins at
        self._end = 0
        self._dirty: set[int] = set()
        self.problems: list[str] = []

    @property
    def min_address(self) -> int:
        """The address at which the oldest file begins."""
        return decorate(min(self._files, default=0))

    @property
    def max_address(self) -> int:
        """The address the next unit would have."""
        return decorate(self._end)

    def recover(self) -> None:
        """Open the files and find the end of what was written; the queue then says what of it is too much."""
        self.problems = []
        for name in self._disk.listdir(self._directory):
            path = join(self._directory, name)
            start = int_or(name, None, 0) if len(name) == 20 and name.isdecimal() else None
            if start is None or start % self._file_size:
                self.problems.append(f"{path} is not an extension file: left alone")
                continue
            file = self._disk.open(path)
            if file.size() != self._file_size:
                self.problems.append(f"{path}: {file.size()} bytes long, not {self._file_size}: removed")
                file.close()
                self._disk.unlink(path)
                continue
            self._files[start] = file
        for start in self._after_gap():
            self._remove(start)
        if self._files:
            last = max(self._files)
            self._end = last + self._written(self._files[last])

    def _after_gap(self) -> list[int]:
        starts = sorted(self._files)
        for earlier, later in pairwise(starts):
            if later != earlier + self._file_size:
                gap = f"nothing between {earlier} and {later}"
                self.problems.append(f"{self._directory}: {gap}: the later removed")
                return starts[starts.index(later) :]
        return []

    def _written(self, file: File) -> int:
        """Where the units of a file end; a closed file counts as full."""
        position = 0
        data = file.read(0, self._file_size)
        while position + 2 <= len(data):
            size = int.from_bytes(data[position : position + 2], "big", signed=True)
            if size < 0:
                return self._file_size
            if size < UNIT_SIZE_MIN or position + size > self._file_size - _END_SIZE:
                break
            position += size
        return position

    def put(self, unit: ExtUnit) -> int | None:
        """Append; the address for the queue unit, or None where it cannot be held (then the plain tags code
        is used).

        RocketMQ: ConsumeQueueExt.put.
        """
        data = unit.encode()
        if len(data) > min(UNIT_SIZE_MAX, self._file_size - _END_SIZE) or self._end + len(data) > OFFSET_MAX:
            return None
        within = self._end % self._file_size
        start = self._end - within
        if start in self._files and within and len(data) > self._file_size - within - _END_SIZE:
            self._files[start].write(within, _END_MARK)
            self._dirty.add(start)
            self._end = start = start + self._file_size
            within = 0
        if start not in self._files:
            self._create(start)
        self._files[start].write(within, data)
        self._dirty.add(start)
        self._end += len(data)
        return decorate(self._end - len(data))

    def _create(self, start: int) -> None:
        self._disk.make_dirs(self._directory)
        file = self._disk.open(join(self._directory, f"{start:020d}"), create=True)
        file.truncate(self._file_size)
        self._disk.sync_dir(self._directory)
        self._files[start] = file

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None where there is none. CorruptLogError where its bytes cannot be one."""
        if not is_address(address):
            return None
        offset = undecorate(address)
        within = offset % self._file_size
        file = self._files.get(offset - within)
        if file is None or offset >= self._end:
            return None
        head = file.read(within, _HEAD.size)
        if len(head) < _HEAD.size:
            return None
        size, tags_code, store_timestamp, bitmap_size = _HEAD.unpack(head)
        if size < 1:
            return None
        if bitmap_size < 0 or size != UNIT_SIZE_MIN + bitmap_size or within + size > self._file_size:
            raise CorruptLogError(file.path, within, f"unit of {size} bytes with a bit map of {bitmap_size}")
        return ExtUnit(tags_code, store_timestamp, file.read(within + _HEAD.size, bitmap_size))

    def flush(self) -> list[File]:
        """The files that must be synced."""
        files = [self._files[start] for start in sorted(self._dirty) if start in self._files]
        self._dirty.clear()
        return files

    def truncate_after(self, address: int) -> None:
        """Keep the unit at this address as the last. RocketMQ: truncateByMaxAddress."""
        unit = self.get(address)
        if unit is not None:
            self._cut(undecorate(address) + len(unit.encode()))

    def truncate_all(self) -> None:
        """No unit of the queue points here any more."""
        self._cut(min(self._files, default=0))

    def _cut(self, end: int) -> None:
        for start in [start for start in self._files if start > end or (start == end and end)]:
            self._remove(start)
        within = end % self._file_size
        start = end - within
        if start in self._files:
            # Zeros, or what is left would be read as units at the next start.
            self._files[start].truncate(within)
            self._files[start].truncate(self._file_size)
            self._files[start].sync()
        self._end = end

    def truncate_before(self, address: int) -> int:
        """Delete the files that end below this address; how many. RocketMQ: truncateByMinAddress."""
        if not is_address(address):
            return 0
        gone = [start for start in self._files if start + self._file_size < undecorate(address)]
        for start in gone:
            self._remove(start)
        return len(gone)

    def _remove(self, start: int) -> None:
        file = self._files.pop(start)
        file.close()
        self._disk.unlink(file.path)
        self._dirty.discard(start)

    def close(self) -> None:
        """Let the files go."""
        for file in self._files.values():
            file.close()
        self._files = {}
