"""The text of offsets, as Spark keeps it in a query's checkpoint and as users write it in options.

    {"v":1,"offsets":{topic:{broker:{"0":n}}},"generations":{topic:{broker:"g"}}}

Spark compares these texts, so equal offsets must have equal texts. Topics and brokers are sorted by name, and queues by
number. `generations` tells a topic from one of the same name that was deleted. Checkpoints of older versions, and of
topics on Apache's brokers, do not have it. The end of a query's first batch also contains `"start"`, the offsets at
which it began. The start of that batch is nowhere else in the checkpoint, and `latest` would mean another place after a
restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.queue import MessageQueue

VERSION: Final = 1
# These occur in options only. They are Kafka's numbers.
EARLIEST: Final = -2
LATEST: Final = -1

Offsets = Mapping[MessageQueue, int]
# By topic and broker group: what tells the topic from one of the same name that was deleted.
Generations = Mapping[tuple[str, str], str]


class OffsetFormatError(InvalidArgumentError):
    """A text is not an offset of this source."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a query: the next offset of every queue it saw. Only the end of a first batch has `start`."""

    offsets: Offsets = field(default_factory=dict)
    start: Offsets | None = None
    generations: Generations = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the value whose text Spark writes to the checkpoint."""
        value: dict[str, Any] = {"v": VERSION, "offsets": nested(self.offsets)}
        if self.start is not None:
            value["start"] = nested(self.start)
        for topic, broker in sorted(self.generations):
            table = value.setdefault("generations", {}).setdefault(topic, {})
            table[broker] = self.generations[topic, broker]
        return value

    @classmethod
    def from_json(cls, value: object) -> Position:
        """Return the position that a checkpoint holds, or raise OffsetFormatError."""
        if not isinstance(value, dict) or value.get("v") != VERSION:
            version = value.get("v") if isinstance(value, dict) else None
            raise OffsetFormatError(
                f"this checkpoint's offsets (version {version!r}) were not written by this source or by a newer one"
            )
        start = value.get("start")
        generations = {
            (topic, broker): str(generation)
            for topic, brokers in _table(value.get("generations", {}), "generations")
            for broker, generation in _table(brokers, topic)
        }
        return cls(flat(value.get("offsets")), None if start is None else flat(start), generations)


def nested(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """Return the offsets by topic, broker and queue, sorted."""
    value: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        value.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return value


def flat(value: object) -> dict[MessageQueue, int]:
    """Return the offsets of a nested table, or raise OffsetFormatError."""
    found: dict[MessageQueue, int] = {}
    for topic, brokers in _table(value, "offsets"):
        for broker, queues in _table(brokers, topic):
            for queue, offset in _table(queues, broker):
                queue_id = int_or(queue, None, 0, INT32_MAX)
                if queue_id is None:
                    raise OffsetFormatError(f"{queue!r} of {topic} is not the number of a queue")
                if not isinstance(offset, int) or isinstance(offset, bool):
                    raise OffsetFormatError(f"offset {offset!r} of {topic}, {broker}, queue {queue} is not a number")
                place = MessageQueue(topic, broker, queue_id)
                if place in found:
                    raise OffsetFormatError(f"queue {queue_id} of {topic} on {broker} is named twice")
                found[place] = offset
    return found


def _table(value: object, name: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OffsetFormatError(f"{name}: an object was expected, not {value!r}")
    return [(str(key), inner) for key, inner in value.items()]


# -- options


def read_offsets(text: str) -> dict[MessageQueue, int]:
    """Return the offsets of `{topic:{broker:{queue:n}}}` (-2 is earliest, -1 is latest), or of a checkpoint."""
    value = _parsed(text)
    if isinstance(value, dict) and "offsets" in value and value.get("v") == VERSION:
        value = value["offsets"]
    try:
        found = flat(value)
    except OffsetFormatError as error:
        raise ValueError(f'is not {{"topic":{{"broker":{{"0":n}}}}}}: {error.message}') from None
    if not found:
        raise ValueError("names no queue")
    for queue, offset in found.items():
        if offset < EARLIEST:
            raise ValueError(f"has the offset {offset} for queue {queue.queue_id} of {queue.topic}")
    return found


def read_assignment(text: str) -> dict[str, dict[str, frozenset[int]]]:
    """Return the queues of `{topic:[0,1]}`, which means every broker (key "*"), or of `{topic:{broker:[0,1]}}`."""
    value = _parsed(text)
    try:
        if not isinstance(value, dict) or not value:
            raise TypeError
        found = {
            topic: {
                broker: frozenset(_number(queue) for queue in queues)
                for broker, queues in (inner if isinstance(inner, dict) else {"*": inner}).items()
            }
            for topic, inner in value.items()
        }
    except TypeError:
        raise ValueError('is neither {"topic":[0,1]} nor {"topic":{"broker":[0,1]}}') from None
    for topic, brokers in found.items():
        if not brokers or not all(brokers.values()):
            raise ValueError(f"names no queue of {topic}, or of one of its brokers")
    return found


def _parsed(text: str) -> Any:
    """Return the value of an option's JSON. Raise ValueError for none, and for an object that has a name twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"has {max(names, key=names.count)!r} twice")
        return table

    try:
        return json.loads(text, object_pairs_hook=once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value
