"""Records of one queue taken out of a stretch of the log: each is checked to be the one its queue unit means.

RocketMQ: DefaultMessageStore.getMessage, which trusts the unit.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from aerobee.hot.check import VERIFY_RECORD, check_record
from aerobee.hot.layout import BORNHOST_V6, FIXED_SIZE, MAGIC_V1, MAGIC_V2, STOREHOST_V6
from aerobee.hot.units import Selection

_STRETCH_MAX: Final = 1024 * 1024
_DENSE: Final = 4
_SPARE: Final = 4096


class Gathered:
    """What a stretch gave."""

    def __init__(self) -> None:
        self.records: bytes = b""
        self.queue_offsets: list[int] = []
        # Places in the selection whose record is another one, or damaged.
        self.wrong: list[int] = []


def is_record_of(
    buf: bytes, pos: i64, size: i64, physical_offset: i64, queue_id: i64, queue_offset: i64, topic: bytes
) -> bool:
    """Whether the `size` bytes at `pos` say that they are this very record."""
    if size < FIXED_SIZE or pos < 0 or pos + size > len(buf):
        return False
    magic: i64 = i64(read_i32_be(buf, pos + 4))
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    if i64(read_i32_be(buf, pos)) != size or i64(read_i32_be(buf, pos + 12)) != queue_id:
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
    if magic == MAGIC_V2:
        length = i64(read_i16_be(buf, at - 1))
        at += 1
    if length != len(topic) or at + length > end:
        return False
    return buf[at : at + length] == topic


def dense_stretch(chosen: Selection, first: int, segment_size: int) -> tuple[int, int]:
    """How far one copy of the log from record `first` on is worth it: (the record it ends before, its size).

    Records of other queues lie between; up to three times as many bytes as wanted are copied along.
    """
    base: i64 = chosen.physical_offsets[first]
    limit: i64 = base - base % segment_size + segment_size
    end: i64 = base + chosen.sizes[first]
    wanted: i64 = chosen.sizes[first]
    count: i64 = len(chosen.units)
    i: i64 = first + 1
    stop: i64 = i
    best: i64 = end
    while i < count:
        physical: i64 = chosen.physical_offsets[i]
        size: i64 = chosen.sizes[i]
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
    buf: bytes,
    base: int,
    chosen: Selection,
    first: int,
    stop: int,
    queue_id: int,
    queue_offset: int,
    topic: bytes,
    verify_below: int,
) -> Gathered:
    """The records [first, stop) of a selection, out of `buf`, which holds the log from `base` on.

    `queue_offset` is that of the selection's unit 0. Records below the place `verify_below` are summed too.
    """
    result = Gathered()
    parts: list[bytes] = []
    total: i64 = 0
    start: i64 = base
    i: i64 = first
    while i < stop:
        physical: i64 = chosen.physical_offsets[i]
        size: i64 = chosen.sizes[i]
        at: i64 = physical - start
        unit: i64 = chosen.units[i]
        right = is_record_of(buf, at, size, physical, queue_id, queue_offset + unit, topic)
        if right and physical < verify_below:
            right = check_record(buf, at, physical, VERIFY_RECORD) == size
        if right:
            parts.append(buf[at : at + size])
            total += size
            result.queue_offsets.append(queue_offset + unit)
        else:
            result.wrong.append(i)
        i += 1
    result.records = buf if total == len(buf) else b"".join(parts)
    return result
