"""What a group wants of a topic, from what its user writes. RocketMQ: FilterAPI."""

from __future__ import annotations

from dataclasses import replace

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.javahash import java_hash
from aerobee.protocol.bodies.heartbeat import SQL92, TAG, SubscriptionData

ALL = "*"


def subscription(topic: str, tags: str = ALL, sql92: str | None = None, version: int = 0) -> SubscriptionData:
    """`tags` is `*` or tags apart by `||`; `sql92` a filter that the broker evaluates. One of the two."""
    tags = tags.strip() or ALL
    if sql92 is not None:
        if tags != ALL:
            raise InvalidArgumentError("tags and sql92 cannot go together: TAGS is a property that sql92 can ask for")
        if not sql92.strip():
            raise InvalidArgumentError("sql92 is empty")
        return SubscriptionData(topic, sql92, sub_version=version, expression_type=SQL92)
    if tags == ALL:
        return SubscriptionData(topic, ALL, sub_version=version)
    wanted = tuple(dict.fromkeys(tag for tag in (part.strip() for part in tags.split("||")) if tag))
    if not wanted:
        raise InvalidArgumentError(f"tags={tags!r} names no tag")
    codes = tuple(dict.fromkeys(java_hash(tag) for tag in wanted))
    return SubscriptionData(topic, tags, wanted, codes, version, TAG)


def newer(data: SubscriptionData, version: int) -> SubscriptionData:
    """The same with a later version: brokers keep the latest they were told."""
    return replace(data, sub_version=max(version, data.sub_version + 1))
