"""WHERE: what is pushed, what Spark looks at again, and that nothing of the answer is cut off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import datasource as spark

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.source.pushdown import push, spark_pushes_filters
from pyspark_rocketmq.source.settings import Filter

T0 = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)


def test_topics_queues_and_offsets_are_pushed_completely() -> None:
    filters = [
        spark.IsNotNull(("topic",)),
        spark.In(("topic",), ["a", "b"]),
        spark.EqualTo(("topic",), "a"),
        spark.GreaterThan(("queue_id",), 0),
        spark.LessThanOrEqual(("queue_id",), 2),
        spark.GreaterThanOrEqual(("queue_offset",), 10),
        spark.LessThan(("queue_offset",), 20),
    ]
    pushed, left = push(filters)
    assert left == []
    takes = [pushed.takes(MessageQueue(topic, "x", queue)) for topic, queue in (("a", 1), ("a", 0), ("a", 3), ("b", 1))]
    assert takes == [True, False, False, False]
    assert pushed.offset_range == (10, 20)
    assert push([spark.EqualTo(("queue_offset",), 7)])[0].offset_range == (7, 8)
    low, high = push([spark.EqualTo(("queue_offset",), 7), spark.EqualTo(("queue_offset",), 8)])[0].offset_range
    assert low >= high, "nothing is both"


def test_time_and_tags_are_pushed_and_looked_at_again() -> None:
    filters = [
        spark.GreaterThan(("store_timestamp",), T0 + timedelta(microseconds=1500)),
        spark.LessThanOrEqual(("store_timestamp",), T0 + timedelta(seconds=1)),
        spark.In(("tags",), ["A", "B"]),
    ]
    pushed, left = push(filters)
    assert left == filters
    assert pushed.stored_ms == (T0_MS + 1, T0_MS + 1001)
    assert pushed.narrowed(Filter()) == Filter("A || B", "TAG")
    assert pushed.narrowed(Filter("B || C", "TAG")) == Filter("B", "TAG")
    assert pushed.narrowed(Filter("C", "TAG")) is None, "nothing has both"
    assert pushed.narrowed(Filter("n > 1", "SQL92")) == Filter("n > 1", "SQL92")
    equal, _ = push([spark.EqualTo(("store_timestamp",), T0)])
    assert equal.stored_ms == (T0_MS, T0_MS + 1)


def test_what_cannot_be_pushed_is_left() -> None:
    filters = [
        spark.Not(spark.EqualTo(("topic",), "a")),
        spark.EqualTo(("keys",), "k"),
        spark.EqualTo(("properties", "x"), "k"),
        spark.StringStartsWith(("topic",), "a"),
        spark.EqualTo(("tags",), "a || b"),
        spark.In(("queue_offset",), [1, 5]),
        spark.IsNull(("tags",)),
        spark.IsNotNull(("tags",)),
        spark.EqualTo(("topic",), None),
    ]
    pushed, left = push(filters)
    assert left == filters
    assert pushed.takes(MessageQueue("any", "x", 9))
    assert pushed.narrowed(Filter()) == Filter()


def test_outside_of_sparks_planner_nobody_knows_the_switch() -> None:
    assert spark_pushes_filters() is None
