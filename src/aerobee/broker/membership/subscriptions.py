"""What a consumer subscribes to in one topic, and the tag filter a broker applies by hash.

Tags are compared by Java's hash code only; two tags with one hash both pass, and the client looks at the
text. RocketMQ: SubscriptionData, FilterAPI, ExpressionMessageFilter.isMatchedByConsumeQueue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.javahash import java_hash

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"

# Tags of one subscription, as text. Apache has no bound; one that a header carries is parsed with each pull.
EXPRESSION_SIZE_MAX: Final = 32 << 10
TAGS_MAX: Final = 8192
# About what a subscription costs in memory beside its texts, and each tag with its hash.
_OWN_SIZE: Final = 600
_TAG_SIZE: Final = 150
# Parsed subscriptions are kept up to this size in total; one larger than the second bound is not kept.
_CACHE_SIZE_MAX: Final = 4 << 20
_CACHED_SIZE_MAX: Final = 64 << 10
# The bound of what pulls carried, of all groups and topics.
_CARRIED_SIZE_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic of one consumer. `codes` are the hash codes of `tags`."""

    topic: str
    expression: str = SUB_ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    @property
    def by_tags(self) -> bool:
        """RocketMQ: ExpressionType.isTagType (nothing said means tags)."""
        return not self.expression_type or self.expression_type == TAG

    def tag_codes(self) -> Collection[int] | None:
        """Return the codes of which a queue unit must have one; None where every unit passes to the next filter."""
        if self.class_filter_mode or not self.by_tags or self.expression == SUB_ALL:
            return None
        return self.codes

    def size(self) -> int:
        """Return about how many bytes of memory it takes."""
        return _OWN_SIZE + len(self.topic) + len(self.expression) + _TAG_SIZE * max(len(self.tags), len(self.codes))

    def same_as(self, other: Subscription) -> bool:
        """Tell whether both select the same. The version tells only when a subscription was made."""
        return self.selects() == other.selects()

    def selects(self) -> tuple[str, str, object]:
        """Return what it selects, for comparison: order and spacing of tags do not matter."""
        if not self.by_tags:
            return (self.topic, self.expression_type, self.expression)
        return (self.topic, TAG, self.tags if self.expression != SUB_ALL else SUB_ALL)

    def to_json(self) -> dict[str, Any]:
        """Return the subscription under Apache's names."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": sorted(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Subscription:
        """Return the subscription of a heartbeat. The client's own codes are kept: its tags mean them."""
        topic = data.get("topic")
        if not isinstance(topic, str) or not topic:
            raise InvalidArgumentError("a subscription names no topic")
        expression = data.get("subString")
        _require_size(expression, max(len(data.get("tagsSet") or ()), len(data.get("codeSet") or ())))
        return cls(
            topic=topic,
            expression=expression if isinstance(expression, str) and expression else SUB_ALL,
            tags=frozenset(tag for tag in data.get("tagsSet") or () if isinstance(tag, str)),
            codes=frozenset(code for code in data.get("codeSet") or () if isinstance(code, int)),
            version=_integer(data.get("subVersion")),
            expression_type=data.get("expressionType") or TAG,
            class_filter_mode=bool(data.get("classFilterMode")),
        )


class _Carried:
    def __init__(self, subscription: Subscription, seen_s: float) -> None:
        self.subscription = subscription
        self.seen_s = seen_s


class CarriedSubscriptions:
    """What pulls without a heartbeat carried (pull consumers, proxies), by group and topic, for a while.

    RocketMQ: ConsumerManager.compensateSubscribeData.
    """

    def __init__(self, expiry_s: float) -> None:
        self._expiry_s = expiry_s
        self._kept: dict[str, dict[str, _Carried]] = {}
        self._size = 0

    def note(self, group: str, subscription: Subscription, now_s: float) -> None:
        """Note a subscription that a pull carried."""
        topics = self._kept.get(group)
        if topics is None:
            topics = self._kept[group] = {}
        kept = topics.get(subscription.topic)
        if kept is not None and kept.subscription is subscription:
            kept.seen_s = now_s
            return
        self._size += subscription.size() - (0 if kept is None else kept.subscription.size())
        topics[subscription.topic] = _Carried(subscription, now_s)
        if self._size > _CARRIED_SIZE_MAX:
            self._forget_some()

    def find(self, group: str, topic: str) -> Subscription | None:
        kept = self._kept.get(group, {}).get(topic)
        return None if kept is None else kept.subscription

    def expire(self, now_s: float) -> None:
        """Forget what no pull has carried for long."""
        for group, topics in list(self._kept.items()):
            for topic, kept in list(topics.items()):
                if now_s - kept.seen_s > self._expiry_s:
                    self._size -= kept.subscription.size()
                    del topics[topic]
            if not topics:
                del self._kept[group]

    def _forget_some(self) -> None:
        """Forget the oldest quarter, so that this is not done with each pull."""
        for group, topics in list(self._kept.items()):
            for topic, kept in list(topics.items()):
                if self._size <= _CARRIED_SIZE_MAX * 3 // 4:
                    return
                self._size -= kept.subscription.size()
                del topics[topic]
            if not topics:
                del self._kept[group]


_Key = tuple[str, str | None, str | None, int]
# Parsed subscriptions: each pull of a reader carries the same. They are bounded by their size, not their number.
_parsed: dict[_Key, Subscription] = {}
_parsed_sizes: list[int] = [0]


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, version: int = 0
) -> Subscription:
    """Return the subscription that a pull carries in its header. RocketMQ: FilterAPI.build."""
    key = (topic, expression, expression_type, version)
    found = _parsed.get(key)
    if found is None:
        found = _parse(topic, expression, expression_type, version)
        size = found.size()
        if size <= _CACHED_SIZE_MAX:
            _parsed_sizes[0] += size
            if _parsed_sizes[0] > _CACHE_SIZE_MAX:
                # All are dropped: those in use come back with the next pulls.
                _parsed.clear()
                _parsed_sizes[0] = size
            _parsed[key] = found
    return found


def _parse(topic: str, expression: str | None, expression_type: str | None, version: int) -> Subscription:
    _require_size(expression, 0)
    if expression_type not in (None, "", TAG):
        if not expression:
            raise InvalidArgumentError(f"Expression can't be null! {expression_type}")
        return Subscription(topic, expression, version=version, expression_type=str(expression_type))
    if not expression or expression == SUB_ALL:
        return Subscription(topic, SUB_ALL, version=version)
    if not expression.replace("||", ""):
        raise InvalidArgumentError("subString split error")
    tags = frozenset(tag.strip(_JAVA_SPACE) for tag in expression.split("||")) - {""}
    _require_size(None, len(tags))
    return Subscription(topic, expression, tags, frozenset(map(java_hash, tags)), version)


def _require_size(expression: object, tags: int) -> None:
    if isinstance(expression, str) and len(expression) > EXPRESSION_SIZE_MAX:
        raise InvalidArgumentError(
            f"a subscription of {len(expression)} characters is too long, {EXPRESSION_SIZE_MAX} are the most"
        )
    if tags > TAGS_MAX:
        raise InvalidArgumentError(f"a subscription of {tags} tags is too long, {TAGS_MAX} are the most")


# Java's String.trim cuts every character up to the space.
_JAVA_SPACE = "".join(map(chr, range(33)))


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
