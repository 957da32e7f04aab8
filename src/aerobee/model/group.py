"""A consumer group's settings on a broker, with its retry policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aerobee.model.fields import bool_of, int_of, list_of, map_of, objects_of, str_of, texts_of

CUSTOMIZED = "CUSTOMIZED"
EXPONENTIAL = "EXPONENTIAL"

# RocketMQ: CustomizedRetryPolicy.next.
RETRY_DELAYS_MS = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a message waits before its next try. RocketMQ: GroupRetryPolicy.getRetryPolicy."""

    type: str = CUSTOMIZED
    # None means Apache's default table.
    delays_ms: tuple[int, ...] | None = None
    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2
    has_exponential: bool = False

    def delay_ms(self, reconsume_times: int) -> int:
        """Return the delay before the next try. The first two delays of the table are not used.

        RocketMQ: CustomizedRetryPolicy.nextDelayDuration, ExponentialRetryPolicy.
        """
        if self.type == EXPONENTIAL and self.has_exponential:
            times = min(max(reconsume_times, 0), 32)
            factor: int = self.multiplier**times
            return min(self.max_ms, self.initial_ms * factor)
        delays = self.delays_ms or RETRY_DELAYS_MS
        return delays[min(max(reconsume_times, 0) + 2, len(delays) - 1)]

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        data: dict[str, Any] = {}
        if self.delays_ms is not None:
            data["customizedRetryPolicy"] = {"next": list(self.delays_ms)}
        if self.has_exponential:
            data["exponentialRetryPolicy"] = {
                "initial": self.initial_ms,
                "max": self.max_ms,
                "multiplier": self.multiplier,
            }
        data["type"] = self.type
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RetryPolicy:
        """Read Apache's JSON object."""
        exponential = map_of(data, "exponentialRetryPolicy")
        customized = map_of(data, "customizedRetryPolicy")
        delays = tuple(int_of({"next": ms}, "next") for ms in list_of(customized, "next") if isinstance(ms, int))
        return cls(
            str_of(data, "type", CUSTOMIZED),
            delays or None,
            int_of(exponential, "initial", 5_000),
            int_of(exponential, "max", 7_200_000),
            int_of(exponential, "multiplier", 2),
            bool(exponential),
        )


@dataclass(frozen=True, slots=True)
class SimpleSubscription:
    """A subscription fixed in the group's settings. RocketMQ: SimpleSubscriptionData."""

    topic: str
    expression_type: str
    expression: str
    version: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        return {
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SimpleSubscription:
        """Read Apache's JSON object."""
        return cls(
            str_of(data, "topic"),
            str_of(data, "expressionType"),
            str_of(data, "expression"),
            int_of(data, "version"),
        )


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """Settings of one consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: RetryPolicy = RetryPolicy()
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[SimpleSubscription, ...] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object with its order of keys."""
        data: dict[str, Any] = {
            "attributes": dict(self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.group_name,
            "groupRetryPolicy": self.group_retry_policy.to_json(),
            "groupSysFlag": self.group_sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
        }
        if self.subscription_data_set is not None:
            data["subscriptionDataSet"] = [s.to_json() for s in self.subscription_data_set]
        data["whichBrokerWhenConsumeSlowly"] = self.which_broker_when_consume_slowly
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str = "") -> SubscriptionGroupConfig:
        """Read Apache's JSON object. `name` is used when the object has none."""
        fixed = objects_of(data, "subscriptionDataSet")
        return cls(
            str_of(data, "groupName") or name,
            bool_of(data, "consumeEnable", True),
            bool_of(data, "consumeFromMinEnable", True),
            bool_of(data, "consumeBroadcastEnable", True),
            bool_of(data, "consumeMessageOrderly"),
            int_of(data, "retryQueueNums", 1),
            int_of(data, "retryMaxTimes", 16),
            RetryPolicy.from_json(map_of(data, "groupRetryPolicy")),
            int_of(data, "brokerId"),
            int_of(data, "whichBrokerWhenConsumeSlowly", 1),
            bool_of(data, "notifyConsumerIdsChangedEnable", True),
            int_of(data, "groupSysFlag"),
            int_of(data, "consumeTimeoutMinute", 15),
            tuple(SimpleSubscription.from_json(item) for item in fixed) if "subscriptionDataSet" in data else None,
            texts_of(data, "attributes"),
        )
