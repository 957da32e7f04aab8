"""Owns the property blocks of many records as columns: pairs found with numpy, told apart by name, last one wins.

Names repeat from record to record, so each is looked at once for a process: a table of the names seen, bounded, says
for the first and last eight bytes and the length whose property it is. What the table does not know is asked by name.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aerobee.model.sysproperties import is_system_property
from pyspark_rocketmq.columns.rows import PROPERTIES_AT, PROPERTIES_SIZE, Bytes, Ints, Mask
from pyspark_rocketmq.columns.text import gather, string_array

Words = npt.NDArray[np.uint64]

_KNOWN_MAX: Final = 512
_EXACT_SIZE_MAX: Final = 16
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_SPREAD_LAST: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
# What stays of the first eight bytes, read as a little-endian word, of a name of 0 to 8 bytes.
_MASKS: Final[Words] = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


class Pairs:
    """The sound pairs of the rows' property blocks, in order, each name once a row."""

    def __init__(self, buf: bytes, rows: Ints) -> None:
        sizes = rows[:, PROPERTIES_SIZE]
        view = memoryview(buf)
        starts = rows[:, PROPERTIES_AT]
        slices = [view[at:end] for at, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
        # Eight bytes more than there are, so that a word can be read at any place.
        self.data = b"\x02".join(slices) + b"\x02" + bytes(8)
        self.count = len(rows)
        u8 = np.frombuffer(self.data, np.uint8)
        ends = np.flatnonzero(u8 == 2)
        marks = np.append(np.flatnonzero(u8 == 1), len(u8))
        first = np.empty_like(ends)
        first[:1] = 0
        first[1:] = ends[:-1] + 1
        mark = marks[np.searchsorted(marks, first)]
        sound = (mark > first) & (mark < ends - 1)
        if not sound.all():
            first, mark, ends = first[sound], mark[sound], ends[sound]
        self.row: Ints = np.searchsorted(np.cumsum(sizes + 1), first, side="right")
        self.name_at: Ints = first
        self.name_size: Ints = mark - first
        self.value_at: Ints = mark + 1
        self.value_size: Ints = ends - mark - 1
        self._u8 = u8
        self._is_system: Mask | None = None

    def value_of(self, name: str) -> tuple[Ints, Ints, Mask]:
        """Where each row's value of one property lies in `data`, its size, and whether there is one."""
        wanted = np.frombuffer(name.encode(), np.uint8)
        found = np.flatnonzero(self.name_size == len(wanted))
        if len(found):
            place = self.name_at[found]
            same = np.ones(len(found), np.bool_)
            for index, byte in enumerate(wanted):
                same &= self._u8[place + index] == byte
            found = found[same]
        at = np.zeros(self.count, np.int64)
        sizes = np.zeros(self.count, np.int64)
        has = np.zeros(self.count, np.bool_)
        # Of equal rows the last assignment counts, as of equal names the last pair.
        rows = self.row[found]
        at[rows] = self.value_at[found]
        sizes[rows] = self.value_size[found]
        has[rows] = True
        return at, sizes, has

    def map_array(self, *, system: bool) -> pa.Array:
        """The MAP column of RocketMQ's own pairs, or of the user's."""
        keep = np.flatnonzero(self._classified() == system)
        offsets = np.searchsorted(self.row[keep], np.arange(self.count + 1)).astype(np.int32)
        names = string_array(gather(self.data, self.name_at[keep], self.name_size[keep]), self.name_size[keep])
        values = string_array(gather(self.data, self.value_at[keep], self.value_size[keep]), self.value_size[keep])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, values)

    def _classified(self) -> Mask:
        """Name each pair by a number, drop those that a later pair of the row replaces, tell whose the rest are."""
        if self._is_system is not None:
            return self._is_system
        ids = _KNOWN.ids(self.data, self._u8, self.name_at, self.name_size)
        width = int(ids.max(initial=0)) + 1
        cells = self.row * width + ids
        last = _last_of_equal(cells)
        if last is not None:
            for name in ("row", "name_at", "name_size", "value_at", "value_size"):
                setattr(self, name, getattr(self, name)[last])
            ids = ids[last]
        self._is_system = _KNOWN.is_system(ids)
        return self._is_system


def _last_of_equal(cells: Ints) -> Ints | None:
    """The places that stay when only the last of equal numbers does, None when no two are equal."""
    ordered = np.sort(cells)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    _, from_end = np.unique(cells[::-1], return_index=True)
    return np.sort(len(cells) - 1 - from_end)


class _Names:
    """The property names seen by this process. Numbers above the bound live for one call only."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._system = np.zeros(0, np.bool_)
        self._passing: list[bool] = []
        self._hashes: Words = np.full(1, _ALL)
        self._first: Words = np.zeros(1, np.uint64)
        self._last: Words = np.zeros(1, np.uint64)
        self._sizes = np.full(1, -1, np.int64)
        self._index = np.zeros(1, np.int64)

    def is_system(self, ids: Ints) -> Mask:
        """Whether RocketMQ itself gives these names, by the numbers of the last call of `ids`, their meaning."""
        return np.concatenate([self._system, np.array(self._passing, np.bool_)])[ids]

    def ids(self, data: bytes, u8: Bytes, at: Ints, sizes: Ints) -> Ints:
        """A number for each name: equal names have equal numbers."""
        first, last, hashes = _words(u8, at, sizes)
        place = np.searchsorted(self._hashes, hashes)
        same = (self._hashes[place] == hashes) & (self._first[place] == first)
        same &= (self._last[place] == last) & (self._sizes[place] == sizes)
        result = np.where(same, self._index[place], -1)
        self._passing = []
        unknown = np.flatnonzero(~same)
        if len(unknown):
            self._ask(data, at, sizes, unknown, result)
        return result

    def _ask(self, data: bytes, at: Ints, sizes: Ints, unknown: Ints, result: Ints) -> None:
        passing: dict[str, int] = {}
        learned = len(self._numbers)
        for index in unknown.tolist():
            start = int(at[index])
            # As Message does: names that differ only in what is no UTF-8 are one name.
            name = data[start : start + int(sizes[index])].decode("utf-8", "replace")
            number = self._numbers.get(name)
            if number is None and len(self._numbers) < _KNOWN_MAX:
                number = self._numbers[name] = len(self._numbers)
            if number is None:
                number = passing.setdefault(name, _KNOWN_MAX + len(passing))
            result[index] = number
        if len(self._numbers) > learned:
            self._rebuild()
        self._passing = [is_system_property(name) for name in passing]

    def _rebuild(self) -> None:
        """Sort the names by hash for the next call; a name whose hash another one has is left to be asked."""
        self._system = np.array([is_system_property(name) for name in self._numbers], np.bool_)
        names = {name: name.encode() for name in self._numbers}
        short = [name for name, raw in names.items() if len(raw) <= _EXACT_SIZE_MAX]
        sizes = np.array([len(names[name]) for name in short], np.int64)
        data = b"".join(names[name] for name in short) + bytes(8)
        first, last, hashes = _words(np.frombuffer(data, np.uint8), np.cumsum(sizes) - sizes, sizes)
        hashes, order = np.unique(hashes, return_index=True)
        numbers = np.array([self._numbers[name] for name in short], np.int64)
        self._hashes = np.append(hashes, _ALL)
        self._first = np.append(first[order], np.uint64(0))
        self._last = np.append(last[order], np.uint64(0))
        self._sizes = np.append(sizes[order], -1)
        self._index = np.append(numbers[order], 0)


def _words(u8: Bytes, at: Ints, sizes: Ints) -> tuple[Words, Words, Words]:
    """First and last eight bytes of each name, and a hash of both and the size. Names over 16 bytes get a size that
    no entry of the table has, so they are always asked by name."""
    words = np.lib.stride_tricks.sliding_window_view(u8, 8)
    first: Words = words[at].view("<u8").reshape(len(at)) & _MASKS[np.minimum(sizes, 8)]
    last: Words = np.where(sizes > 8, words[np.maximum(at + sizes - 8, 0)].view("<u8").reshape(len(at)), np.uint64(0))
    hashes: Words = first * _SPREAD + last * _SPREAD_LAST + sizes.astype(np.uint64)
    return first, last, hashes


_KNOWN: Final = _Names()
