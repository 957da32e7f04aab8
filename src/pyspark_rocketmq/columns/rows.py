"""Owns the table of where each record's parts lie: a numpy form of `hot.scan.scan_columns`, and sieves over it.

The walk from size to size is the only Python loop (a fraction of a microsecond a record); every field is read for
all records at once. The result is the very table of `scan_columns`, so either may feed `decode`.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from aerobee import _pure
from aerobee.hot.log.check import NEED_MORE, VERIFY_NONE, check_record, verify_record
from aerobee.hot.log.layout import BORNHOST_V6, FIXED_SIZE, MAGIC_V1, MAGIC_V2, STOREHOST_V6, TOPIC_V1_SIZE_MAX
from aerobee.hot.log.scan import COLUMNS, scan_columns
from aerobee.model.numbers import plain_int

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

AT, SIZE, QUEUE_ID, FLAG, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG = range(7)
BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES, PREPARED, BORN_HOST_AT, STORE_HOST_AT = range(7, 13)
BODY_AT, BODY_SIZE, TOPIC_AT, TOPIC_SIZE, PROPERTIES_AT, PROPERTIES_SIZE = range(13, 19)
assert COLUMNS[PROPERTIES_SIZE] == "properties_size" and COLUMNS[BODY_AT] == "body_at" and len(COLUMNS) == 19

_HOT_IS_COMPILED: Final = _pure.is_compiled()
_SIZE_AND_MAGIC: Final = Struct(">ii").unpack_from
# The first 88 bytes of a record whose hosts are both IPv4.
_HEAD: Final = np.dtype(
    {
        "names": ["size", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born", "stored",
                  "times", "prepared", "body_size"],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">i8", ">i4", ">i8", ">i4"],
        "offsets": [0, 12, 16, 20, 28, 36, 40, 56, 72, 76, 84],
        "itemsize": 88,
    }
)  # fmt: skip


def from_scan(rows: bytes, count: int) -> Ints:
    """The bytes that `scan_columns` returns, as a table of `count` rows."""
    return np.frombuffer(rows, "<i8").reshape(count, len(COLUMNS))


def scan(buf: bytes, physical_offset: int = -1, verify: int = VERIFY_NONE, start: int = 0) -> tuple[Ints, int, int]:
    """Every sound record from `start`, at `physical_offset` in the log (-1: not checked): rows, bytes consumed, reason.

    The answer of `hot.scan.scan_columns`, whose own loop is far slower than ours while `hot` is interpreted.
    """
    if _HOT_IS_COMPILED:
        table, count, consumed, reason = scan_columns(buf, physical_offset, verify, start)
        return from_scan(table, count), consumed, reason
    places, stop = _walk(buf, start, len(buf))
    rows, good = _measure(buf, places, physical_offset, start)
    if good < len(places):
        rows, stop = rows[:good], places[good]
    if verify != VERIFY_NONE:
        sizes, blocks = rows[:, SIZE].tolist(), rows[:, PROPERTIES_SIZE].tolist()
        for index, at in enumerate(places[:good]):
            reason = verify_record(buf, at, sizes[index], blocks[index], verify)
            if reason <= 0:
                return rows[:index], at - start, reason
    expected = physical_offset + stop - start if physical_offset >= 0 else -1
    reason = check_record(buf, stop, expected, VERIFY_NONE)
    return rows, stop - start, reason if reason <= 0 else NEED_MORE


def _walk(buf: bytes, at: int, end: int) -> tuple[list[int], int]:
    """Where records seem to begin, by size and magic alone, and where that ends."""
    places: list[int] = []
    if at < 0:
        return places, at
    last = end - FIXED_SIZE
    while at <= last:
        size, magic = _SIZE_AND_MAGIC(buf, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED_SIZE or at + size > end:
            break
        places.append(at)
        at += size
    return places, at


def _measure(buf: bytes, places: list[int], physical_offset: int, start: int) -> tuple[Ints, int]:
    """The table of these records, and how many from the first on are sound. The same tests as `hot.check.measure`."""
    count = len(places)
    rows = np.empty((len(COLUMNS), count), np.int64).T
    if not count:
        return rows, 0
    u8 = np.frombuffer(buf, np.uint8)
    at = np.array(places, np.int64)
    head = sliding_window_view(u8, 88)[at].view(_HEAD).reshape(count)
    flags = head["sys_flag"].astype(np.int64)
    _fill(rows, at, head, flags)
    if (flags & (BORNHOST_V6 | STOREHOST_V6)).any():
        _shift_for_v6(rows, u8, at, flags)
    size, body_at, body_size = rows[:, SIZE], rows[:, BODY_AT], rows[:, BODY_SIZE]
    end = at + size
    topic_at = body_at + body_size + 1
    good: Mask = (body_at + 3 <= end) & (body_size >= 0) & (topic_at + 2 <= end)
    if physical_offset >= 0:
        good &= rows[:, PHYSICAL_OFFSET] == at + (physical_offset - start)
    # A place that is no record must still be one in the buffer, so that all can be read at once.
    topic_at = np.where(good, topic_at, at + 1)
    topic_size = u8[topic_at - 1].astype(np.int64)
    is_v2 = u8[at + 7] == MAGIC_V2 & 0xFF
    good &= is_v2 | (topic_size <= TOPIC_V1_SIZE_MAX)
    if is_v2.any():
        topic_size = np.where(is_v2, topic_size << 8 | u8[topic_at], topic_size)
        topic_at = topic_at + is_v2
    good &= (topic_size > 0) & (topic_size <= 0x7FFF) & (topic_at + topic_size + 2 <= end)
    length_at = np.where(good, topic_at + topic_size, at)
    properties_size = u8[length_at].astype(np.int64) << 8 | u8[length_at + 1]
    good &= (properties_size <= 0x7FFF) & (length_at + 2 + properties_size == end)
    rows[:, TOPIC_AT] = topic_at
    rows[:, TOPIC_SIZE] = topic_size
    rows[:, PROPERTIES_AT] = length_at + 2
    rows[:, PROPERTIES_SIZE] = properties_size
    return rows, count if good.all() else plain_int(np.argmin(good))


def _fill(rows: Ints, at: Ints, head: npt.NDArray[Any], flags: Ints) -> None:
    rows[:, AT] = at
    rows[:, SIZE] = head["size"]
    rows[:, QUEUE_ID] = head["queue_id"]
    rows[:, FLAG] = head["flag"]
    rows[:, QUEUE_OFFSET] = head["queue_offset"]
    rows[:, PHYSICAL_OFFSET] = head["physical_offset"]
    rows[:, SYS_FLAG] = flags
    rows[:, BORN_TIMESTAMP] = head["born"]
    rows[:, STORE_TIMESTAMP] = head["stored"]
    rows[:, RECONSUME_TIMES] = head["times"]
    rows[:, PREPARED] = head["prepared"]
    rows[:, BORN_HOST_AT] = at + 48
    rows[:, STORE_HOST_AT] = at + 64
    rows[:, BODY_AT] = at + 88
    rows[:, BODY_SIZE] = head["body_size"]


def _shift_for_v6(rows: Ints, u8: Bytes, at: Ints, flags: Ints) -> None:
    """Read again what stands behind an IPv6 host. A record too short for its hosts gets a body size below zero."""
    stored_at = at + 56 + np.where(flags & BORNHOST_V6, 12, 0)
    times_at = stored_at + 16 + np.where(flags & STOREHOST_V6, 12, 0)
    short = times_at + 19 > at + rows[:, SIZE]
    # Any place inside the buffer will do for those: they are cut off by their body size.
    stored_at, times_at = np.where(short, at, stored_at), np.where(short, at, times_at)
    rows[:, STORE_TIMESTAMP] = _longs(u8, stored_at)
    rows[:, STORE_HOST_AT] = stored_at + 8
    rows[:, RECONSUME_TIMES] = _ints(u8, times_at)
    rows[:, PREPARED] = _longs(u8, times_at + 4)
    rows[:, BODY_AT] = times_at + 16
    rows[:, BODY_SIZE] = np.where(short, -1, _ints(u8, times_at + 12))


def _longs(u8: Bytes, at: Ints) -> Ints:
    return sliding_window_view(u8, 8)[at].view(">i8").reshape(len(at)).astype(np.int64)


def _ints(u8: Bytes, at: Ints) -> Ints:
    return sliding_window_view(u8, 4)[at].view(">i4").reshape(len(at)).astype(np.int64)


def of_topics(buf: bytes, rows: Ints, topics: Collection[bytes]) -> Mask:
    """Which rows belong to one of these topics: names are compared as bytes, no string is made."""
    u8 = np.frombuffer(buf, np.uint8)
    result = np.zeros(len(rows), np.bool_)
    at, size = rows[:, TOPIC_AT], rows[:, TOPIC_SIZE]
    for topic in topics:
        places = np.flatnonzero(size == len(topic))
        if len(places):
            name = np.frombuffer(topic, np.uint8)
            found = (sliding_window_view(u8, len(topic))[at[places]] == name).all(axis=1)
            result[places] |= found
    return result
