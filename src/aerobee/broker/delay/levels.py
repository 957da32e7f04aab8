"""The delay levels: their times, and how a message is put away for later and taken out again.

A delayed message is stored under `SCHEDULE_TOPIC_XXXX`, queue = level - 1, with its own topic and queue in
properties; its queue unit holds the time of delivery in place of the tags code. When its time is up it is
stored again under its own topic.

RocketMQ: ScheduleMessageService.parseDelayLevel, messageTimeUp; HookUtils.handleScheduleMessage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aerobee.broker.log import copy_of, delay_level, real_place
from aerobee.errors import ConfigError
from aerobee.hot.log.properties import decode_properties, remove_property
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import SCHEDULE_TOPIC
from aerobee.model.numbers import parse_int
from aerobee.model.sysproperties import (
    CRC32,
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# Delivery marks have room for 63, and the last stands for timers.
LEVELS_MAX = 62

TIMER_NAMES = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """`messageDelayLevel`, parsed. Level 1 is the first; there is no level 0."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = DEFAULT_LEVELS) -> DelayLevels:
        """Return the configured levels; raise ConfigError for a wrong one, with which Apache delivers nothing."""
        delays: list[int] = []
        problems: list[str] = []
        for word in text.split():
            match = _LEVEL.fullmatch(word)
            if match is None:
                problems.append(f"messageDelayLevel: {word!r} is not a number followed by s, m, h or d")
            else:
                delays.append(parse_int(match[1]) * _UNITS_MS[match[2]])
        if not delays and not problems:
            problems.append("messageDelayLevel names no level")
        if len(delays) > LEVELS_MAX:
            problems.append(f"messageDelayLevel names {len(delays)} levels, more than {LEVELS_MAX}")
        if problems:
            raise ConfigError(problems)
        return cls(tuple(delays))

    @property
    def max_level(self) -> int:
        """The last level; a message that asks for more gets this one."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level; 1 s for a level that is no longer configured, as in Apache."""
        return self.delays_ms[level - 1] if 1 <= level <= len(self.delays_ms) else 1000

    def deliver_ms(self, level: int, store_timestamp: int) -> int:
        """Return when a message that was stored at that time is due. RocketMQ: computeDeliverTimestamp."""
        return store_timestamp + self.delay_ms(level)


def queue_of_level(level: int) -> int:
    """Return the queue of a level. RocketMQ: ScheduleMessageService.delayLevel2QueueId."""
    return level - 1


def put_away(topic: str, queue_id: int, properties: dict[str, str], levels: DelayLevels) -> tuple[str, int]:
    """Return where a message goes: to the schedule topic where it asks for a delay, with `properties` changed, else to
    its own.

    Not for half and rolled-back transactions. A level wins over a timer. RocketMQ:
    HookUtils.handleScheduleMessage, checkIfTimerMessage, transformDelayLevelMessage.
    """
    level = delay_level(properties)
    if level <= 0:
        return topic, queue_id
    for name in TIMER_NAMES:
        properties.pop(name, None)
    level = min(level, levels.max_level)
    # Dispatch reads plain digits of an existing level.
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = topic
    properties[REAL_QUEUE_ID] = str(queue_id)
    return SCHEDULE_TOPIC, queue_of_level(level)


def time_up(record: Record, mark: int = 0) -> Draft:
    """Return the message as it is stored when its time is up; raise InvalidArgumentError where it names no place that
    it could go to.

    The properties are stored as they were: Apache clears DELAY in the object it works with, but stores the
    text made before that, so consumers see DELAY on a delivered message, and here too. Never pass the result
    through `put_away`. `mark` goes into the field of the prepared transaction offset, which is free in such a
    record (see schedule.py). RocketMQ: ScheduleMessageService.messageTimeUp.
    """
    properties = decode_properties(record.properties)
    topic, queue_id = real_place(properties)
    block = remove_property(record.properties, CRC32.encode())
    return copy_of(record, topic, queue_id, properties, block, mark)
