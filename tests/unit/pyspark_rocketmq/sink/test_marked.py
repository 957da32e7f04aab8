"""Keys are spread over the broker groups that a batch was begun with, whatever the route says now."""

from __future__ import annotations

import pytest

from aerobee.client.producer.publishinfo import PublishInfo, Slot
from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.sink.decision import BatchConflictError
from pyspark_rocketmq.sink.marked import KeySpread
from pyspark_rocketmq.sink.rows import Row, key_digest


def route(**queues: int) -> PublishInfo:
    found = [MessageQueue("T", group, number) for group, count in queues.items() for number in range(count)]
    return PublishInfo([Slot(queue, queue.broker_name, f"{queue.broker_name}:1", "", "") for queue in found], 0)


def rows(count: int) -> list[Row]:
    return [Row("T", None, b"x", b"", False, key_digest(number)) for number in range(count)]


def test_a_key_keeps_its_group_when_groups_and_queues_come() -> None:
    spread = KeySpread({})
    before = {row.key: spread(row, route(a=2, b=2)) for row in rows(200)}
    assert {queue.broker_name for queue in before.values()} == {"a", "b"}
    assert len(set(before.values())) == 4
    assert spread.groups == {"T": ("a", "b")}
    replay = KeySpread(spread.groups)
    after = {row.key: replay(row, route(a=4, b=1, c=2)) for row in rows(200)}
    assert {key: queue.broker_name for key, queue in after.items()} == {
        key: queue.broker_name for key, queue in before.items()
    }


def test_a_group_that_is_missing_is_named() -> None:
    with pytest.raises(BatchConflictError, match="begun over broker groups a, b, of which b cannot be reached"):
        KeySpread({"T": ("a", "b")})(rows(1)[0], route(a=2, c=2))
