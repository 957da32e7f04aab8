"""Entries of the group's state as records tell them: each is checked, and becomes the value that a table holds.

Every decoder takes the key and the JSON of an entry. It raises one of SENSELESS (`store/statefile.py`) for what makes
no sense.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aerobee.access.owners import QUERY_LENGTH_MAX
from aerobee.access.users import NAME_LENGTH_MAX
from aerobee.broker.delay import TimerProgress
from aerobee.errors import InvalidArgumentError
from aerobee.model.fields import int_key, whole_of
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.numbers import parse_int
from aerobee.model.topic import QUEUE_NUMS_MAX, TopicConfig
from aerobee.store.metadata.table import check_name
from aerobee.store.metadata.topics import check_topic
from aerobee.store.queues import QUEUE_OFFSET_MAX

# Between topic, group and queue in a key.
SEPARATOR: Final = "@"
DELAYS: Final = "delays"
TIMERS: Final = "timers"


def _topic(name: str, one: Any) -> TopicConfig:
    return check_topic(TopicConfig.from_json({**_object(name, one), "topicName": name}))


def _group(name: str, one: Any) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig.from_json({**_object(name, one), "groupName": check_name(name)})


def _bits(group: str, one: Any) -> dict[str, int]:
    check_name(group)
    return {check_name(topic): whole_of(bits) for topic, bits in _object(group, one).items()}


def _object(key: str, one: Any) -> dict[Any, Any]:
    if not isinstance(one, dict):
        raise InvalidArgumentError(f"{key[:100]}: not an object")
    return one


def _queues(key: str, one: Any) -> dict[int, int]:
    if SEPARATOR not in key:
        raise InvalidArgumentError(f"{key[:100]!r} names no topic and group")
    found = {int_key(queue_id): whole_of(offset) for queue_id, offset in _object(key, one).items()}
    if any(not 0 <= queue_id < QUEUE_NUMS_MAX for queue_id in found):
        raise InvalidArgumentError(f"{key[:100]}: a queue id is out of range")
    return found


def _lock(key: str, one: Any) -> tuple[str, int]:
    parts = key.split(SEPARATOR, 3)
    if len(parts) != 4 or not isinstance(one, list) or len(one) != 2 or not isinstance(one[0], str):
        raise InvalidArgumentError(f"{key[:100]}: not a lock")
    check_name(parts[0])
    check_name(parts[1])
    parse_int(parts[2], -(2**31), 2**31 - 1)
    return one[0], whole_of(one[1])


def _filter(key: str, one: Any) -> tuple[str, str, int, int, int]:
    topic, _, group = key.partition(SEPARATOR)
    check_name(topic)
    check_name(group)
    if not isinstance(one, list) or len(one) != 5 or not isinstance(one[0], str) or not isinstance(one[1], str):
        raise InvalidArgumentError(f"{key[:100]}: not a filter")
    return one[0], one[1], whole_of(one[2]), whole_of(one[3]), whole_of(one[4])


def _progress(key: str, one: Any) -> dict[str, Any]:
    found = _object(key, one)
    if key == TIMERS:
        TimerProgress.from_json(found)
    elif key == DELAYS:
        for level, offset in found.items():
            int_key(level)
            whole_of(offset)
    else:
        raise InvalidArgumentError(f"{key[:100]}: nobody has such a progress")
    return found


def _number(key: str, one: Any) -> int:
    topic, _, queue_id = key.partition(SEPARATOR)
    check_name(topic)
    parse_int(queue_id, 0, QUEUE_NUMS_MAX - 1)
    found = whole_of(one)
    if not 0 <= found <= QUEUE_OFFSET_MAX:
        raise InvalidArgumentError(f"{key[:100]}: {found} is no offset of a queue")
    return found


def _owner(query: str, user: Any) -> str:
    if not isinstance(user, str) or not user or len(user) > NAME_LENGTH_MAX or len(query) > QUERY_LENGTH_MAX:
        raise InvalidArgumentError(f"{query[:100]}: not the user of a query")
    return user


DECODERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "topics": _topic,
    "groups": _group,
    "forbidden": _bits,
    "modes": _object,
    "locks": _lock,
    "offsets": _queues,
    "resets": _queues,
    "filters": _filter,
    "progress": _progress,
    "numbers": _number,
    "owners": _owner,
}
