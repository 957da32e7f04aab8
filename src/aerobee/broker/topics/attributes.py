"""Attributes of topics and groups: which exist, what they may be, how they are added, changed and removed.

A change is `+name=value` or `-name`; a plain name is refused. Some attributes can be set only at creation.
RocketMQ: AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes, TopicMessageType.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aerobee.broker.log import CLEANUP_POLICY
from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.sysproperties import (
    DELAY,
    LITE_TOPIC,
    PRIORITY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
)
from aerobee.model.topic import TopicConfig

QUEUE_TYPE = "queue.type"
MESSAGE_TYPE = "message.type"
RESERVE_TIME = "reserve.time"
# The message type of a topic whose queues are priorities, and how many of 100 pops of a group go by them.
PRIORITY_TYPE = "PRIORITY"
PRIORITY_FACTOR = "priority.factor"

_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: a choice, a range of whole numbers, a boolean, or any text."""

    name: str
    changeable: bool
    choices: frozenset[str] | None = None
    range: tuple[int, int] | None = None
    boolean: bool = False
    default: str = ""

    def verify(self, value: str) -> None:
        """Raise InvalidArgumentError for a value that it cannot have."""
        if self.choices is not None and value not in self.choices:
            raise InvalidArgumentError(f"{self.name}: value is not in set: {sorted(self.choices)}")
        if self.boolean and value.lower() not in ("true", "false"):
            raise InvalidArgumentError(f"{self.name}: boolean attribute format is wrong.")
        if self.range is not None:
            low, high = self.range
            number = int_or(value, None)
            if number is None:
                raise InvalidArgumentError(f"{self.name}: {value[:100]!r} is not a whole number")
            if not low <= number <= high:
                raise InvalidArgumentError(f"{self.name}: value is not in range({low}, {high})")


def _table(*attributes: Attribute) -> dict[str, Attribute]:
    return {attribute.name: attribute for attribute in attributes}


MESSAGE_TYPES = frozenset(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", PRIORITY_TYPE, "LITE", "MIXED"))

TOPIC_ATTRIBUTES = _table(
    Attribute(QUEUE_TYPE, False, choices=frozenset(("BatchCQ", "SimpleCQ")), default="SimpleCQ"),
    Attribute(CLEANUP_POLICY, False, choices=frozenset(("DELETE", "COMPACTION")), default="DELETE"),
    Attribute(MESSAGE_TYPE, True, choices=MESSAGE_TYPES, default="NORMAL"),
    Attribute(RESERVE_TIME, True, range=(-1, _LONG_MAX), default="-1"),
    Attribute("lite.topic.expiration", True, range=(-1, 30 * 24 * 60), default="-1"),
)

# Values that Apache has and Aerobee does not, with the reason. A topic that Apache's broker made with one of them is
# served like any other, with a warning at the start.
REFUSED_VALUES = {
    (CLEANUP_POLICY, "COMPACTION"): "compaction topics do not exist: retention would delete the last message of a key",
    (QUEUE_TYPE, "BatchCQ"): "batch consume queues do not exist: every message has a queue unit of its own",
    (MESSAGE_TYPE, "LITE"): "lite topics do not exist yet",
}

GROUP_ATTRIBUTES = _table(
    Attribute(PRIORITY_FACTOR, True, range=(0, 100), default="100"),
    Attribute("lite.bind.topic", True),
    Attribute("lite.sub.model", True, choices=frozenset(("Shared", "Exclusive")), default="Shared"),
    Attribute("lite.sub.reset.offset.exclusive", True, boolean=True, default="false"),
    Attribute("lite.sub.reset.offset.unsubscribe", True, boolean=True, default="false"),
    Attribute("lite.sub.client.quota", True, range=(-1, _LONG_MAX), default="2000"),
    Attribute("lite.sub.client.max.event.cnt", True, range=(10, _LONG_MAX), default="400"),
    Attribute("lite.sub.wildcard", True),
)


def parse_attributes(text: str | None) -> dict[str, str]:
    """Return the changes that a header carries: `+key1=value1,-key2`. RocketMQ: AttributeParser.parseToMap."""
    changes: dict[str, str] = {}
    for word in (text or "").split(","):
        if not word:
            continue
        key, equals, value = word.partition("=")
        if equals and "+" not in key:
            raise InvalidArgumentError(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise InvalidArgumentError(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise InvalidArgumentError(f"key duplication: {key}")
        changes[key] = value
    return changes


def alter_attributes(
    declared: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after the changes; `current` is None while creating. RocketMQ:
    AttributeUtil.alterCurrentAttributes.
    """
    result = dict(current or {})
    named: set[str] = set()
    for change, value in changes.items():
        sign, name = change[:1], change[1:]
        if not name or "+" in name or "-" in name:
            raise InvalidArgumentError("kv string format wrong.")
        if name in named:
            raise InvalidArgumentError(f"alter duplication key. key: {name}")
        named.add(name)
        _require_sign(sign, name, current)
        attribute = declared.get(name)
        if attribute is None:
            raise InvalidArgumentError(f"unsupported key: {name}")
        if current is not None and not attribute.changeable:
            raise InvalidArgumentError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del result[name]
        else:
            attribute.verify(value)
            result[name] = value
    return result


def value_problem(changes: Mapping[str, str], *, mixed: bool) -> str | None:
    """Return why a topic cannot be given one of these values. `mixed` allows the message type MIXED."""
    if not mixed and changes.get(f"+{MESSAGE_TYPE}") == "MIXED":
        return "MIXED message type is not supported."
    for (name, value), reason in REFUSED_VALUES.items():
        if changes.get(f"+{name}") == value:
            return f"{name}={value} is not supported: {reason}"
    return None


def retention_hours(config: TopicConfig) -> int | None:
    """Return how many hours a topic's messages are served; None where only the log decides.

    RocketMQ: FlatMessageFile.getFileReservedHours.
    """
    if not config.attributes:
        return None
    return int_or(config.attributes.get(RESERVE_TIME, ""), None, 1, INT32_MAX)


def _require_sign(sign: str, name: str, current: Mapping[str, str] | None) -> None:
    if sign not in ("+", "-"):
        raise InvalidArgumentError(f"wrong format key: {name}")
    if sign == "-":
        if current is None:
            raise InvalidArgumentError(f"only add attribute is supported while creating topic. key: {name}")
        if name not in current:
            raise InvalidArgumentError(f"attempt to delete a nonexistent key: {name}")


def message_type(properties: Mapping[str, str]) -> str:
    """Return the kind of a message, by its properties. RocketMQ: TopicMessageType.parseFromMessageProperty."""
    if properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        return "TRANSACTION"
    if any(name in properties for name in (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    if PRIORITY in properties:
        return PRIORITY_TYPE
    return "LITE" if LITE_TOPIC in properties else "NORMAL"
