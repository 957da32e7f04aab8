"""One index file: a hash table from message keys to physical offsets. RocketMQ: IndexFile, IndexHeader.

The layout is in `hot/log/layout.py`. The newest file's slots live in memory. They are written when the file is full or
closed. Until then its header says that 0 slots are in use, and a start builds them again from the entries. Entries are
only ever added, and the header counts them after they were synced. So whatever a crash leaves, the header is true about
everything below its count. Otherwise the last entry shows that it is not, and the file is built again from the log.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final

from librt.vecs import vec
from mypy_extensions import i32

from aerobee.errors import DiskFullError
from aerobee.hot.log.index import IndexPut, empty_slots, follow_slots, slots_are_below, slots_in_use, slots_of
from aerobee.hot.log.javahash import java_hash
from aerobee.hot.log.layout import (
    INDEX_ENTRY_FORMAT,
    INDEX_ENTRY_SIZE,
    INDEX_FIRST_COUNT,
    INDEX_HEADER_FORMAT,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
)
from aerobee.runtime.seams import Disk, File
from aerobee.store.diskrules import require_room, sync_file

_HEADER: Final = struct.Struct(INDEX_HEADER_FORMAT)
ENTRY: Final = struct.Struct(INDEX_ENTRY_FORMAT)
_TAIL_MAX: Final = 1 << 20
_BUILD_ENTRIES: Final = 65536
_INT_MAX: Final = 2**31 - 1

# A walk asks for (file, offset, size) and is sent the bytes.
Walk = Generator[tuple[File, int, int], bytes, None]


def key_hash(key: str) -> int:
    """Return the hash of a key: the absolute value, 0 where that overflows. RocketMQ: IndexFile.indexKeyHashMethod."""
    found = abs(java_hash(key))
    return 0 if found > _INT_MAX else found


@dataclass(slots=True)
class IndexHeader:
    """The header's values."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_used: int = 0
    count: int = INDEX_FIRST_COUNT

    def encode(self) -> bytes:
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count,
        )


def decode_header(data: bytes) -> IndexHeader:
    """Return the header that a file begins with."""
    return IndexHeader(*_HEADER.unpack_from(data))


class IndexFile:
    """One open index file. `begin_writing` prepares it to take entries, which only the newest file does."""

    def __init__(self, disk: Disk, path: str, slot_count: int, entry_count: int, *, create: bool = False) -> None:
        self._disk = disk
        self.path = path
        self.name = path.rpartition("/")[2]
        self.slot_count = slot_count
        self.entry_count = entry_count
        self.size = INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE + entry_count * INDEX_ENTRY_SIZE
        self.file = disk.open(path, create=create)
        self.header = IndexHeader()
        self.problem: str | None = None
        self._entries_at = INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE
        self._slots: vec[i32] | None = None
        self._slots_on_disk = False  # the file's slots are those of its entries
        self._tail = bytearray()  # entries that were not yet written
        self._tail_from = 1  # the number of the first of them
        self._on_disk = IndexHeader()  # what the file's header says
        self._header_unsynced = False
        self._next_header: IndexHeader | None = None  # what the header becomes once the last flush is synced
        self.durable = IndexHeader()  # what the header is sure to say after a crash
        if create:
            try:
                self.file.truncate(self.size)
            except BaseException:
                self.file.close()
                raise
            self._slots = empty_slots(slot_count)
        elif self.file.size() != self.size:
            self.problem = f"{self.file.size()} bytes long, not {self.size}"
        else:
            self._read_header()

    def _read_header(self) -> None:
        header = decode_header(self.file.read(0, INDEX_HEADER_SIZE))
        if header.count <= 0:
            header.count = INDEX_FIRST_COUNT  # RocketMQ: IndexHeader.load
        if header.count > self.entry_count or header.slots_used < 0:
            self.problem = f"its header counts {header.count} entries of {self.entry_count}"
        elif header.count > 1 and not self._agrees(header):
            self.problem = "its header and its entries do not agree"
        else:
            self.header = header
            self._tail_from = header.count
            self._slots_on_disk = header.slots_used > 0
            self._on_disk = replace(header)
            self.durable = replace(header)

    def _agrees(self, header: IndexHeader) -> bool:
        """Tell whether first and last entry are those the header names. A header torn by a crash is found this way."""
        _, first, _, _ = self._entry(1)
        _, last, seconds, _ = self._entry(header.count - 1)
        if first != header.begin_offset or last != header.end_offset:
            return False
        if header.count == 2:
            return header.begin_timestamp == header.end_timestamp
        return seconds == _seconds(header.end_timestamp - header.begin_timestamp)

    @property
    def full(self) -> bool:
        """Tell whether the file takes no more entries."""
        return self.header.count >= self.entry_count

    @property
    def empty(self) -> bool:
        """Tell whether the file holds no entries."""
        return self.header.count <= 1

    @property
    def settled(self) -> bool:
        """Tell whether a crash would take nothing of the file."""
        return self.durable.count == self.header.count

    @property
    def sealed(self) -> bool:
        """Tell whether the file is settled with its slots, as an older file must be."""
        return self._slots_on_disk and self.settled and self.durable.slots_used > 0

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        if self._tail and number >= self._tail_from:
            found = ENTRY.unpack_from(self._tail, (number - self._tail_from) * INDEX_ENTRY_SIZE)
        else:
            found = ENTRY.unpack(self.file.read(self._entries_at + number * INDEX_ENTRY_SIZE, INDEX_ENTRY_SIZE))
        hashed, offset, seconds, older = found
        return hashed, offset, seconds, older

    # Writing

    def begin_writing(self) -> bool:
        """Bring the slots into memory. Return False where the file is found unusable (`problem` says why)."""
        if self._slots is None and self._slots_on_disk:
            numbers = array("i")
            numbers.frombytes(self.file.read(INDEX_HEADER_SIZE, self.slot_count * INDEX_SLOT_SIZE))
            if sys.byteorder == "little":
                numbers.byteswap()
            slots = slots_of(numbers)
            if slots_are_below(slots, self.header.count):
                self._slots = slots
        return self._slots is not None or self._build_slots()

    def _build_slots(self) -> bool:
        """Build the slots from the entries, each of which must name the one before it in its slot."""
        slots = empty_slots(self.slot_count)
        number = 1
        while number < self.header.count:
            several = min(self.header.count - number, _BUILD_ENTRIES)
            data = self.file.read(self._entries_at + number * INDEX_ENTRY_SIZE, several * INDEX_ENTRY_SIZE)
            stray = follow_slots(slots, data, number)
            if stray:
                self.problem = f"entry {stray} does not name the one before it in its slot"
                return False
            number += several
        self._slots = slots
        self._slots_on_disk = False
        self.header.slots_used = slots_in_use(slots)
        return True

    def put(self, hashed: int, offset: int, store_timestamp: int) -> None:
        """Add an entry to the newest file, which must not be full."""
        slots = self._slots
        assert slots is not None
        header = self.header
        slot = hashed % self.slot_count
        older = slots[slot]
        number = header.count
        if number <= 1:
            header.begin_offset = offset
            header.begin_timestamp = store_timestamp
        if older == 0:
            header.slots_used += 1
        self._tail += ENTRY.pack(hashed, offset, _seconds(store_timestamp - header.begin_timestamp), older)
        slots[slot] = number
        self._slots_on_disk = False
        header.count = number + 1
        header.end_offset = offset
        header.end_timestamp = store_timestamp
        if len(self._tail) >= _TAIL_MAX:
            self._write_tail()

    def put_all(self, put: IndexPut) -> None:
        """Add entries for the drafts of `put`, as many as this file takes."""
        slots = self._slots
        assert slots is not None
        header = self.header
        before = header.count
        header.count = put.fill(slots, before, self.entry_count, header.begin_timestamp)
        if header.count == before:
            return
        if before <= 1:
            header.begin_offset = put.begin_offset
            header.begin_timestamp = put.begin_timestamp
        header.slots_used += put.slots_added
        header.end_offset = put.end_offset
        header.end_timestamp = put.end_timestamp
        self._tail += put.entries
        self._slots_on_disk = False

    def write_if_large(self) -> None:
        """Keep the memory of waiting entries bounded."""
        if len(self._tail) >= _TAIL_MAX:
            self._write_tail()

    def _write_tail(self) -> None:
        if self._tail:
            require_room(self._disk, self.path, len(self._tail))
            self.file.write(self._entries_at + self._tail_from * INDEX_ENTRY_SIZE, bytes(self._tail))
            self._tail.clear()
        self._tail_from = self.header.count

    def _write_slots(self) -> None:
        if self._slots is None or self._slots_on_disk:
            return
        require_room(self._disk, self.path, self.slot_count * INDEX_SLOT_SIZE)
        slots = array("i")
        slots.frombytes(memoryview(self._slots).cast("B"))
        if sys.byteorder == "little":
            slots.byteswap()
        self.file.write(INDEX_HEADER_SIZE, slots.tobytes())
        self._slots_on_disk = True

    def flush(self, *, with_slots: bool | None = None) -> bool:
        """Write the entries, and the slots of a full file unless told otherwise.

        Return True where a sync must follow, and then `flushed`.
        """
        self._write_tail()
        if (self.full if with_slots is None else with_slots) and not self._on_disk.slots_used:
            self._write_slots()
        wanted = replace(self.header) if self._slots_on_disk else replace(self.header, slots_used=0)
        if self._on_disk.slots_used and not self._slots_on_disk:
            # This is written alone first: a header torn by a crash must not pair the old slots with a new count.
            wanted = replace(self._on_disk, slots_used=0)
        self._next_header = wanted if wanted != self._on_disk else None
        return self._next_header is not None or self._header_unsynced

    def flushed(self) -> None:
        """Count what the last `flush` wrote, which was synced. The next flush syncs the header itself."""
        if self._header_unsynced:
            self.durable = self._on_disk
            self._header_unsynced = False
        if self._next_header is not None:
            self.file.write(0, self._next_header.encode())
            self._on_disk = self._next_header
            self._next_header = None
            self._header_unsynced = True

    def save(self) -> None:
        """Make everything durable with its slots, blocking.

        Where there is no room for the slots they are left out: a start builds them again from the entries.
        """
        try:
            while self.flush(with_slots=True):
                sync_file(self.file)
                self.flushed()
        except DiskFullError:
            while self.flush(with_slots=False):
                sync_file(self.file)
                self.flushed()

    def release_slots(self) -> None:
        """Free the memory of a sealed file."""
        self._slots = None

    def cut(self, physical_offset: int) -> bool:
        """Forget, durably, the entries of records at or beyond the offset. Return False where the file is unusable."""
        self._write_tail()
        low, high = 1, self.header.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < physical_offset:
                low = middle + 1
            else:
                high = middle
        if low == self.header.count:
            return True
        if low == 1:
            self.header = IndexHeader()
        else:
            _, self.header.end_offset, seconds, _ = self._entry(low - 1)
            if low == 2:
                self.header.end_timestamp = self.header.begin_timestamp
            else:
                # The entry has whole seconds only. A time too late is harmless; one too early would hide the entry.
                newest = self.header.begin_timestamp + seconds * 1000 + 999
                self.header.end_timestamp = min(self.header.end_timestamp, newest)
        self.header.count = self._tail_from = low
        self._slots = None
        self._slots_on_disk = False
        if not self._build_slots():
            return False
        while self.flush():
            sync_file(self.file)
            self.flushed()
        return True

    # Reading

    def matches_time(self, begin: int, end: int) -> bool:
        """Tell whether the file has records of this time span. RocketMQ: IndexFile.isTimeMatched."""
        return begin <= self.header.end_timestamp and end >= self.header.begin_timestamp

    def walk(self, hashed: int, limit: int, begin: int, end: int, found: list[int]) -> Walk:
        """Add the offsets of a hash's entries, newest first. RocketMQ: IndexFile.selectPhyOffset."""
        slot = hashed % self.slot_count
        count = self.header.count
        if self._slots is not None:
            number = self._slots[slot]
        else:
            data = yield self.file, INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE, INDEX_SLOT_SIZE
            number = int.from_bytes(data, "big", signed=True)
        while 0 < number < count and len(found) < limit:
            if number >= self._tail_from and self._tail:
                entry = self._entry(number)
            else:
                data = yield self.file, self._entries_at + number * INDEX_ENTRY_SIZE, INDEX_ENTRY_SIZE
                entry = ENTRY.unpack(data)
            at_hash, offset, seconds, older = entry
            if seconds < 0:
                return
            time = self.header.begin_timestamp + seconds * 1000
            # Seconds are cut, so an entry may be up to 999 ms younger than it says.
            if at_hash == hashed and begin - 999 <= time <= end:
                found.append(offset)
            if time < begin - 999 or older >= number:
                return
            number = older

    def close(self) -> None:
        self.file.close()


def _seconds(milliseconds: int) -> int:
    """Return whole seconds, never below 0 nor above the largest int. RocketMQ: IndexFile.putKey."""
    return min(max(milliseconds, 0) // 1000, _INT_MAX)
