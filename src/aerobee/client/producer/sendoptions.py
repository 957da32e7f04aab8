"""The keyword arguments of a send: their types and meaning, and the checks before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

from aerobee.client.core import is_number, is_whole, require_seconds, unexpected_arguments, wrong_type
from aerobee.client.producer.selectors import Selector
from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import plain_float
from aerobee.model.queue import MessageQueue


class SendOptions(TypedDict, total=False):
    """The keyword arguments of `send` and the calls like it. None means the same as not given."""

    tags: str | None
    keys: str | Sequence[str] | None
    properties: Mapping[str, str] | None
    sharding_key: str | None
    reorder: Literal["allow"] | None
    queue: MessageQueue | None
    selector: Selector | None
    delay: float | timedelta | None
    deliver_at: datetime | int | None
    delay_level: int | None
    priority: int | None
    flag: int | None
    timeout: float | None


# The texts that help() shows.
SEND_MEANING: Final = {
    "tags": "one tag, by which consumers can filter",
    "keys": "one key or several, by which the message can be found",
    "properties": "names and values of your own, all text; RocketMQ's own names are refused",
    "sharding_key": "messages with equal keys go to one queue, in order; while the queue has no master they wait for "
    "it, up to `timeout`",
    "reorder": '"allow": a sharding key moves to another queue while the broker of its queue is away',
    "queue": "the queue to send to: MessageQueue(topic, broker, number)",
    "selector": "a function of the topic's queues and the message that returns a queue (aerobee.selectors has "
    "some); without it the queues are taken in turn",
    "delay": "deliver after this time: seconds or a timedelta",
    "deliver_at": "deliver at this time: a datetime with a time zone, or milliseconds since 1970",
    "delay_level": "1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h, unless the broker has others",
    "priority": "0 is the lowest. In a topic with message.type=PRIORITY, consumers by POP get higher ones first; the "
    "broker stores the message in the queue of this number, or in the last one",
    "flag": "a number of 32 bits that RocketMQ stores with the message",
    "timeout": "seconds for all tries together; the default is the producer's",
}


class BatchOptions(TypedDict, total=False):
    """The keyword arguments of `send_batch`."""

    queue: MessageQueue | None
    timeout: float | None


BATCH_MEANING: Final = {
    "queue": "send all messages to this queue",
    "timeout": "seconds for all tries of one request together",
}

# A smaller number of milliseconds is a day before 1973: the caller has counted seconds.
_DELIVER_AT_MIN: Final = 100_000_000_000
_FLAG_MAX: Final = 2**31 - 1


def _tags(value: Any) -> None:
    if not isinstance(value, str):
        raise wrong_type("tags", "one tag, a str", value, "RocketMQ keeps one tag for a message; use keys= for several")


def _keys(value: Any) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
        raise wrong_type("keys", "a str or a list of them", value)
    for key in value:
        if not isinstance(key, str):
            raise wrong_type("a key", "a str", key, f"keys=[..., {str(key)!r}]")


def _properties(value: Any) -> None:
    if type(value) is not dict and not isinstance(value, Mapping):  # asking an abstract class is slow
        raise wrong_type("properties", "a dict of str to str", value)
    for name, text in value.items():
        if not isinstance(name, str):
            raise wrong_type("the name of a property", "a str", name)
        if not isinstance(text, str):
            raise wrong_type(f"property {name!r}", "a str", text, f"properties={{{name!r}: {str(text)!r}}}")


def _sharding_key(value: Any) -> None:
    if not isinstance(value, str):
        raise wrong_type("sharding_key", "a str", value, f"sharding_key={str(value)!r}")


def _reorder(value: Any) -> None:
    if not isinstance(value, str):
        raise wrong_type("reorder", "a str", value)
    if value != "allow":
        raise InvalidArgumentError(f"reorder={value!r} is unknown", hint='leave it out, or give "allow"')


def _queue(value: Any) -> None:
    if not isinstance(value, MessageQueue):
        hint = "queue=MessageQueue(topic, broker, number), as in receipt.queue"
        if is_whole(value):
            hint += f"; or selector=lambda queues, message: queues[{value}]"
        raise wrong_type("queue", "a MessageQueue", value, hint)


def _selector(value: Any) -> None:
    if not callable(value):
        raise wrong_type("selector", "a function of (queues, message)", value)


def _delay(value: Any) -> None:
    if not is_number(value) and not isinstance(value, timedelta):
        raise wrong_type("delay", "seconds or a timedelta", value)
    delay_s = seconds_of(value)
    if not 0 <= delay_s < 1e11:
        raise InvalidArgumentError(f"delay={delay_s} seconds is not a time from now")


def _deliver_at(value: Any) -> None:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgumentError("deliver_at has no time zone", hint="datetime.now(UTC) + ..., or .astimezone()")
        return
    if not is_whole(value):
        raise wrong_type("deliver_at", "a datetime or milliseconds since 1970, an int", value)
    if not _DELIVER_AT_MIN <= value < 2**63:
        raise InvalidArgumentError(
            f"deliver_at={value} is no time of today in milliseconds since 1970", hint="a time in seconds times 1000"
        )


def _delay_level(value: Any) -> None:
    if not is_whole(value):
        raise wrong_type("delay_level", "an int", value)
    if not 0 <= value <= _FLAG_MAX:
        raise InvalidArgumentError(f"delay_level={value} is {'below 0' if value < 0 else 'no level'}")


def _priority(value: Any) -> None:
    if not is_whole(value):
        raise wrong_type("priority", "an int", value)
    if not 0 <= value <= _FLAG_MAX:
        raise InvalidArgumentError(f"priority={value} is {'below 0' if value < 0 else 'more than 2147483647'}")


def _flag(value: Any) -> None:
    if not is_whole(value):
        raise wrong_type("flag", "an int", value)
    if not -_FLAG_MAX - 1 <= value <= _FLAG_MAX:
        raise InvalidArgumentError(f"flag={value} does not fit into 32 bits")


def _timeout(value: Any) -> None:
    if type(value) is not float or not 0 < value < math.inf:
        require_seconds("timeout", value)


_CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "tags": _tags,
    "keys": _keys,
    "properties": _properties,
    "sharding_key": _sharding_key,
    "reorder": _reorder,
    "queue": _queue,
    "selector": _selector,
    "delay": _delay,
    "deliver_at": _deliver_at,
    "delay_level": _delay_level,
    "priority": _priority,
    "flag": _flag,
    "timeout": _timeout,
}
# Options that need no check beyond their type. Most sends have only these.
_PLAIN: Final[dict[str, type]] = {"tags": str, "keys": str, "sharding_key": str, "queue": MessageQueue}


def check_send_options(call: str, options: SendOptions) -> None:
    """Raise TypeError or InvalidArgumentError for options that `call` cannot take. Remove those that are None."""
    nones = 0
    for name, value in options.items():
        if type(value) is _PLAIN.get(name):
            continue
        check = _CHECKS.get(name)
        if check is None:
            raise unexpected_arguments(call, [one for one in options if one not in _CHECKS], _CHECKS)
        if value is None:
            nones += 1
        else:
            check(value)
    if nones:
        for name in [name for name, value in options.items() if value is None]:
            del options[name]  # type: ignore[misc]
    if len(options) > 1:
        _choose_one(options, "sharding_key", "queue", "selector")
        _choose_one(options, "delay", "deliver_at", "delay_level")
        if "priority" in options:
            _check_priority(options)


def _choose_one(options: SendOptions, one: str, two: str, three: str) -> None:
    if (one in options) + (two in options) + (three in options) > 1:
        given = [name for name in (one, two, three) if name in options]
        raise InvalidArgumentError(f"{' and '.join(given)} cannot go together: choose one")


def _check_priority(options: SendOptions) -> None:
    """Raise InvalidArgumentError for what decides about the queue or the time, where the priority would be ignored."""
    rivals = ("sharding_key", "queue", "selector", "delay", "deliver_at", "delay_level")
    found = [name for name in rivals if name in options]
    if found:
        hint = "the broker ignores the priority of delayed messages" if "del" in found[0] else "the priority is a queue"
        raise InvalidArgumentError(f"priority and {found[0]} cannot go together: choose one", hint=hint)


def check_batch_options(options: BatchOptions) -> None:
    """Do for `send_batch` what `check_send_options` does for `send`."""
    unknown = [name for name in options if name not in BATCH_MEANING]
    if unknown:
        raise unexpected_arguments("send_batch", unknown, BATCH_MEANING)
    for name, value in options.items():
        if value is not None:
            _CHECKS[name](value)


def seconds_of(delay: float | timedelta) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else plain_float(delay)


def is_delayed(options: SendOptions) -> bool:
    return "delay" in options or "deliver_at" in options or "delay_level" in options
