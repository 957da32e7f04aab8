"""The parts of a query's WHERE that narrow what is pulled: topics, queues, offsets, store time and tags.

A filter that is applied completely is not returned to Spark. Times are applied as offsets of whole queues, and tags by
their hash, so Spark must check those rows again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import datasource as spark

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.source.settings import Filter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALWAYS_THERE: Final = frozenset((c.TOPIC, c.QUEUE_ID, c.QUEUE_OFFSET, c.STORE_TIMESTAMP))
_OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the query can need. Ranges are [low, high)."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_id_range: tuple[int, int] = (0, _OFFSET_MAX)
    offset_range: tuple[int, int] = (0, _OFFSET_MAX)
    stored_ms: tuple[int | None, int | None] = (None, None)
    tags: frozenset[str] | None = None

    def takes(self, queue: MessageQueue) -> bool:
        """Return whether a queue can contain rows of the result."""
        low, high = self.queue_id_range
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
            and low <= queue.queue_id < high
        )

    def narrowed(self, wanted: Filter) -> Filter | None:
        """Return the broker's filter with the tags of the query, or None if nothing can match."""
        if self.tags is None or wanted.kind == "SQL92":
            return wanted
        tags = self.tags
        if wanted.expression is not None:
            tags &= frozenset(tag.strip() for tag in wanted.expression.split("||"))
        return Filter(" || ".join(sorted(tags)), "TAG") if tags else None


def push(filters: Sequence[Any]) -> tuple[Pushed, list[Any]]:
    """Return what the filters, all of which hold, narrow, and the filters that Spark must still apply."""
    pushed, left = Pushed(), []
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else None
        narrowed = None if column is None else _narrow(pushed, column, one)
        if narrowed is not None:
            pushed = narrowed
        if narrowed is None or column in (c.STORE_TIMESTAMP, c.TAGS):
            left.append(one)
    return pushed, left


def _narrow(pushed: Pushed, column: str, one: Any) -> Pushed | None:
    """Return `pushed` with one more filter, or None if the filter cannot be pushed."""
    if isinstance(one, spark.IsNotNull):
        return pushed if column in _ALWAYS_THERE else None
    values = _values(one)
    if column == c.STORE_TIMESTAMP:
        return _narrow_time(pushed, one, values)
    if column in (c.QUEUE_ID, c.QUEUE_OFFSET):
        return _narrow_number(pushed, column, one, values)
    return None if values is None else _narrow_name(pushed, column, values)


def _narrow_name(pushed: Pushed, column: str, values: list[Any]) -> Pushed | None:
    if column == c.TOPIC:
        return replace(pushed, topics=_both(pushed.topics, values))
    if column == c.BROKER:
        return replace(pushed, brokers=_both(pushed.brokers, values))
    # Spark applies what an expression of tags cannot express.
    if column == c.TAGS and all(tag and tag == tag.strip() and "|" not in tag for tag in values):
        return replace(pushed, tags=_both(pushed.tags, values))
    return None


def _narrow_number(pushed: Pushed, column: str, one: Any, values: list[Any] | None) -> Pushed | None:
    if column == c.QUEUE_ID and values is not None:
        return replace(pushed, queue_ids=_both(pushed.queue_ids, values))
    have = pushed.queue_id_range if column == c.QUEUE_ID else pushed.offset_range
    if values is not None:
        # With several single offsets, Spark would have to check again what lies between them.
        bounds = (max(have[0], values[0]), min(have[1], values[0] + 1)) if len(values) == 1 else None
    else:
        bounds = _range(one, have)
    if bounds is None:
        return None
    return replace(pushed, queue_id_range=bounds) if column == c.QUEUE_ID else replace(pushed, offset_range=bounds)


def _narrow_time(pushed: Pushed, one: Any, values: list[Any] | None) -> Pushed | None:
    """Return `pushed` with a range of time, rounded outwards to milliseconds because Spark checks again."""
    low, high = pushed.stored_ms
    value: Any = getattr(one, "value", None)
    if values is not None and values and all(_is_moment(each) for each in values):
        first, last = _ms(min(values)), _ms(max(values)) + 1
    elif _is_moment(value) and isinstance(one, (spark.GreaterThan, spark.GreaterThanOrEqual)):
        first, last = _ms(value), None
    elif _is_moment(value) and isinstance(one, (spark.LessThan, spark.LessThanOrEqual)):
        first, last = None, _ms(value) + 1
    else:
        return None
    return replace(
        pushed,
        stored_ms=(
            first if low is None else low if first is None else max(low, first),
            last if high is None else high if last is None else min(high, last),
        ),
    )


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _ms(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _values(one: Any) -> list[Any] | None:
    """Return the values of which a column must be one, or None for another kind of filter."""
    if isinstance(one, spark.In):
        return [value for value in one.value if value is not None]
    if isinstance(one, (spark.EqualTo, spark.EqualNullSafe)) and one.value is not None:
        return [one.value]
    return None


def _both(have: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    found = frozenset(values)
    return found if have is None else have & found


def _range(one: Any, have: tuple[int, int]) -> tuple[int, int] | None:
    value = getattr(one, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    low, high = have
    if isinstance(one, spark.GreaterThan):
        return max(low, value + 1), high
    if isinstance(one, spark.GreaterThanOrEqual):
        return max(low, value), high
    if isinstance(one, spark.LessThan):
        return low, min(high, value)
    if isinstance(one, spark.LessThanOrEqual):
        return low, min(high, value + 1)
    return None


def spark_pushes_filters() -> bool | None:
    """Return whether spark.sql.python.filterPushdown.enabled is on, or None if this is unknown.

    Spark refuses a reader with `pushFilters` while the setting is off, and never asks one without. The setting is not
    visible where readers are created, but Spark's planner, which calls us, has it in a local variable.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith("data_source_pushdown_filters.py"):
            return True
        if name.endswith("plan_data_source_read.py") and "enable_pushdown" in frame.f_locals:
            return bool(frame.f_locals["enable_pushdown"])
        frame = frame.f_back  # type: ignore[assignment]  # None at the bottom
    return None
