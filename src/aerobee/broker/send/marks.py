"""The marks of idempotent producers, read from the log at a start into the memory of what they sent."""

from __future__ import annotations

from typing import Final

from aerobee.broker.delay import handle_of
from aerobee.broker.send.dedup import IDLE_S, Dedup, Sent, named
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import VERIFY_RECORD, Draft
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.producermark import ORDER_MARK, PRODUCER_MARK, parse_mark, parse_order
from aerobee.model.sysproperties import REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.segment import CHUNK_SIZE, scan

_MARK: Final = PRODUCER_MARK.encode()
_DEDUP_BYTES_MAX: Final = 256 << 20


def learn_marks(
    store: MessageStore, memory: Dedup, broker_name: str, clock: Clock, *, bytes_max: int = _DEDUP_BYTES_MAX
) -> None:
    """Fill the memory of what idempotent producers sent. Read as many minutes of the log as are remembered, and at most
    its last `bytes_max`."""
    since_ms, now_s = clock.now_ms() - int(IDLE_S * 1000), clock.monotonic()
    # Nothing is learnt that is not confirmed: another master may have something else there.
    end = store.dispatched_offset
    start = _first_mark(store, max(store.log_start, end - bytes_max), end)
    if start < 0:
        return
    # From anywhere: the scan goes on with the next sound record.
    for piece in scan(store.log.segments, start, end, verify=VERIFY_RECORD):
        for draft in piece.drafts:
            if draft.store_timestamp >= since_ms and _MARK in draft.properties:
                learn_sent(draft, memory, broker_name, now_s)


def _first_mark(store: MessageStore, start: int, log_end: int) -> int:
    """Return a place below the first record with a mark; -1 where there is none. Most logs have none, and looking for
    the name alone costs little."""
    segments, offset = store.log.segments, start
    while offset < log_end:
        end = min(segments.segment_end(offset), log_end)
        if end <= offset:
            offset = segments.next_segment(offset)
            if offset < 0:
                return -1
            continue
        # A body before the name may be longer than what is read at once; its record begins above `before`.
        if _MARK in segments.read(offset, min(CHUNK_SIZE + len(_MARK), end - offset)):
            return max(start, offset - store.config.max_message_size - CHUNK_SIZE)
        offset = min(offset + CHUNK_SIZE, end)
    return -1


def learn_sent(draft: Draft, memory: Dedup, broker_name: str, now_s: float) -> None:
    """Take up one record that the log holds, if it has the mark of an idempotent producer."""
    properties = decode_properties(draft.properties)
    mark = parse_mark(properties.get(PRODUCER_MARK))
    if mark is None:
        return
    topic, queue_id = draft.topic.decode("utf-8", "replace"), draft.queue_id
    handle = handle_of(properties, broker_name) if topic == TIMER_TOPIC else ""
    # Put away until its time or the end of its transaction.
    if topic in (TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC):
        topic, real_queue = properties.get(REAL_TOPIC, topic), properties.get(REAL_QUEUE_ID)
        queue_id = int_or(real_queue, queue_id, 0, INT32_MAX)
    sent = Sent(None, draft.physical_offset, draft.size, draft.queue_offset, queue_id, handle)
    queue = (topic, queue_id) if parse_order(properties.get(ORDER_MARK)) is not None else None
    memory.learn(mark, named(topic, properties.get(UNIQ_KEY, "")), sent, now_s, queue)
