"""Lookups: a record by physical offset, a queue offset by time, a store time by queue offset.

Each search is written once, as steps (see steps.py). RocketMQ: DefaultMessageStore.lookMessageByOffset,
ConsumeQueue.getOffsetInQueueByTime.
"""

from __future__ import annotations

import enum
from typing import Final

from aerobee.hot.log.layout import UNIT_FILL_SIZE
from aerobee.hot.log.record import VERIFY_RECORD, check_record
from aerobee.store.deletions import Deletions
from aerobee.store.queues import ConsumeQueue
from aerobee.store.recordhead import HEAD_SIZE, head_of, topic_of
from aerobee.store.steps import Steps

_GUESS_SIZE: Final = 4096


class Boundary(enum.Enum):
    """Which offset a time between two messages means. RocketMQ: BoundaryType."""

    LOWER = "lower"  # the first message not before the time
    UPPER = "upper"  # the last message not after it


def record_at(physical_offset: int, limit: int) -> Steps[bytes | None]:
    """Return the whole, verified record that begins there and ends below `limit`; None where there is none."""
    if physical_offset < 0 or physical_offset >= limit:
        return None
    data = yield physical_offset, min(_GUESS_SIZE, limit - physical_offset)
    head = head_of(data)
    if head is None or physical_offset + head.size > limit:
        return None
    if head.size > len(data):
        data += yield physical_offset + len(data), head.size - len(data)
    record = data[: head.size]
    return record if check_record(record, 0, physical_offset, VERIFY_RECORD) == head.size else None


def message_at(physical_offset: int, limit: int, deletions: Deletions) -> Steps[bytes | None]:
    """Return as `record_at` does; None also for a record that was deleted with its topic, which Apache shows until it
    expires.
    """
    record = yield from record_at(physical_offset, limit)
    if record is not None and deletions.covers(topic_of(record), physical_offset):
        return None
    return record


def store_time_at(physical_offset: int, size: int) -> Steps[int]:
    """Return the store time of a record, -1 where it cannot be read. RocketMQ: CommitLog.pickupStoreTimestamp."""
    data = yield physical_offset, min(size, HEAD_SIZE)
    head = head_of(data)
    if head is None or head.physical_offset != physical_offset:
        return -1
    return head.store_timestamp


def store_time_of(queue: ConsumeQueue | None, offset: int, log_start: int) -> Steps[int]:
    """Return the store time of a queue's message, -1 where the queue has none there."""
    if queue is None or offset < queue.min_for(log_start):
        return -1
    unit = queue.unit(offset)
    if unit is None or unit[1] == UNIT_FILL_SIZE:
        return -1
    return (yield from store_time_at(unit[0], unit[1]))


def earliest_time(queue: ConsumeQueue | None, log_start: int) -> Steps[int]:
    """Return the store time of the first message a queue still has, -1 where it has none."""
    if queue is None:
        return -1
    low = queue.min_for(log_start)
    stored, _ = yield from _first_readable(queue, low, queue.next_offset)
    return stored


def offset_by_time(queue: ConsumeQueue | None, timestamp: int, boundary: Boundary, log_start: int) -> Steps[int]:
    """Search a queue by time, halving: store times never decrease.

    The result lies within the queue's bounds. RocketMQ: ConsumeQueue.binarySearchInQueueByTime,
    ConsumeQueueStore.getOffsetInQueueByTime.
    """
    if queue is None:
        return 0
    low, high = queue.min_for(log_start), queue.next_offset
    first = low
    # The first message stored at or after the time (LOWER), or strictly after it (UPPER).
    bound = timestamp if boundary is Boundary.LOWER else timestamp + 1
    while low < high:
        middle = (low + high) // 2
        stored, at = yield from _first_readable(queue, middle, high)
        if 0 <= stored < bound:
            low = at + 1
        else:
            high = middle
    return low if boundary is Boundary.LOWER else max(low - 1, first)


def first_stored_since(queue: ConsumeQueue, low: int, since_ms: int) -> Steps[tuple[int, int]]:
    """Return the first offset from `low` on that was stored at a time or after it, and its store time.

    The time is -1 where there is no such message: then the offset is the queue's end.
    """
    high = queue.next_offset
    stored, at = yield from _first_readable(queue, low, high)
    if stored >= since_ms or stored < 0:
        return (low if stored >= 0 else high), stored
    low, found = at + 1, -1
    while low < high:
        middle = (low + high) // 2
        stored, at = yield from _first_readable(queue, middle, high)
        if 0 <= stored < since_ms:
            low = at + 1
        else:
            high, found = middle, stored
    return high, found


def _first_readable(queue: ConsumeQueue, offset: int, limit: int) -> Steps[tuple[int, int]]:
    """Return store time and offset of the first message from `offset` on whose time can be read; -1 where none can."""
    while offset < limit:
        unit = queue.unit(offset)
        if unit is not None and unit[1] != UNIT_FILL_SIZE:
            stored = yield from store_time_at(unit[0], unit[1])
            if stored >= 0:
                return stored, offset
        offset += 1
    return -1, offset
