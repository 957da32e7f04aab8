"""One waiting timed message in the index: when to act, where its record is. 40 bytes on disk.

    0   8  key: when to act (ms)
    8   8  queue offset in rmq_sys_wheel_timer
    16  8  due: when to deliver (ms); later than the key: store it again first
    24  8  physical offset of its record
    32  4  size of the record in the low 25 bits, flags above
    36  4  CRC-32 of the bytes before

A message is due at the very millisecond it asks for, and at the end of its slot where that is not known. A message that
cancels others of its slot acts at the slot's start, before all of them. RocketMQ: TimerMessageStore.doEnqueue.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.properties import find_property
from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)

ENTRY_SIZE: Final = 40
CANCEL: Final = 1
# The record is no timer, or unreadable: the entry only keeps its place in the numbering.
SKIP: Final = 2

_BODY: Final = struct.Struct(">qqqqI")
_ENTRY: Final = struct.Struct(">qqqqII")
_SIZE_BITS: Final = 25
_SIZE_MASK: Final = (1 << _SIZE_BITS) - 1
# Times and delays stay below 10^18, so that their sums fit the 64 bits of an entry.
_NUMBER_MAX: Final = 10**18 - 1
_OUT: Final = TIMER_OUT_MS.encode()
_CANCELS: Final = TIMER_DEL_UNIQKEY.encode()
_DELAYS: Final = ((TIMER_DELAY_SEC.encode(), 1000), (TIMER_DELAY_MS.encode(), 1))
_DELIVER: Final = TIMER_DELIVER_MS.encode()
_ROLLS: Final = TIMER_ROLL_TIMES.encode()
_ENQUEUED: Final = TIMER_ENQUEUE_MS.encode()


class TimerEntry(NamedTuple):
    """One waiting message. Entries sort in the order in which they are acted upon."""

    key: int
    queue_offset: int
    due_ms: int
    physical_offset: int
    size: int
    flags: int = 0

    @property
    def is_roll(self) -> bool:
        """It is too early to deliver: its record is stored again."""
        return self.due_ms > self.key

    @property
    def end(self) -> int:
        return self.physical_offset + self.size


class TimerRules(NamedTuple):
    """The setting timerPrecisionMs, and how long a record may lie before it is stored again."""

    precision_ms: int
    window_ms: int


def skipped(queue_offset: int, physical_offset: int = 0, size: int = 0) -> TimerEntry:
    """Return an entry that only keeps the place of something that is no timed message."""
    return TimerEntry(0, queue_offset, 0, physical_offset, size, SKIP)


def entry_of(
    queue_offset: int, physical_offset: int, size: int, store_ms: int, properties: bytes, rules: TimerRules
) -> TimerEntry:
    """Return the entry of a record of the timer topic; raise InvalidArgumentError where it is no timed message."""
    out_ms = _number(properties, _OUT)
    if out_ms is None:
        raise InvalidArgumentError(f"{TIMER_OUT_MS} is missing or no time")
    if size > _SIZE_MASK:
        raise InvalidArgumentError(f"a record of {size} bytes is too large for a timed message")
    if not 0 <= store_ms <= _NUMBER_MAX:
        raise InvalidArgumentError(f"its store time {store_ms} is no time")
    flags = 0
    if find_property(properties, _CANCELS) is not None:
        due_ms, flags = out_ms, CANCEL
    else:
        due_ms = _due_ms(out_ms, store_ms, properties, rules.precision_ms)
    return TimerEntry(_key(due_ms, store_ms, rules.window_ms), queue_offset, due_ms, physical_offset, size, flags)


def _due_ms(out_ms: int, store_ms: int, properties: bytes, precision_ms: int) -> int:
    """Return when to deliver. TIMER_OUT_MS starts the slot: its end is never early, the exact time is better."""
    slot_end = out_ms + precision_ms
    if find_property(properties, _ROLLS) is not None:
        store_ms = _number(properties, _ENQUEUED) or store_ms
    for name, unit_ms in _DELAYS:
        delay = _number(properties, name)
        if delay is not None:
            # The message was stored after its slot was found, so this is not early either.
            return max(out_ms + 1, min(store_ms + delay * unit_ms, slot_end))
    deliver = _number(properties, _DELIVER)
    return slot_end if deliver is None else max(out_ms + 1, min(deliver, slot_end))


def _key(due_ms: int, store_ms: int, window_ms: int) -> int:
    """Return when to act. The last stretch is long enough that no record is stored again just before delivery."""
    left_ms = due_ms - store_ms
    if left_ms < window_ms:
        return due_ms
    return store_ms + (window_ms // 2 if left_ms - window_ms < window_ms // 3 else window_ms)


def _number(properties: bytes, name: bytes) -> int | None:
    return int_or(find_property(properties, name), None, 0, _NUMBER_MAX)


def encode_entries(entries: Iterable[TimerEntry]) -> bytes:
    """Return the bytes of entries, as a file has them."""
    parts = []
    for key, queue_offset, due_ms, physical_offset, size, flags in entries:
        body = _BODY.pack(key, queue_offset, due_ms, physical_offset, flags << _SIZE_BITS | size)
        parts.append(body + zlib.crc32(body).to_bytes(4, "big"))
    return b"".join(parts)


def decode_entries(data: bytes) -> list[TimerEntry]:
    """Return the sound entries at the beginning of the bytes."""
    found: list[TimerEntry] = []
    crc32, body_size = zlib.crc32, _BODY.size
    whole = len(data) - len(data) % ENTRY_SIZE
    for at, (key, queue_offset, due_ms, physical_offset, word, check) in zip(
        range(0, whole, ENTRY_SIZE), _ENTRY.iter_unpack(data[:whole]), strict=True
    ):
        if crc32(data[at : at + body_size]) != check:
            break
        entry = TimerEntry(key, queue_offset, due_ms, physical_offset, word & _SIZE_MASK, word >> _SIZE_BITS)
        found.append(entry)
    return found
