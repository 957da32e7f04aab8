"""The copies of a timed message: the message for its readers, or the timed message stored again.

RocketMQ: TimerMessageStore.convert, convertMessage.
"""

from __future__ import annotations

from aerobee.broker.log import copy_of, fitting_block, real_place
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import TIMER_TOPIC
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.sysproperties import (
    CRC32,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
)


def delivered(record: Record, mark: int, now_ms: int) -> Draft:
    """Return the message under its own topic; raise InvalidArgumentError where it names none. Its properties are all
    kept, as Apache stores them."""
    properties = decode_properties(record.properties)
    topic, queue_id = real_place(properties)
    return _copy(record, topic, queue_id, mark, properties, now_ms)


def rolled(record: Record, mark: int, now_ms: int) -> Draft:
    """Return the timed message to be stored again, so that retention does not take it."""
    properties = decode_properties(record.properties)
    properties[TIMER_ROLL_TIMES] = str(int_or(properties.get(TIMER_ROLL_TIMES), 0, 0, INT32_MAX - 1) + 1)
    return _copy(record, TIMER_TOPIC, record.queue_id, mark, properties, now_ms)


def _copy(record: Record, topic: str, queue_id: int, mark: int, properties: dict[str, str], now_ms: int) -> Draft:
    # The time of its first store: a delay counts from there, however often the message is stored again.
    properties.setdefault(TIMER_ENQUEUE_MS, str(record.store_timestamp))
    properties[TIMER_DEQUEUE_MS] = str(now_ms)
    properties.pop(CRC32, None)
    return copy_of(record, topic, queue_id, properties, fitting_block(record, properties), mark)
