"""The property blocks of many records as columns. numpy finds the pairs; the last of equal names in a row counts.

Names repeat from record to record. A bounded table of the names that the process has seen maps the first and last eight
bytes and the length of a name to its property. A name that is not in the table is compared as a whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aerobee.model.numbers import plain_int
from aerobee.model.sysproperties import is_system_property
from pyspark_rocketmq.columns.rows import PROPERTIES_AT, PROPERTIES_SIZE, Bytes, Ints, Mask
from pyspark_rocketmq.columns.text import gather, string_array

Words = npt.NDArray[np.uint64]

_KNOWN_MAX: Final = 512
_EXACT_SIZE_MAX: Final = 16
_BITMAP_MAX: Final = 1 << 20
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_SPREAD_LAST: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
# Masks for the first eight bytes, read as a little-endian word, of a name of 0 to 8 bytes.
_MASKS: Final[Words] = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


class Pairs:
    """The sound pairs of the property blocks, in order. A row has each name once."""

    def __init__(self, buf: bytes, rows: Ints) -> None:
        sizes, starts = rows[:, PROPERTIES_SIZE], rows[:, PROPERTIES_AT]
        stops = starts + sizes
        # If all blocks end with a separator, none is needed between them.
        glue = b"" if _are_closed(buf, sizes, stops) else b"\x02"
        blocks = [buf[at:end] for at, end in zip(starts.tolist(), stops.tolist(), strict=True)]
        # Eight more bytes, so that a word can be read at any place.
        self.data = glue.join(blocks) + glue + bytes(8)
        self.count = len(rows)
        u8 = np.frombuffer(self.data, np.uint8)
        ends = np.flatnonzero(u8 == 2)
        marks = np.flatnonzero(u8 == 1)
        first = np.empty_like(ends)
        first[:1] = 0
        first[1:] = ends[:-1] + 1
        if len(marks) != len(ends) or not ((marks > first) & (marks < ends - 1)).all():
            marks = np.append(marks, len(u8))
            marks = marks[np.searchsorted(marks, first)]
            sound = (marks > first) & (marks < ends - 1)
            first, marks, ends = first[sound], marks[sound], ends[sound]
        through = np.searchsorted(first, np.cumsum(sizes + len(glue)))
        self.row: Ints = np.repeat(np.arange(self.count), np.diff(through, prepend=0))
        self.name_at: Ints = first
        self.name_size: Ints = marks - first
        self.value_at: Ints = marks + 1
        self.value_size: Ints = ends - marks - 1
        self._u8 = u8
        self._is_system: Mask | None = None

    def value_of(self, name: str) -> tuple[Ints, Ints, Mask]:
        """Return where the value of one property lies in `data` for each row, its size, and whether there is one."""
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
        # numpy keeps the last assignment for equal rows, and so the last pair of equal names.
        rows = self.row[found]
        at[rows] = self.value_at[found]
        sizes[rows] = self.value_size[found]
        has[rows] = True
        return at, sizes, has

    def map_array(self, *, system: bool) -> pa.Array:
        """Return the MAP column of RocketMQ's own pairs, or of the user's."""
        keep = np.flatnonzero(self._classified() == system)
        offsets = np.searchsorted(self.row[keep], np.arange(self.count + 1)).astype(np.int32)
        names = string_array(gather(self.data, self.name_at[keep], self.name_size[keep]), self.name_size[keep])
        values = string_array(gather(self.data, self.value_at[keep], self.value_size[keep]), self.value_size[keep])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, values)

    def _classified(self) -> Mask:
        """Give each name a number, drop pairs that a later pair replaces, and mark RocketMQ's own pairs."""
        if self._is_system is not None:
            return self._is_system
        ids = _KNOWN.ids(self.data, self._u8, self.name_at, self.name_size)
        width = plain_int(ids.max(initial=0)) + 1
        last = _last_of_equal(self.row * width + ids, self.count * width)
        if last is not None:
            for name in ("row", "name_at", "name_size", "value_at", "value_size"):
                setattr(self, name, getattr(self, name)[last])
            ids = ids[last]
        self._is_system = _KNOWN.is_system(ids)
        return self._is_system


def _are_closed(buf: bytes, sizes: Ints, stops: Ints) -> bool:
    """Tell whether no block is empty and each ends with a separator."""
    return bool((sizes > 0).all()) and bool((np.frombuffer(buf, np.uint8)[stops - 1] == 2).all())


def _last_of_equal(cells: Ints, bound: int) -> Ints | None:
    """Return the places of the last of equal numbers, or None if no two are equal."""
    if bound <= _BITMAP_MAX:
        seen = np.zeros(bound, np.bool_)
        seen[cells] = True
        is_unique = np.count_nonzero(seen) == len(cells)
    else:
        ordered = np.sort(cells)
        is_unique = not (ordered[1:] == ordered[:-1]).any()
    if is_unique:
        return None
    _, from_end = np.unique(cells[::-1], return_index=True)
    return np.sort(len(cells) - 1 - from_end)


class _Names:
    """The property names that this process has seen. Numbers above the limit are valid for one call only."""

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
        """Tell which numbers of the last call of `ids` are names of RocketMQ's own properties."""
        return np.concatenate([self._system, np.array(self._passing, np.bool_)])[ids]

    def ids(self, data: bytes, u8: Bytes, at: Ints, sizes: Ints) -> Ints:
        """Return a number for each name. Equal names have equal numbers."""
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
            start = plain_int(at[index])
            # Names that differ only in bytes that are no UTF-8 are the same name, as in Message.
            name = data[start : start + plain_int(sizes[index])].decode("utf-8", "replace")
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
        """Sort the names by hash for the next call. If two names have the same hash, only one is in the table."""
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
    """Return the first and last eight bytes of each name, and a hash of both and the size.

    A name over 16 bytes gets a size that no entry of the table has, so that it is always compared as a whole.
    """
    # A view of the eight bytes at each place as numbers. It copies nothing, and the places need not be aligned.
    words: Words = np.ndarray((len(u8) - 7,), "<u8", u8, 0, (1,))
    first: Words = words[at] & _MASKS[np.minimum(sizes, 8)]
    last: Words = np.where(sizes > 8, words[np.maximum(at + sizes - 8, 0)], np.uint64(0))
    hashes: Words = first * _SPREAD + last * _SPREAD_LAST + sizes.astype(np.uint64)
    return first, last, hashes


_KNOWN: Final = _Names()
