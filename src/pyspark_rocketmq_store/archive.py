"""The archive for users: `run` writes closed segments as Parquet, `status` lists them, `read` returns one table.

from pyspark_rocketmq_store import archive
archive.run(spark, "/data/store", "/data/archive", "broker-a")
archive.read(spark, "/data/archive", store={"broker-a": "/data/store"}).where("topic = 'orders'")
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.lockprobe import lock_holder
from aerobee.runtime.process import environment
from aerobee.runtime.seams import Disk
from aerobee.store.readonly import MANIFESTS, confirmed_end, deleted_topics, durable_end, topic_generations
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.source.cluster import Cluster
from pyspark_rocketmq.source.complete import all_bounds, patiently
from pyspark_rocketmq.source.offsets import nested
from pyspark_rocketmq.source.planning import is_created_again
from pyspark_rocketmq.source.settings import source_settings
from pyspark_rocketmq_store.archiving import COLUMNS, archive_segment
from pyspark_rocketmq_store.manifest import (
    Archived,
    brokers_of,
    escape,
    finished,
    read_manifest,
    require_archive,
    require_store_of,
    write_manifest,
)
from pyspark_rocketmq_store.planning import SegmentPart, first_store_ms, segments_of, stretch_of
from pyspark_rocketmq_store.settings import ScanSettings, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How often the store is looked at until its topics stay the same.
_LOOKS_MAX: Final = 10
# Options that leave out messages. They would leave out live ones only, beside all archived ones.
_NARROWING: Final = frozenset(
    name.lower()
    for name in (
        "tags", "sql92", "assign", "topicPattern", "subscribePattern", "startingOffsets", "startingTimestamp",
        "endingOffsets", "endingTimestamp", "archive",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that is no longer written. Its last record is at least as old as `closed_ms`."""

    stretch: SegmentPart
    closed_ms: int
    is_archived: bool

    @property
    def start(self) -> int:
        """Return the offset in the log where it begins."""
        return self.stretch.segment_start


def closed_segments(store: str, archive: str, broker: str, *, log_directory: str | None = None) -> list[ClosedSegment]:
    """Return the segments of a store that can be archived, and whether each has been.

    Raise InvalidArgumentError where the store belongs to another broker.
    """
    disk = InlineDisk()
    store, archive = local_path(store), local_path(archive)
    require_store_of(disk, store, broker)
    limits = (
        durable_end(disk, store) if lock_holder(f"{store}/lock") is not None else None,
        confirmed_end(disk, store),
    )
    safe = min((limit for limit in limits if limit is not None), default=None)
    segments = segments_of(disk, log_directory or f"{store}/commitlog")
    firsts = [first_store_ms(disk, segment) for segment in segments]
    done = set(finished(disk, archive, broker))
    deleted = deleted_topics(disk, store)
    result: list[ClosedSegment] = []
    for index, segment in enumerate(segments):
        later = next((first for first in firsts[index + 1 :] if first is not None), None)
        if later is None or (safe is not None and safe < segment.end):
            break  # this segment is being written, or is not synced or not confirmed to its end
        stretch = stretch_of(segment, segment.start, segment.end, deleted)
        result.append(ClosedSegment(stretch, later, (segment.start, segment.end) in done))
    return result


def run(
    spark: SparkSession,
    store: str,
    archive: str,
    broker: str,
    *,
    log_directory: str | None = None,
    closed_before_ms: int | None = None,
    segments: Sequence[int] | None = None,
    progress: Callable[[Archived], None] | None = None,
) -> list[Archived]:
    """Archive the closed segments of a store that the archive does not hold yet, and return what was done now.

    `broker` is the name of the broker, whose `archivePath` looks for it. With `closed_before_ms`, only segments whose
    last message is older are archived. With `segments`, only those that begin at these offsets. A further run archives
    what is missing.
    """
    if not broker:
        raise InvalidArgumentError("an archive needs the broker's name")
    if not hasattr(spark, "sparkContext"):
        raise InvalidArgumentError(
            "archive.run needs a session of Spark's classic API, and this is one of Spark Connect",
            hint="aerobee archive run makes a session of its own",
        )
    store, archive = local_path(store), local_path(archive)
    disk = InlineDisk()
    for _ in range(_LOOKS_MAX):
        # A topic that is deleted between the two looks would be listed with the generation of the next one.
        generations = topic_generations(disk, store)
        found = closed_segments(store, archive, broker, log_directory=log_directory)
        if generations == topic_generations(disk, store):
            break
    if segments is not None:
        unknown = sorted(set(segments) - {one.start for one in found})
        if unknown:
            raise InvalidArgumentError(f"no closed segment begins at {', '.join(map(str, unknown))}")
    todo = [
        one.stretch
        for one in found
        if not one.is_archived
        and (closed_before_ms is None or one.closed_ms <= closed_before_ms)
        and (segments is None or one.start in segments)
    ]
    if not todo:
        return []
    disk.make_dirs(f"{archive}/{MANIFESTS}")
    settings = ScanSettings(store, log_directory or f"{store}/commitlog")
    work = _Task(settings, archive, broker, generations)
    results: list[Archived] = []
    # Segments are archived in waves, and count as soon as their wave is done. A wave has four tasks for each core,
    # so that few cores wait for its last task.
    width = 4 * max(1, spark.sparkContext.defaultParallelism)
    for begin in range(0, len(todo), width):
        wave = todo[begin : begin + width]
        for done in spark.sparkContext.parallelize(wave, len(wave)).map(work).collect():
            write_manifest(disk, archive, done)
            results.append(done)
            if progress is not None:
                progress(done)
    return results


class _Task:
    """The work of a task, for one segment."""

    def __init__(self, settings: ScanSettings, archive: str, broker: str, generations: Mapping[str, str]) -> None:
        self._given = (settings, archive, broker)
        self._generations = dict(generations)

    def __call__(self, segment: SegmentPart) -> Archived:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = str(context.taskAttemptId()) if context is not None else "0"
        settings, archive, broker = self._given
        return archive_segment(InlineDisk(), settings, segment, archive, broker, attempt, self._generations)


def manifests(archive: str, brokers: Iterable[str] | None = None) -> list[Archived]:
    """Return all archived segments, by broker and offset. A directory that is no archive is an error."""
    disk, archive = InlineDisk(), local_path(archive)
    require_archive(disk, archive)
    held = brokers_of(disk, archive)
    for broker in brokers or ():
        if broker not in held:
            near = difflib.get_close_matches(broker, held, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"It holds segments of {', '.join(held) or 'no broker'}."
            raise InvalidArgumentError(f"{archive} holds no segment of a broker {broker!r}", hint=hint)
    return [
        read_manifest(disk, archive, broker, start, end)
        for broker in (held if brokers is None else brokers)
        for start, end in finished(disk, archive, broker)
    ]


def read(
    spark: SparkSession,
    archive: str,
    *,
    store: Mapping[str, str] | None = None,
    name_server: str | None = None,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the archive and the live messages as one table, with each message once.

    `store` maps the name of each broker to its store directory; live rows are those of segments that are not archived.
    With `name_server` and `topic`, live rows are those of each queue after its last archived one. With neither, the
    table is the archive alone. `options` are those of the live read. The table has the columns of the other tables,
    without `date`. With `columns` it has only these, and live messages are read with no others.
    """
    archive = local_path(archive)
    if store is not None and name_server is not None:
        raise InvalidArgumentError("store and name_server: give one of them")
    if name_server is not None and topic is None:
        raise InvalidArgumentError("name_server needs the topic")
    for name in options or ():
        if name.lower() in _NARROWING:
            raise InvalidArgumentError(
                f"option {name} would leave out live messages, and no archived ones",
                hint="Read the whole table, and name what you want of it by where(...).",
            )
    # This must come before the live segments are listed: what is archived after it is read from the log, or fails.
    done = manifests(archive)
    for name, root in (store or {}).items():
        require_store_of(InlineDisk(), local_path(root), name)
    if topic is not None and store is None and name_server is None:
        _require_topics(done, topic)
    names = c.COLUMNS if columns is None else c.require_columns(c.spark_schema(_known(columns)))
    table = _archived(spark, archive, done, topic).select(*names)
    for name, root in (store or {}).items():
        mine = [[one.start, one.end] for one in done if one.broker == name]
        live = spark.read.format("rocketmq_store").schema(c.spark_schema(names)).options(**dict(options or {}))
        live = live.option("broker", name).option("archived", json.dumps(mine))
        if topic is not None:
            live = live.option("topic", topic)
        table = table.unionByName(live.load(root))
    if name_server is not None and topic is not None:
        table = table.unionByName(_behind(spark, done, name_server, topic, options or {}, names))
    return table


def _require_topics(done: list[Archived], topic: str) -> None:
    """Raise InvalidArgumentError for a topic of which the archive holds nothing. Its name may be mistyped."""
    held = sorted({file.topic for segment in done for file in segment.files})
    for name in (part.strip() for part in topic.split(",")):
        if name not in held:
            near = difflib.get_close_matches(name, held, n=1, cutoff=0.5)
            raise InvalidArgumentError(
                f"the archive holds no message of topic {name!r}", hint=f"Did you mean {near[0]!r}?" if near else None
            )


def _archived(spark: SparkSession, archive: str, done: list[Archived], topic: str | None) -> DataFrame:
    wanted = None if topic is None else {part.strip() for part in topic.split(",")}
    files = [one for segment in done for one in segment.files if wanted is None or one.topic in wanted]
    if not files:
        return spark.createDataFrame([], c.FULL_SCHEMA)
    disk = InlineDisk()
    for one in files:
        if not disk.exists(f"{archive}/{one.path}"):
            raise StoreError(f"the archive lost {one.path}, which its manifest names")
    # Spark takes a path for a pattern. Only the directory of the archive can hold special characters.
    paths = [f"{archive}/{one.path}" for one in files]
    schema = c.spark_schema([*COLUMNS, c.TOPIC])
    return spark.read.option("basePath", archive).schema(schema).parquet(*paths).select(*c.COLUMNS)


def _known(columns: Sequence[str]) -> Sequence[str]:
    """Return the columns, or raise InvalidArgumentError for one that does not exist."""
    for name in columns:
        if name not in c.COLUMNS:
            raise c.unknown_column(name)
    return columns


def _behind(
    spark: SparkSession,
    done: list[Archived],
    name_server: str,
    topic: str,
    options: Mapping[str, str],
    columns: Sequence[str],
) -> DataFrame:
    """Return the live messages of a topic that come after the archived ones of the same queue."""
    given = {**options, "nameServer": name_server, "topic": topic}
    starts = live_starts(done, given)
    live = spark.read.format("rocketmq").schema(c.spark_schema(columns)).options(**given)
    if starts:
        live = live.option("startingOffsets", json.dumps(nested(starts)))
    return live.load()


def live_starts(done: Iterable[Archived], options: Mapping[str, str]) -> dict[MessageQueue, int]:
    """Return where the live messages begin that the archive does not hold, for each queue that it holds a part of.

    Segments that hold a topic of the same name which was deleted say nothing about the topic that is there now. Where
    the brokers do not tell generations, a queue that ends before its archived messages is an error. So is a queue with
    messages before or between its archived ones that the archive does not hold.
    """
    settings = source_settings(options, environment(), streaming=False)
    cluster = Cluster(settings.endpoint)
    bounds = patiently(SystemClock(), settings.endpoint.retry_timeout_ms, lambda: all_bounds(cluster, settings)).bounds
    starts: dict[MessageQueue, int] = {}
    # By broker: the end of the last segment, and where the stretch without holes begins that it belongs to.
    ends: dict[str, int] = {}
    whole_from: dict[str, int] = {}
    # By queue: the last segment that holds a part of it.
    held_at: dict[MessageQueue, int] = {}
    for segment in sorted(done, key=lambda one: (one.broker, one.start)):
        if ends.get(segment.broker) != segment.start:
            whole_from[segment.broker] = segment.start
        ends[segment.broker] = segment.end
        for name, queues in segment.queues.items():
            for number, (low, high) in queues.items():
                queue = MessageQueue(name, segment.broker, parse_int(number))
                live = bounds.get(queue)
                if live is None or is_created_again(segment.generations.get(name), live.generation):
                    continue
                at = starts.get(queue, live.first)
                if low > at and held_at.get(queue, -1) < whole_from[segment.broker]:
                    raise StoreError(
                        f"the archive does not hold messages {at} to {low - 1} of queue {number} of topic {name} on "
                        f"{segment.broker}, and holds later ones",
                        hint="Archive every segment of the broker (aerobee archive run), or read the topic alone.",
                    )
                held_at[queue] = segment.start
                if high >= live.end:
                    raise StoreError(
                        f"queue {number} of topic {name} on {segment.broker} ends at {live.end}, and the archive holds "
                        f"its message {high}: the topic was deleted and created again",
                        hint="Read the archive and the topic apart, or the archive with store=.",
                    )
                starts[queue] = max(high + 1, starts.get(queue, 0))
    return starts


def remove_leavings(archive: str, broker: str, disk: Disk | None = None) -> int:
    """Delete the temporary files of killed tasks, and return how many. No archive job may run meanwhile."""
    disk, archive, count = disk or InlineDisk(), local_path(archive), 0
    for topic in disk.listdir(archive):
        if topic == MANIFESTS or not disk.is_dir(f"{archive}/{topic}"):
            continue
        for date in disk.listdir(f"{archive}/{topic}"):
            for name in disk.listdir(f"{archive}/{topic}/{date}"):
                if name.startswith(f".{escape(broker)}-") and name.endswith(".tmp"):
                    disk.unlink(f"{archive}/{topic}/{date}/{name}")
                    count += 1
    return count
