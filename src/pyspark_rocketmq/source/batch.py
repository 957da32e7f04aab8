"""The batch reader. It has two classes, because Spark refuses a reader with `pushFilters` while push-down is off.

`partitions` runs once, in the driver's planner. It resolves "latest", so all tasks read the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aerobee.model.queue import MessageQueue
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import environment
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.columns.schema import require_columns
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source.cluster import Cluster, cluster_of
from pyspark_rocketmq.source.complete import all_bounds, patiently
from pyspark_rocketmq.source.offsets import EARLIEST, LATEST, Offsets
from pyspark_rocketmq.source.planning import Bounds, QueueRange, ranges_between
from pyspark_rocketmq.source.pulling import (
    PullSettings,
    RangesPartition,
    read_partition,
    tell_losses,
)
from pyspark_rocketmq.source.pushdown import Pushed, push, spark_pushes_filters
from pyspark_rocketmq.source.settings import COMMITTED, Edge, SourceSettings, source_settings

if TYPE_CHECKING:
    from pyspark_rocketmq.formats.reading import TypedBodies


class BatchReader(DataSourceReader):
    """The batch reader. It plans in the driver and reads in tasks."""

    def __init__(self, settings: SourceSettings, columns: tuple[str, ...], typed: TypedBodies | None = None) -> None:
        self._settings = settings
        self._columns = columns
        self._typed = typed
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Return what the tasks read."""
        return list(plan(cluster_of(self._settings), self._settings, self._pushed, self._columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition. A task calls this."""
        settings = self._settings
        wanted = self._pushed.narrowed(settings.filter)
        if not isinstance(partition, RangesPartition) or wanted is None:
            return iter(())
        pulling = PullSettings(settings.endpoint, wanted, settings.fail_on_data_loss, self._columns)
        rows = read_partition(pulling, partition)
        return rows if self._typed is None else self._typed.rows(rows)


class PushingBatchReader(BatchReader):
    """The batch reader for queries whose WHERE narrows what is read."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 (Spark's name)
        """Return the filters that Spark must still apply."""
        self._pushed, left = push(filters)
        return left


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of `spark.read.format("rocketmq")`. Only the driver calls this, and its environment counts."""
    settings = source_settings(options, environment(), streaming=False)
    columns, typed = read_columns(settings, schema)
    # Spark 4.3 keeps what a pushed filter narrowed with the loaded table. Later queries, and a second use in the same
    # query, then read only that. So push-down must be asked for.
    pushes = settings.pushdown and spark_pushes_filters()
    return (PushingBatchReader if pushes else BatchReader)(settings, columns, typed)


def read_columns(settings: SourceSettings, schema: StructType) -> tuple[tuple[str, ...], TypedBodies | None]:
    """Return the columns to read of each message, and how bodies become columns if option format is set."""
    if settings.body is None:
        return require_columns(schema), None
    # A read without typed bodies does not pay for these imports.
    from pyspark_rocketmq.source.typed import columns_of

    return columns_of(settings, settings.body, schema)


def plan(
    cluster: Cluster, settings: SourceSettings, pushed: Pushed, columns: tuple[str, ...] = c.COLUMNS
) -> list[RangesPartition]:
    """Return the partitions between start and end, without what the query cannot need.

    If a broker group that has a part of it is away, wait for it. Then raise, unless option onMissingBroker says skip.
    """
    if pushed.narrowed(settings.filter) is None:
        return []
    timeout_ms = settings.endpoint.retry_timeout_ms
    return patiently(SystemClock(), timeout_ms, lambda: _planned(cluster, settings, pushed, columns))


def _planned(
    cluster: Cluster, settings: SourceSettings, pushed: Pushed, columns: tuple[str, ...]
) -> list[RangesPartition]:
    bounds = all_bounds(cluster, settings, pushed.takes).bounds
    start = resolve(cluster, settings, settings.starting, settings.starting_timestamp, bounds, EARLIEST)
    end = resolve(cluster, settings, settings.ending, settings.ending_timestamp, bounds, LATEST, "endingOffsets")
    require_forward(settings, start, end, bounds)
    ranges, losses = ranges_between(start, end, bounds)
    tell_losses(losses, fail=settings.fail_on_data_loss)
    stored = _both(pushed.stored_ms, (settings.starting_timestamp, settings.ending_timestamp))
    ranges = _narrowed(cluster, ranges, pushed, stored)
    return [
        replace(one, stored_from_ms=stored[0], stored_before_ms=stored[1])
        for one in cluster.planned(ranges, settings, columns)
    ]


def resolve(
    cluster: Cluster,
    settings: SourceSettings,
    edge: Edge | None,
    timestamp_ms: int | None,
    bounds: Mapping[MessageQueue, Bounds],
    default: int,
    option: str = "startingOffsets",
) -> dict[MessageQueue, int]:
    """Return one offset for each queue, as the options say. `option` is the one that `edge` comes from."""
    if timestamp_ms is not None:
        found = cluster.offsets_at(bounds, timestamp_ms)
        return {queue: min(max(found[queue], one.first), one.end) for queue, one in bounds.items()}
    if edge == COMMITTED:
        return _committed(cluster, settings, bounds)
    explicit: Mapping[MessageQueue, int] = edge if isinstance(edge, Mapping) else {}
    asked = default if edge is None or isinstance(edge, (Mapping, str)) else edge
    strangers = sorted(queue for queue in explicit if queue not in bounds and settings.wanted.takes(queue))
    if strangers:
        one = strangers[0]
        raise OptionError(f"option {option}: topic {one.topic} has no queue {one.queue_id} on {one.broker_name}")
    result: dict[MessageQueue, int] = {}
    for queue, held in bounds.items():
        at = explicit.get(queue, asked)
        result[queue] = held.first if at == EARLIEST else held.end if at == LATEST else at
    return result


def _committed(
    cluster: Cluster, settings: SourceSettings, bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, int]:
    """Return the offsets that the group has committed, or those of the first messages of queues where it has none.

    A queue that ends before was created again or cut. That is lost data, as it is for a running stream.
    """
    assert settings.group is not None
    saved = cluster.committed(settings.group, bounds)
    result: dict[MessageQueue, int] = {}
    losses: list[str] = []
    for queue in sorted(bounds):
        one, at = bounds[queue], saved[queue]
        if at is not None and at > one.end:
            losses.append(
                f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} ends at {one.end}, before {at}, "
                f"which group {settings.group} has committed: it was created again or cut"
            )
        result[queue] = one.first if at is None or at > one.end else at
    tell_losses(losses, fail=settings.fail_on_data_loss)
    return result


def require_forward(
    settings: SourceSettings, start: Offsets, end: Offsets, bounds: Mapping[MessageQueue, Bounds]
) -> None:
    """Raise OptionError where startingOffsets names a place after the end of a queue, or after its ending offset.

    Such a read would return nothing of the queue, as if it were empty.
    """
    if not isinstance(settings.starting, Mapping):
        return
    for queue in sorted(settings.starting):
        if queue not in bounds:
            continue
        place = f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"
        if start[queue] > bounds[queue].end:
            raise OptionError(
                f"option startingOffsets: {place} ends at {bounds[queue].end}, before {start[queue]}",
                hint="Was the topic deleted and created again? Use -2 for the first message, and -1 for the end.",
            )
        if start[queue] > end.get(queue, start[queue]):
            raise OptionError(f"option startingOffsets: {place} starts at {start[queue]} and ends at {end[queue]}")


def _both(one: tuple[int | None, int | None], other: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """Return the intersection of two ranges of time."""
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _narrowed(
    cluster: Cluster, ranges: list[QueueRange], pushed: Pushed, stored: tuple[int | None, int | None]
) -> list[QueueRange]:
    """Return the ranges without offsets and times that the query cannot need."""
    low, high = pushed.offset_range
    ranges = [replace(one, start=max(one.start, low), end=min(one.end, high)) for one in ranges]
    ranges = [one for one in ranges if one.start < one.end]
    queues = [one.queue for one in ranges]
    firsts = {} if stored[0] is None else cluster.offsets_at(queues, stored[0])
    ends = {} if stored[1] is None else cluster.offsets_at(queues, stored[1])
    ranges = [
        replace(one, start=max(one.start, firsts.get(one.queue, 0)), end=min(one.end, ends.get(one.queue, one.end)))
        for one in ranges
    ]
    return [one for one in ranges if one.start < one.end]
