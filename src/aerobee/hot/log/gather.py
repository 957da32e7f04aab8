"""Records of one queue taken out of the log: each is checked to be the one its queue unit means.

RocketMQ: DefaultMessageStore.getMessage, which trusts the unit.
"""

from __future__ import annotations

from typing import Final, Protocol

from librt.strings import read_i16_be, read_i32_be, read_i64_be, read_i64_le
from mypy_extensions import i64

from aerobee.hot.log.check import VERIFY_RECORD, check_record
from aerobee.hot.log.layout import BORNHOST_V6, FIXED_SIZE, MAGIC_V1, MAGIC_V2, STOREHOST_V6, UNIT_SIZE
from aerobee.hot.log.units import Selection

_STRETCH_MAX: Final = 1024 * 1024
_DENSE: Final = 4
_SPARE: Final = 4096
# Out of a mapping, so many bytes of other queues are copied along sooner than another slice of it is made, which takes
# three objects; a slice of bytes takes one. In all as much as stays in the processor's cache.
_GAP_MAX: Final = 2048
_MAPPED_MAX: Final = 64 * 1024
_MAGIC_MASK: Final = 0xFFFFFFFF
_MAGIC_1: Final = MAGIC_V1 & _MAGIC_MASK
_MAGIC_2: Final = MAGIC_V2 & _MAGIC_MASK


class Mapped(Protocol):
    """A file in memory whose slices are copies."""

    def __getitem__(self, part: slice, /) -> bytes: ...


class Gathered:
    """What a selection gave."""

    def __init__(self) -> None:
        # Whole records in order; those that lie end to end are one piece.
        self.pieces: list[bytes | memoryview] = []
        self.size: i64 = 0
        # Places in the selection whose record is another one, or damaged.
        self.wrong: list[int] = []


def is_record_of(
    buf: bytes, pos: i64, size: i64, physical_offset: i64, queue_id: i64, queue_offset: i64, topic: bytes
) -> bool:
    """Whether the `size` bytes at `pos` say that they are this very record."""
    return _is_record(buf, pos, size, physical_offset, queue_id, queue_offset, topic, _first_word(topic))


def _first_word(topic: bytes) -> i64:
    """What is shorter than eight bytes, as a number: compared at once for each record."""
    return int.from_bytes(topic, "little", signed=True) if len(topic) < 8 else 0


def _is_record(
    buf: bytes,
    pos: i64,
    size: i64,
    physical_offset: i64,
    queue_id: i64,
    queue_offset: i64,
    topic: bytes,
    first_word: i64,
) -> bool:
    if size < FIXED_SIZE or pos < 0 or pos + size > len(buf):
        return False
    word: i64 = read_i64_be(buf, pos)
    magic: i64 = word & _MAGIC_MASK
    if word >> 32 != size or (magic != _MAGIC_1 and magic != _MAGIC_2):
        return False
    if i64(read_i32_be(buf, pos + 12)) != queue_id:
        return False
    if read_i64_be(buf, pos + 20) != queue_offset or read_i64_be(buf, pos + 28) != physical_offset:
        return False
    flags: i64 = i64(read_i32_be(buf, pos + 36))
    at: i64 = pos + 84
    if flags & BORNHOST_V6:
        at += 12
    if flags & STOREHOST_V6:
        at += 12
    body: i64 = i64(read_i32_be(buf, at))
    at += 4 + body
    end: i64 = pos + size
    if body < 0 or at + 2 > end:
        return False
    length: i64 = buf[at]
    at += 1
    if magic == _MAGIC_2:
        length = i64(read_i16_be(buf, at - 1))
        at += 1
    if length != len(topic) or at + length > end:
        return False
    # Not by a slice, which would be an object for each record.
    if length < 8:
        # The word that ends with the topic: a record's fixed fields stand before it.
        return length == 0 or read_i64_le(buf, at + length - 8) >> (64 - length * 8) == first_word
    i: i64 = 0
    while i + 8 <= length:
        if read_i64_be(buf, at + i) != read_i64_be(topic, i):
            return False
        i += 8
    return read_i64_be(buf, at + length - 8) == read_i64_be(topic, length - 8)


def dense_stretch(chosen: Selection, first: int, segment_size: int) -> tuple[int, int]:
    """How far one copy of the log from record `first` on is worth it: (the record it ends before, its size).

    Records of other queues lie between; up to three times as many bytes as wanted are copied along.
    """
    base: i64 = chosen.physical_offset(first)
    limit: i64 = base - base % segment_size + segment_size
    wanted: i64 = chosen.size(first)
    end: i64 = base + wanted
    count: i64 = chosen.count
    i: i64 = first + 1
    stop: i64 = i
    best: i64 = end
    while i < count:
        physical: i64 = chosen.physical_offset(i)
        size: i64 = chosen.size(i)
        if physical < end or physical + size > limit or physical + size - base > _STRETCH_MAX:
            break
        end = physical + size
        wanted += size
        i += 1
        if end - base <= wanted * _DENSE + _SPARE:
            stop = i
            best = end
    return stop, best - base


def gather_records(
    into: Gathered,
    buf: bytes,
    base: int,
    chosen: Selection,
    first: int,
    stop: int,
    queue_id: int,
    queue_offset: int,
    topic: bytes,
    verify_below: int,
) -> None:
    """The records [first, stop) of a selection, out of `buf`, which holds the log from `base` on.

    `queue_offset` is that of the selection's unit 0. Records below the place `verify_below` are summed too.
    """
    begin: i64 = base
    units = chosen.buf
    scattered = chosen.scattered
    unit: i64 = chosen.first + first
    word: i64 = _first_word(topic)
    # Sound records behind each other are taken as one piece, [taken_from, taken_to) of the buffer.
    taken_from: i64 = 0
    taken_to: i64 = 0
    i: i64 = first
    while i < stop:
        if scattered is not None:
            unit = scattered[i]
        physical: i64 = read_i64_be(units, unit * UNIT_SIZE)
        size: i64 = i64(read_i32_be(units, unit * UNIT_SIZE + 8))
        at: i64 = physical - begin
        right = _is_record(buf, at, size, physical, queue_id, queue_offset + unit, topic, word)
        unit += 1
        if right and physical < verify_below:
            right = check_record(buf, at, physical, VERIFY_RECORD) == size
        if not right:
            into.wrong.append(i)
        elif at == taken_to:
            taken_to += size
        else:
            _take(into, buf, taken_from, taken_to)
            taken_from = at
            taken_to = at + size
        i += 1
    _take(into, buf, taken_from, taken_to)


def _take(into: Gathered, buf: bytes, start: i64, stop: i64) -> None:
    if stop > start:
        into.pieces.append(buf if stop - start == len(buf) else buf[start:stop])
        into.size += stop - start


def gather_mapped(
    into: Gathered,
    mapped: Mapped,
    base: int,
    length: int,
    chosen: Selection,
    first: int,
    queue_id: int,
    queue_offset: int,
    topic: bytes,
    verify_below: int,
) -> int:
    """As gather_records, out of a segment of `length` bytes from `base` on; returns the first record beyond it.

    Records that lie close together are one copy of the mapping, out of which each is then taken.
    """
    begin: i64 = base
    limit: i64 = begin + length
    count: i64 = chosen.count
    units = chosen.buf
    scattered = chosen.scattered
    i: i64 = first
    while i < count:
        physical: i64 = chosen.physical_offset(i)
        if physical < begin or physical >= limit:
            break
        end: i64 = physical + chosen.size(i)
        stop: i64 = i + 1
        while stop < count:
            unit: i64 = chosen.first + stop
            if scattered is not None:
                unit = scattered[stop]
            following: i64 = read_i64_be(units, unit * UNIT_SIZE)
            following_end: i64 = following + i64(read_i32_be(units, unit * UNIT_SIZE + 8))
            if following < end or following > end + _GAP_MAX:
                break
            if following_end > limit or following_end > physical + _MAPPED_MAX:
                break
            end = following_end
            stop += 1
        piece = mapped[int(physical - begin) : int(end - begin)]
        if stop == i + 1 and physical >= verify_below:
            # Where many queues take turns in the log.
            if is_record_of(piece, 0, end - physical, physical, queue_id, queue_offset + chosen.unit(i), topic):
                into.pieces.append(piece)
                into.size += end - physical
            else:
                into.wrong.append(i)
        else:
            gather_records(into, piece, physical, chosen, i, stop, queue_id, queue_offset, topic, verify_below)
        i = stop
    return i
