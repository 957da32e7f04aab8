"""What a timed message becomes: the message for its readers, or itself once more.

RocketMQ: TimerMessageStore.convert, convertMessage.
"""

from __future__ import annotations

from aerobee.broker.copies import copy_of
from aerobee.hot.properties import decode_properties, encode_properties
from aerobee.hot.record import Draft, Record
from aerobee.model.names import HALF_TOPIC, TIMER_TOPIC
from aerobee.model.sysproperties import (
    CRC32,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
)


def delivered(record: Record, mark: int, now_ms: int) -> Draft | None:
    """The message under its own topic; None where it names none. Its properties are all kept, as Apache stores them."""
    properties = decode_properties(record.properties)
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal() or topic in (HALF_TOPIC, TIMER_TOPIC):
        return None
    return _copy(record, topic, int(queue_id), mark, properties, now_ms)


def rolled(record: Record, mark: int, now_ms: int) -> Draft:
    """The timed message stored again, young for retention."""
    properties = decode_properties(record.properties)
    times = properties.get(TIMER_ROLL_TIMES, "0")
    properties[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isdecimal() else 1)
    return _copy(record, TIMER_TOPIC, record.queue_id, mark, properties, now_ms)


def _copy(record: Record, topic: str, queue_id: int, mark: int, properties: dict[str, str], now_ms: int) -> Draft:
    # When it was first stored: a delay counts from there, however often it is stored again.
    properties.setdefault(TIMER_ENQUEUE_MS, str(record.store_timestamp))
    properties[TIMER_DEQUEUE_MS] = str(now_ms)
    properties.pop(CRC32, None)
    return copy_of(record, topic, queue_id, properties, encode_properties(properties), mark)
