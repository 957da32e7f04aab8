"""The place of a message that asks for a delay or a time: its own queue, a delay level, or the timer topic.

RocketMQ: HookUtils.handleScheduleMessage, checkIfTimerMessage, transformTimerMessage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aerobee.broker.delay.levels import TIMER_NAMES, DelayLevels, put_away
from aerobee.broker.log import delay_level
from aerobee.broker.refusal import Refusal
from aerobee.model.names import TIMER_TOPIC
from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.seams import Clock
from aerobee.store.config import StoreConfig

_NUMBER_MAX: Final = 10**18
_NO_TIMERS: Final = "accurate timer message is not enabled, timerWheelEnable is false"


class Placing:
    """The decision where a message goes. It writes into the properties what the way back needs."""

    def __init__(self, levels: DelayLevels, config: Callable[[], StoreConfig], clock: Clock) -> None:
        self._levels = levels
        self._config = config
        self._clock = clock

    def __call__(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int] | Refusal:
        """Return the topic and the queue to store a message under. Not for half and rolled-back messages."""
        if delay_level(properties) > 0:
            return put_away(topic, queue_id, properties, self._levels)
        if topic == TIMER_TOPIC or TIMER_OUT_MS in properties or not any(name in properties for name in TIMER_NAMES):
            return topic, queue_id
        config = self._config()
        if not config.timer_wheel_enable:
            return Refusal(ResponseCode.SYSTEM_ERROR, _NO_TIMERS)
        now_ms = self._clock.now_ms()
        deliver_ms = _deliver_ms(properties, now_ms)
        latest_ms = now_ms + config.timer_max_delay_s * 1000
        cancels = TIMER_DEL_UNIQKEY in properties
        if deliver_ms is None or deliver_ms > latest_ms or (cancels and deliver_ms <= now_ms):
            remark = (
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{config.timer_max_delay_s * 1000}ms; or if set del msg, the delay time should be bigger than the "
                "current time"
            )
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if deliver_ms <= now_ms:
            return topic, queue_id
        properties[TIMER_OUT_MS] = str(slot_of(deliver_ms, config.timer_precision_ms))
        properties[REAL_TOPIC] = topic
        properties[REAL_QUEUE_ID] = str(queue_id)
        return TIMER_TOPIC, 0


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """Return the start of the slot that ends at a time of delivery or less than one slot after it."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def _deliver_ms(properties: dict[str, str], now_ms: int) -> int | None:
    for name, unit_ms, since_ms in (
        (TIMER_DELAY_SEC, 1000, now_ms),
        (TIMER_DELAY_MS, 1, now_ms),
        (TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            number = int_or(text, None, -_NUMBER_MAX, _NUMBER_MAX)
            return None if number is None else since_ms + number * unit_ms
    return None
