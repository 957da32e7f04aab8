"""The tail of the log, read once at start for what no table was told in time; and queues read record by record.

A record that a delay level, a timer or the end of a transaction stored says so in its field *prepared transaction
offset* (docs/formats/delay.md, timers.md, transactions.md). Whoever keeps progress in a file saves beside it a place
in the log; what happened after that save is found again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from aerobee.errors import CorruptLogError, StoreError
from aerobee.hot.log.layout import UNIT_FILL_SIZE
from aerobee.hot.log.record import VERIFY_NONE, VERIFY_RECORD, Record, decode_record
from aerobee.hot.log.units import decode_units
from aerobee.store.messagestore import MessageStore
from aerobee.store.segment import PieceKind, scan
from aerobee.store.steps import Steps, run_now

T = TypeVar("T")
_UNITS_MAX = 1024


class Mark(NamedTuple):
    """The mark of one record, its topic and its place."""

    value: int
    topic: bytes
    physical_offset: int


def scan_marks(store: MessageStore, start: int, end: int) -> list[Mark]:
    """Return every marked record between two places. A record must begin at `start`."""
    return [
        Mark(draft.prepared_transaction_offset, draft.topic, draft.physical_offset)
        for piece in scan(store.log.segments, max(start, store.log_start), end, verify=VERIFY_NONE)
        if piece.kind is PieceKind.RECORDS
        for draft in piece.drafts
        if draft.prepared_transaction_offset
    ]


def queue_records(
    store: MessageStore, topic: bytes, queue_id: int, offset: int, count_max: int = 1 << 62
) -> Iterator[tuple[int, Record | None]]:
    """Yield each offset of a queue from `offset` on with its record, None where there is no sound one. It reads on this
    thread: for a start, and for what was stored just now."""
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return
    end = min(queue.next_offset, offset + count_max)
    while offset < end:
        units = decode_units(queue.units(offset, min(_UNITS_MAX, end - offset)))
        if not units:
            yield offset, None
            offset += 1
            continue
        for physical_offset, size, _ in units:
            yield offset, _record(store, topic, offset, physical_offset, size)
            offset += 1


def read_soon(store: MessageStore, lowest: int, steps: Steps[T], done: Callable[[T | StoreError], None]) -> None:
    """Read now where the log is hot from `lowest` on, else through the reader thread."""
    if lowest >= store.log_end - store.reads.hot_bytes:
        done(run_now(steps, store.log.segments))
    else:
        store.run(steps, done)


def record_bytes(places: Iterable[tuple[int, int]]) -> Steps[list[bytes | None]]:
    """Return the bytes at each place (physical offset, size); None where the log has fewer, or a queue was filled."""
    found: list[bytes | None] = []
    for physical_offset, size in places:
        data = b"" if size == UNIT_FILL_SIZE else (yield physical_offset, size)
        found.append(data if len(data) == size else None)
    return found


def _record(store: MessageStore, topic: bytes, offset: int, physical_offset: int, size: int) -> Record | None:
    if size == UNIT_FILL_SIZE:
        return None
    try:
        record = decode_record(store.log.segments.read(physical_offset, size), 0, VERIFY_RECORD)
    except CorruptLogError:
        return None
    return record if record.topic == topic and record.queue_offset == offset else None
