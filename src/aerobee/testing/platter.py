"""What a recording disk keeps of each file and directory: what the process sees, what a power cut leaves,
and between the two, in order, every change that is not durable yet.

A change is the whole new content of one 512-byte sector, a new length of a file, or one directory operation.
Since a sector's content is taken whole from memory, any subset of the changes, applied in order, is a state
that the disk could have: an earlier version of a sector, or none. Changes of length are journalled by file
systems in order with what depends on them, so a lost shortening takes the later changes of its file along.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

SECTOR = 512
FLAT_BYTES_MAX = 1 << 20  # above, memory is an anonymous mapping: only pages that are touched exist


class SectorWrite(NamedTuple):
    """One sector of a file as it was after a write."""

    seq: int
    inode: Inode
    sector: int
    content: bytes


class LengthChange(NamedTuple):
    """A file made longer or shorter."""

    seq: int
    inode: Inode
    size: int
    is_shorter: bool


class NameChange(NamedTuple):
    """One directory operation: all of its entries are kept or none; None takes the name away."""

    seq: int
    what: str
    entries: list[tuple[Directory, str, Node | None]]


Change: TypeAlias = SectorWrite | LengthChange | NameChange


class Extents:
    """Which bytes of a file have blocks."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def missing(self, start: int, end: int) -> int:
        """Return how many bytes of [start, end) have none yet."""
        return (end - start) - sum(max(0, min(end, high) - max(start, low)) for low, high in self.ranges)

    def add(self, start: int, end: int) -> None:
        apart = []
        for low, high in self.ranges:
            if high < start or low > end:
                apart.append((low, high))
            else:
                start, end = min(start, low), max(end, high)
        apart.append((start, end))
        self.ranges = sorted(apart)

    def cut(self, size: int) -> int:
        """Free what lies behind `size`; how many bytes that was."""
        if not self.ranges or self.ranges[-1][1] <= size:
            return 0
        before = self.total()
        self.ranges = [(low, min(high, size)) for low, high in self.ranges if low < size]
        return before - self.total()

    def total(self) -> int:
        return sum(high - low for low, high in self.ranges)


class Inode:
    """A file, whatever names it has."""

    __slots__ = ("_memory", "changes", "durable", "durable_size", "extents", "size", "stale", "views")

    def __init__(self) -> None:
        # As the process sees it.
        self.size = 0
        # Sectors on the platter; a short one ends in zeros.
        self.durable: dict[int, bytes] = {}
        self.durable_size = 0
        # Sectors forgotten by a failed sync: in memory only, and held for clean.
        self.stale: dict[int, SectorWrite] = {}
        self.changes: list[SectorWrite | LengthChange] = []
        self.extents = Extents()
        # How many handles map it; while any does, its length is fixed.
        self.views = 0
        # Built on first use; zeros behind its end.
        self._memory: bytearray | mmap.mmap | None = None

    # --- what the process sees

    def memory(self, length: int) -> bytearray | mmap.mmap:
        """Return the contents, at least `length` bytes of them."""
        memory = self._memory
        if memory is None:
            memory = self._memory = self._build(length)
        elif len(memory) < length:
            grown = _allocate(max(length, min(self.size, 2 * len(memory))))
            grown[: len(memory)] = memory[:]
            memory = self._memory = grown
        return memory

    def _build(self, length: int) -> bytearray | mmap.mmap:
        sectors = self.sectors_seen()
        extent = max(sectors) * SECTOR + SECTOR if sectors else 0
        memory = _allocate(max(length, min(extent, self.size)))
        for sector, content in sectors.items():
            start = sector * SECTOR
            memory[start : start + len(content)] = content
        return memory

    def sectors_seen(self) -> Mapping[int, bytes]:
        if not self.changes and not self.stale:
            return self.durable
        # In the order made: a shortening not durable yet cuts what was forgotten before it, not after.
        sectors = dict(self.durable)
        _apply(sorted([*self.stale.values(), *self.changes], key=lambda change: change.seq), sectors)
        return _cut(sectors, self.size)

    def read(self, offset: int, size: int) -> bytes:
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        data = bytes(self.memory(0)[offset : offset + size])
        return data if len(data) == size else data + bytes(size - len(data))

    def view(self) -> memoryview:
        if not self.size:
            return memoryview(b"")
        return memoryview(self.memory(self.size))[: self.size].toreadonly()

    # --- changes; each returns the next free sequence number

    def write(self, offset: int, data: bytes | bytearray | memoryview, seq: int) -> int:
        if not len(data):
            return seq
        end = offset + len(data)
        if end > self.size:
            seq = self._set_size(end, seq)
        memory = self.memory(end)
        memory[offset:end] = data
        return self._note_sectors(offset, end, seq)

    def truncate(self, size: int, seq: int) -> int:
        if size < self.size:
            memory = self.memory(0)
            seq = self._set_size(size, seq)
            if len(memory) > size:
                memory[size : len(memory)] = bytes(len(memory) - size)
            self._cut_stale(size)
            if size % SECTOR:
                seq = self._note_sectors(size, size, seq)
        elif size > self.size:
            seq = self._set_size(size, seq)
        return seq

    def _cut_stale(self, size: int) -> None:
        kept = _cut({sector: write.content for sector, write in self.stale.items()}, size)
        self.stale = {at: self.stale[at]._replace(content=content) for at, content in kept.items()}

    def _set_size(self, size: int, seq: int) -> int:
        if self.views:
            raise ValueError("the length of a mapped file must not change")
        self.changes.append(LengthChange(seq, self, size, size < self.size))
        self.size = size
        return seq + 1

    def _note_sectors(self, start: int, end: int, seq: int) -> int:
        memory = self.memory(0)
        note = self.changes.append
        for sector in range(start // SECTOR, max(start // SECTOR + 1, (end + SECTOR - 1) // SECTOR)):
            at = sector * SECTOR
            note(SectorWrite(seq, self, sector, bytes(memory[at : min(at + SECTOR, self.size)])))
            seq += 1
        return seq

    def flip(self, offset: int, mask: int) -> None:
        """Flip bits as rot does, in memory and on the platter; no change is noted."""
        memory = self.memory(offset + 1)  # built before the platter changes
        sector, at = divmod(offset, SECTOR)
        self.durable[sector] = _flipped(self.durable.get(sector, b""), at, mask)
        if sector in self.stale:
            forgotten = self.stale[sector]
            self.stale[sector] = forgotten._replace(content=_flipped(forgotten.content, at, mask))
        memory[offset] = memory[offset] ^ mask

    # --- durability

    def sync(self, seq_end: int) -> None:
        """Bring every change before `seq_end` to the platter."""
        done = [change for change in self.changes if change.seq < seq_end]
        self.changes = self.changes[len(done) :]
        for change in done:
            if isinstance(change, SectorWrite):
                self.stale.pop(change.sector, None)
            else:
                self.durable_size = change.size
        _apply(done, self.durable)

    def forget(self) -> None:
        """Fail a sync: sectors count as clean though they never reached the platter. Lengths are journalled apart."""
        lengths: list[SectorWrite | LengthChange] = []
        for change in self.changes:
            if isinstance(change, SectorWrite):
                self.stale[change.sector] = change
            else:
                lengths.append(change)
                if change.is_shorter:
                    self._cut_stale(change.size)
        self.changes = lengths

    def after_cut(self, kept: Collection[int], torn: Mapping[int, bytes]) -> Inode:
        """Return the file that the next start finds, of these changes; `torn` replaces some contents."""
        sectors = dict(self.durable)
        size = self.durable_size
        survived: list[SectorWrite | LengthChange] = []
        for change in self.changes:
            if change.seq in kept:
                if change.seq in torn and isinstance(change, SectorWrite):
                    old = sectors.get(change.sector, b"")
                    survived.append(change._replace(content=tear(old, change.content, torn[change.seq])))
                else:
                    survived.append(change)
            elif isinstance(change, LengthChange) and change.is_shorter:
                break
        _apply(survived, sectors)
        for change in survived:
            if isinstance(change, LengthChange):
                size = change.size
        new = Inode()
        new.size = new.durable_size = size
        new.durable = _cut(sectors, size)
        new._take_extents(self)
        return new

    def after_kill(self) -> Inode:
        """Return the same file for the next process: the page cache lives on, and nothing more is synced."""
        new = Inode()
        new.size, new.durable_size = self.size, self.durable_size
        new.durable = dict(self.durable)
        new.stale = {sector: write._replace(inode=new) for sector, write in self.stale.items()}
        new.changes = [change._replace(inode=new) for change in self.changes]
        new._take_extents(self)
        return new

    def _take_extents(self, old: Inode) -> None:
        self.extents.ranges = [(low, min(high, self.size)) for low, high in old.extents.ranges if low < self.size]


class Directory:
    """Names, as the process sees them and as the platter has them."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = Inode | Directory


def tear(old: bytes, new: bytes, mask: bytes) -> bytes:
    """Return bytes of `new` where the mask has a bit, of `old` elsewhere."""
    size = max(len(old), len(new))
    old, new = old.ljust(size, b"\0"), new.ljust(size, b"\0")
    return bytes(new[at] if mask[at] else old[at] for at in range(size))


def _apply(changes: list[SectorWrite | LengthChange], sectors: dict[int, bytes]) -> None:
    for change in changes:
        if isinstance(change, SectorWrite):
            sectors[change.sector] = change.content
        elif change.is_shorter:
            _cut(sectors, change.size)


def _cut(sectors: dict[int, bytes], size: int) -> dict[int, bytes]:
    """Remove, in place, everything at or behind `size`."""
    last, rest = divmod(size, SECTOR)
    if sectors and max(sectors) >= last:
        for sector in [sector for sector in sectors if sector >= last]:
            if sector == last and rest:
                sectors[sector] = sectors[sector][:rest]
            else:
                del sectors[sector]
    return sectors


def _flipped(content: bytes, at: int, mask: int) -> bytes:
    wrong = bytearray(content.ljust(at + 1, b"\0"))
    wrong[at] ^= mask
    return bytes(wrong)


def _allocate(size: int) -> bytearray | mmap.mmap:
    return bytearray(size) if size <= FLAT_BYTES_MAX else mmap.mmap(-1, size)
