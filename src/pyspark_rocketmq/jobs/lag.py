"""The lag of consumer groups as a table, with one row for each group and queue at the time of the call."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupLag, group_lag, list_groups
from pyspark_rocketmq.jobs.cluster import converse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = (
    "`group` string, topic string, broker string, queue_id int, broker_offset bigint, consumer_offset bigint, "
    "lag bigint, in_flight bigint, last_consumed_timestamp timestamp"
)


def read_lag(spark: SparkSession, namesrv: str, groups: Sequence[str] = (), *, timeout_s: float = 5.0) -> DataFrame:
    """Return the lag of `groups`, or of every group that is not a system group."""
    return spark.createDataFrame(lag_rows(namesrv, groups, timeout_s=timeout_s), SCHEMA)


def lag_rows(namesrv: str, groups: Sequence[str] = (), *, timeout_s: float = 5.0) -> list[tuple[Any, ...]]:
    """Return the rows that the brokers report."""

    async def ask(admin: AdminConnection) -> list[GroupLag]:
        names = list(groups) or [one.group for one in (await list_groups(admin)).groups]
        return [await group_lag(admin, name) for name in names]

    return [row for one in converse(namesrv, ask, timeout_s=timeout_s) for row in _rows(one)]


def _rows(found: GroupLag) -> list[tuple[Any, ...]]:
    return [
        (
            found.group,
            queue.topic,
            queue.broker,
            queue.queue_id,
            queue.broker_offset,
            queue.consumer_offset,
            queue.lag,
            queue.in_flight,
            _time(queue.last_consumed_timestamp),
        )
        for queue in found.queues
    ]


def _time(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds > 0 else None
