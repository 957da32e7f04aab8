"""The stream reader. One long-lived planner process of the driver plans; tasks read.

`offsets.py` holds what Spark keeps, and `planning.py` decides what a batch reads. This module asks the cluster, waits
for messages, and saves the progress of the query as that of a consumer group. Spark never calls `stop`, so nothing
depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from aerobee.errors import AerobeeError, TransportError
from aerobee.model.queue import MessageQueue
from aerobee.runtime.blocking import pause
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import environment
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.source.batch import read_columns, require_forward, resolve
from pyspark_rocketmq.source.cluster import cluster_of
from pyspark_rocketmq.source.complete import Found, all_bounds, patiently, tell_skipped
from pyspark_rocketmq.source.mirror import GroupMirror
from pyspark_rocketmq.source.missing import MissingBrokerError, MissingPart
from pyspark_rocketmq.source.offsets import LATEST, Generations, Offsets, Position
from pyspark_rocketmq.source.planning import Bounds, Limits, QueueRange, next_end, ranges_between
from pyspark_rocketmq.source.pulling import (
    PullSettings,
    RangesPartition,
    read_partition,
    sample_mean_bytes,
    tell_losses,
)
from pyspark_rocketmq.source.settings import SourceSettings, source_settings
from pyspark_rocketmq.source.volume import stored_bytes
from pyspark_rocketmq.source.watching import HeldPulls

if TYPE_CHECKING:
    from pyspark_rocketmq.formats.reading import TypedBodies

_ROUTES_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.02
_SAMPLES_MAX: Final = 16

# The name is not below "aerobee", which is silent by default: these lines are for the log of the application.
_log = logging.getLogger("pyspark_rocketmq")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. One instance plans. Another instance, pickled before its first use, reads."""

    def __init__(self, settings: SourceSettings, columns: tuple[str, ...], typed: TypedBodies | None = None) -> None:
        self._settings = settings
        self._columns = columns
        self._typed = typed
        self._planner: Planner | None = None

    def _plans(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._settings, self._columns)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names)
        """Return where a query without a checkpoint begins."""
        planner = self._plans()
        return Position(planner.initial(), None, planner.initial_generations).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a trigger reads, unless it is `once`."""
        if self._settings.rows_max is not None:
            return ReadMaxRows(self._settings.rows_max)
        if self._settings.bytes_max is not None:
            return ReadMaxBytes(self._settings.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch. If there is none, return exactly the text of `start`."""
        found = self._plans().next_position(Position.from_json(start), limit)
        return start if found is None else found.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the queues end, for the progress report of the query."""
        planner = self._plans()
        ends = planner.ends_seen()
        if not ends:
            return None
        report = Position(ends).to_json()
        report["lag"] = planner.lag
        report["batch"] = planner.volume()
        missing = planner.missing()
        return {**report, "missing": missing} if missing else report

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End this run at the messages that exist now."""
        self._plans().stop_at_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what the tasks of a batch read."""
        return self._plans().partitions(Position.from_json(start), Position.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition. A task calls this."""
        if not isinstance(partition, RangesPartition):
            return iter(())
        settings = self._settings
        pulling = PullSettings(
            settings.endpoint, settings.filter, settings.fail_on_data_loss, self._columns, settings.group
        )
        rows = read_partition(pulling, partition)
        return rows if self._typed is None else self._typed.rows(rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing. The next `latestOffset` saves the progress, because its start is committed."""

    def stop(self) -> None:
        """Close the connections. Spark 4.3 never calls this, so they end with the process."""
        if self._planner is not None:
            self._planner.close()


class Planner:
    """The state of a running query in the driver."""

    def __init__(self, settings: SourceSettings, columns: tuple[str, ...] = c.COLUMNS) -> None:
        self._settings = settings
        self._columns = columns
        self._cluster = cluster_of(settings)
        self._clock = SystemClock()
        self._watch = HeldPulls(settings.endpoint)
        self._mirror = None if settings.group is None else GroupMirror(self._cluster, settings.group)
        self._initial: Offsets | None = None
        self.initial_generations: Generations = {}
        # With AvailableNow: where this run ends.
        self._target: dict[MessageQueue, int] | None = None
        self._queues: list[MessageQueue] | None = None
        self._routed_s = 0.0
        self._answered_s: float | None = None
        self._seen: dict[MessageQueue, Bounds] = {}
        self._last_batch_s: float | None = None
        self._away: set[str] = set()
        # How many messages the query was behind when it last looked.
        self.lag = 0
        # What the last batch read.
        self._ranges: Sequence[QueueRange] = ()
        # Whether all broker groups were there in this run, and which parts are left out (option onMissingBroker).
        self._is_begun = False
        self._skipped: tuple[MissingPart, ...] = ()

    def initial(self) -> Offsets:
        """Return where the query begins. Spark asks twice and must get the same answer, so it is resolved once."""
        if self._initial is None:
            settings = self._settings
            bounds = self._complete()
            if self._mirror is not None:
                self._mirror.require_unused(bounds)
            initial = resolve(self._cluster, settings, settings.starting, settings.starting_timestamp, bounds, LATEST)
            require_forward(settings, initial, {}, bounds)
            self._initial = initial
            self.initial_generations = _generations(Position(), initial, bounds)
        return self._initial

    def missing(self) -> list[str]:
        """Return the broker groups whose queues wait or are left out."""
        return sorted(self._away | {one.broker for one in self._skipped})

    def volume(self) -> dict[str, int]:
        """Return the messages of the last batch, and their bytes in the log where the brokers tell them."""
        size = stored_bytes(self._cluster, self._ranges)
        return {"rows": sum(one.count for one in self._ranges), **({} if size is None else {"bytes": size})}

    def close(self) -> None:
        """Close the connections that wait for messages."""
        self._watch.close()

    def stop_at_now(self) -> None:
        """Leave later messages to the next run."""
        self._target = {queue: bounds.end for queue, bounds in self._complete().items()}

    def ends_seen(self) -> Offsets:
        """Return where the queues ended when the brokers were last asked."""
        return {queue: bounds.end for queue, bounds in self._seen.items()}

    # -- the end of the next batch

    def next_position(self, start: Position, limit: ReadLimit) -> Position | None:
        """Return the end of the next batch, or None if there is nothing to read.

        Wait a while for messages, unless this run ends at what exists now.
        """
        self._ranges = ()
        if not self._is_begun:
            self._begin(start.offsets)
        deadline_s = self._clock.monotonic() + self._settings.long_poll_ms / 1000
        while True:
            # A run that ends at what exists now must not end without a broker that went away in the middle.
            visible = self._visible() if self._target is None else self._complete(start.offsets)
            if self._mirror is not None:
                self._mirror.tell(start.offsets, visible)
            found = self._step(start, visible, limit)
            left_s = deadline_s - self._clock.monotonic()
            if found is not None or self._target is not None or left_s <= 0:
                return found
            ends = {queue: max(bounds.end, start.offsets.get(queue, 0)) for queue, bounds in visible.items()}
            self._watch.wait(ends, self._cluster.address_of, left_s)
            pause(min(_LOOK_AGAIN_S, max(0.0, deadline_s - self._clock.monotonic())))

    def _step(self, start: Position, visible: Mapping[MessageQueue, Bounds], limit: ReadLimit) -> Position | None:
        if self._target is not None:
            visible = _until(visible, self._target, start.offsets)
        self.lag = sum(max(0, one.end - start.offsets.get(queue, one.first)) for queue, one in visible.items())
        step = next_end(start.offsets, visible, self._limits(start.offsets, visible, limit), start.generations)
        tell_losses(step.losses, fail=self._settings.fail_on_data_loss)
        if step.end == start.offsets or (self._target is None and self._is_too_few(step.available)):
            return None
        self._last_batch_s = self._clock.monotonic()
        # This is also correct for a later batch that begins at the same offsets.
        first = start.offsets if start.offsets == self._initial else None
        return Position(step.end, first, _generations(start, step.end, visible))

    def _is_too_few(self, available: int) -> bool:
        """Return whether to wait for minOffsetsPerTrigger, at most maxTriggerDelay, as Kafka's source does."""
        settings = self._settings
        if settings.rows_min is None or available >= settings.rows_min or self._last_batch_s is None:
            return False
        return (self._clock.monotonic() - self._last_batch_s) * 1000 < settings.trigger_delay_max_ms

    def _limits(self, start: Offsets, visible: Mapping[MessageQueue, Bounds], limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):  # no limit is set, or Trigger.Once, which knows none
            return Limits()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.rows_max
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._settings.bytes_max
        means = {} if bytes_max is None else self._mean_bytes(start, visible)
        return Limits(rows_max, bytes_max, means)

    def _mean_bytes(self, start: Offsets, visible: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, float]:
        """Return the mean size of each queue's messages, from a few at the start of the batch."""
        behind: list[tuple[MessageQueue, int]] = []
        for queue, bounds in visible.items():
            at = max(start.get(queue, bounds.first), bounds.first)
            if self._settings.archive is not None:  # what is archived may be gone from the broker
                at = max(at, bounds.end - 1)
            if at < bounds.end:
                behind.append((queue, at))
        means: dict[MessageQueue, float] = {}
        for queue, at in behind[:_SAMPLES_MAX]:
            address = self._cluster.require_address(queue)
            mean = sample_mean_bytes(self._settings.endpoint, queue, address, at)
            if mean is not None:
                means[queue] = mean
        usual = sum(means.values()) / len(means) if means else 1.0
        return {queue: means.get(queue, usual) for queue, _ in behind}

    # -- what is there

    def _begin(self, known: Offsets) -> None:
        """Check, once in a run, that all broker groups with a part of the topics or of the checkpoint are there."""
        bounds = self._complete(known)
        if self._target is not None:
            self._target = {queue: one.end for queue, one in bounds.items()} | self._target
        self._is_begun = True

    def _complete(self, known: Offsets | None = None) -> Mapping[MessageQueue, Bounds]:
        """Return the bounds of all queues. Wait for brokers that are away, then raise MissingBrokerError."""
        settings = self._settings
        is_named = settings.wanted.pattern is None

        def ask() -> Found:
            return all_bounds(self._cluster, settings, known=known or (), no_topic_is_error=is_named and not known)

        is_known = self._queues is not None or bool(known)
        found = patiently(self._clock, settings.endpoint.retry_timeout_ms, ask, is_known=is_known)
        self._queues = sorted(found.bounds)
        self._routed_s = self._answered_s = self._clock.monotonic()
        self._skipped = found.skipped
        self._seen.update(found.bounds)
        return found.bounds

    def _visible(self) -> dict[MessageQueue, Bounds]:
        """Return the wanted queues and their bounds. If a broker is away for a while, its queues wait."""
        now_s = self._clock.monotonic()
        if self._queues is None or now_s - self._routed_s >= _ROUTES_S:
            try:
                first = self._queues is None and self._settings.wanted.pattern is None
                self._queues = self._cluster.queues(self._settings.wanted, missing_is_error=first)
                self._routed_s = now_s
            except TransportError as error:
                if self._queues is None:
                    raise
                self._routed_s = now_s
                _log.warning("the routes cannot be read, continuing with the known queues: %s", error)
        away: dict[str, AerobeeError] = {}
        there = [queue for queue in self._queues if self._cluster.address_of(queue) is not None]
        found = self._cluster.bounds(there, unreachable=away.__setitem__)
        self._note_away(away, bool(found) or not self._queues)
        self._seen.update(found)
        return found

    def _note_away(self, away: Mapping[str, AerobeeError], answered: bool) -> None:
        now_s = self._clock.monotonic()
        for broker in sorted(set(away) - self._away):
            _log.warning("broker %s cannot be reached, its queues wait: %s", broker, away[broker])
        self._away = set(away)
        if answered:
            self._answered_s = now_s
            return
        waited_s = None if self._answered_s is None else now_s - self._answered_s
        if waited_s is None or waited_s * 1000 > self._settings.endpoint.retry_timeout_ms:
            broker, error = sorted(away.items())[0]
            raise TransportError(f"no broker answers; {broker}: {error.message}", broker=error.broker)

    # -- what a batch reads

    def partitions(self, start: Position, end: Position) -> list[RangesPartition]:
        """Return the ranges between two positions. A first batch that is run again begins at the same offsets."""
        begin = start.offsets if end.start is None else end.start
        wanted = [queue for queue, stop in end.offsets.items() if begin.get(queue, 0) < stop]
        if not wanted:
            return []
        bounds = self._bounds_of(wanted)
        ranges, losses = ranges_between(begin, end.offsets, bounds, end.generations)
        tell_losses(losses, fail=self._settings.fail_on_data_loss)
        self._ranges = ranges
        return self._cluster.planned(ranges, self._settings, self._columns)

    def _bounds_of(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """Return the bounds of queues that a batch must read, also without a route. Wait for their brokers."""
        settings, cluster = self._settings, self._cluster

        def ask() -> dict[MessageQueue, Bounds]:
            lost = [queue for queue in queues if cluster.address_of(queue) is None]
            if lost:
                routed = cluster.queues(settings.wanted, missing_is_error=False)
                missing = cluster.missing(settings.wanted.takes, routed, lost)
                if missing and not settings.skip_missing:
                    raise MissingBrokerError(missing)
                tell_skipped(missing)
            return cluster.bounds([queue for queue in queues if cluster.address_of(queue) is not None])

        return patiently(self._clock, settings.endpoint.retry_timeout_ms, ask, is_known=True)


def _generations(start: Position, end: Offsets, visible: Mapping[MessageQueue, Bounds]) -> Generations:
    """Return the generations of the topics of a position: as they are now, or as the start knows them."""
    found = dict(start.generations)
    for queue, bounds in visible.items():
        if queue in end and bounds.generation is not None:
            found[queue.topic, queue.broker_name] = bounds.generation
    return found


def _until(
    visible: Mapping[MessageQueue, Bounds], target: Mapping[MessageQueue, int], start: Offsets
) -> dict[MessageQueue, Bounds]:
    """Return the bounds without messages that arrived since the run began. What was read already still counts."""
    return {
        queue: replace(bounds, end=max(bounds.first, min(bounds.end, max(target[queue], start.get(queue, 0)))))
        for queue, bounds in visible.items()
        if queue in target
    }


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader of `spark.readStream.format("rocketmq")`. The driver calls this; its environment counts."""
    settings = source_settings(options, environment(), streaming=True)
    return StreamReader(settings, *read_columns(settings, schema))


def refusing_reader(error: AerobeeError) -> StreamReader:
    """Return a reader that raises an error as soon as Spark asks it anything.

    Where a reader cannot be created, Spark 4.3 fails a second time (UnboundLocalError) and hides the reason below that.
    """
    return _RefusingReader(error)


class _RefusingReader(StreamReader):
    """The reader of a query that cannot be read."""

    def __init__(self, error: AerobeeError) -> None:
        self._error = error

    def _plans(self) -> Planner:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._error

    def stop(self) -> None:
        """Do nothing: there are no connections."""
