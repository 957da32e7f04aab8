"""The units of one consume queue read from its files, a bounded stretch at a time."""

from __future__ import annotations

from typing import Final

from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.runtime.seams import Disk
from aerobee.store.offline.directory import QueueFiles
from aerobee.store.queues import UNIT

_READ_SIZE: Final = 64 * 1024
EMPTY: Final = bytes(UNIT_SIZE)


class QueueUnits:
    """Units by their number. What no file holds reads as empty units."""

    def __init__(self, disk: Disk, queue: QueueFiles, file_size: int) -> None:
        self._disk = disk
        self._paths = {file.start: (file.path, file.size) for file in queue.files}
        self.directory = queue.directory
        self.file_size = file_size
        # Units [first, end) have a place in some file.
        starts = sorted(self._paths)
        self.first = starts[0] // UNIT_SIZE if starts else 0
        self.end = (starts[-1] + file_size) // UNIT_SIZE if starts else 0

    def read(self, number: int, count: int) -> bytes:
        """Return `count` units from `number` on, always that many."""
        parts: list[bytes] = []
        at = number * UNIT_SIZE
        end = at + count * UNIT_SIZE
        while at < end:
            start = at - at % self.file_size
            wanted = min(end, start + self.file_size) - at
            parts.append(self._bytes(start, at - start, wanted).ljust(wanted, b"\0"))
            at += wanted
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _bytes(self, start: int, at: int, size: int) -> bytes:
        place = self._paths.get(start)
        if place is None:
            return b""
        try:
            file = self._disk.open(place[0], write=False)
        except FileNotFoundError:
            return b""  # deleted with its records
        try:
            data = file.read(at, size)
        finally:
            file.close()
        # Only whole units count.
        return data[: len(data) - (at + len(data)) % UNIT_SIZE] if len(data) < size else data

    def unit(self, number: int) -> tuple[int, int, int]:
        """Return physical offset, size and tags code."""
        physical_offset, size, tags_code = UNIT.unpack(self.read(number, 1))
        return physical_offset, size, tags_code

    def is_written(self, number: int) -> bool:
        return self.unit(number)[1] > 0

    def written_end(self) -> int:
        """Return the number above the last unit that is written, found by halving: units are written in order."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            if self.is_written(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def stretches(self, number: int) -> list[tuple[int, int]]:
        """Yield (first, count) of pieces that cover everything from `number` on."""
        size = _READ_SIZE // UNIT_SIZE
        return [(at, min(size, self.end - at)) for at in range(number, self.end, size)]

    def place_of(self, number: int, byte: int = 0) -> tuple[str, int]:
        """Return file and byte of a unit, whether or not it exists."""
        at = number * UNIT_SIZE
        start = at - at % self.file_size
        return f"{self.directory}/{start:020d}", at - start + byte

    def has_place(self, number: int) -> bool:
        """Tell whether a file is there and long enough for this unit."""
        at = number * UNIT_SIZE
        start = at - at % self.file_size
        return start in self._paths and self._paths[start][1] >= at - start + UNIT_SIZE

    def is_cut(self, number: int) -> bool:
        """Tell whether the unit's file is there and ends before it."""
        at = number * UNIT_SIZE
        start = at - at % self.file_size
        return start in self._paths and self._paths[start][1] < at - start + UNIT_SIZE
