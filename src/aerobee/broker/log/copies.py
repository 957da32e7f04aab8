"""Copies of stored messages for another place of the log: when their time is up, for a retry, after a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.layout import PROPERTIES_SIZE_MAX, SEAL_NAME, SEAL_SIZE
from aerobee.hot.log.properties import encode_properties, remove_property
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, TIMER_TOPIC, topic_problem
from aerobee.model.numbers import NumberError, int_or, parse_int
from aerobee.model.sysproperties import CRC32, DELAY, KEYS, REAL_QUEUE_ID, REAL_TOPIC, TAGS, UNIQ_KEY
from aerobee.model.topic import QUEUE_NUMS_MAX

# Topics that only the broker itself writes, and never from a message that was put away.
_NEVER_REAL: Final = SEND_FORBIDDEN_TOPICS | {TIMER_TOPIC}


def real_place(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic and the queue that a message was put away from (for its time, for the end of its transaction);
    raise InvalidArgumentError, with the reason, where it names none that a message could go to."""
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID)
    # POP's retry topics have a plus between group and topic (KeyBuilder.buildPopRetryTopicV2).
    problem = topic_problem(topic.replace("+", "_") if topic.startswith(RETRY_PREFIX) else topic)
    if problem is not None:
        raise InvalidArgumentError(f"{REAL_TOPIC}: {problem}")
    if topic in _NEVER_REAL:
        raise InvalidArgumentError(f"{REAL_TOPIC}: only the broker itself writes to {topic}")
    if queue_id is None:
        raise InvalidArgumentError(f"{REAL_QUEUE_ID} is missing")
    try:
        return topic, parse_int(queue_id, 0, QUEUE_NUMS_MAX - 1)
    except NumberError as error:
        raise InvalidArgumentError(f"{REAL_QUEUE_ID}: {error}") from error


def fitting_block(record: Record, properties: dict[str, str]) -> bytes:
    """Return the property block of a copy: `properties`, or, where what was added makes them longer than a record can
    carry, those of the record as they are. Better without a note of ours than never delivered."""
    block = encode_properties(properties)
    if len(block) + SEAL_SIZE <= PROPERTIES_SIZE_MAX:
        return block
    return remove_property(record.properties, SEAL_NAME)


def copy_of(
    record: Record, topic: str, queue_id: int, properties: Mapping[str, str], block: bytes, mark: int = 0
) -> Draft:
    """Return the same message for that queue. `block` is `properties` as they are stored, without the checksum of the
    first record; `mark` goes into the field of the prepared transaction offset."""
    return Draft(
        topic.encode(),
        queue_id,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        mark,
        record.body,
        block,
        tags_code(properties.get(TAGS, "")),
        properties.get(KEYS, ""),
        properties.get(UNIQ_KEY, ""),
    )


def encode_stored(properties: dict[str, str]) -> bytes:
    """Return the property block of a message that is stored again, without the checksum of its first record."""
    properties.pop(CRC32, None)
    return encode_properties(properties)


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level that a message asks for; 0 for none and for text that is no number."""
    return int_or(properties.get(DELAY), 0)
