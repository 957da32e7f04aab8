"""Reads that begin in an archive and go over into the live topic (option `archive`).

An archived message has the queue offset that it had in its topic. So the archive only makes a queue longer: the queue
begins at the first archived message, and what is archived is read from Parquet files instead of the broker. There is
no seam at which a message could be lost or read twice. Only segments of the topic that is there now count: one of the
same name that was deleted has another generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from aerobee.errors import StoreError
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import InlineDisk
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.source.planning import Bounds, QueueRange, is_created_again

if TYPE_CHECKING:
    from pyspark_rocketmq_store.manifest import Archived

_LOOK_AGAIN_S: Final = 5.0
_BATCH_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """The rows of one archived file that a batch reads: of each queue, those from an offset to before another."""

    path: str
    topic: str
    broker: str
    queues: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """What one segment holds of a queue: its first and last offset, and the files that contain them."""

    low: int
    high: int
    files: tuple[str, ...]
    generation: str | None


class ArchiveIndex:
    """What an archive holds of each queue. Manifests are read once, and new ones are looked for now and then."""

    def __init__(self, directory: str) -> None:
        from pyspark_rocketmq_store.settings import local_path

        self._directory = local_path(directory)
        self._disk = InlineDisk()
        self._clock = SystemClock()
        self._read: set[tuple[str, int, int]] = set()
        self._held: dict[MessageQueue, list[_Held]] = {}
        self._looked_s: float | None = None

    def look(self) -> None:
        """Read the manifests that are new. Raise where the directory is no archive."""
        from pyspark_rocketmq_store.manifest import brokers_of, finished, read_manifest, require_archive

        now_s = self._clock.monotonic()
        if self._looked_s is not None and now_s - self._looked_s < _LOOK_AGAIN_S:
            return
        require_archive(self._disk, self._directory)
        for broker in brokers_of(self._disk, self._directory):
            for start, end in finished(self._disk, self._directory, broker):
                if (broker, start, end) not in self._read:
                    self._take(read_manifest(self._disk, self._directory, broker, start, end))
                    self._read.add((broker, start, end))
        self._looked_s = now_s

    def _take(self, segment: Archived) -> None:
        for topic, queues in segment.queues.items():
            files = tuple(f"{self._directory}/{one.path}" for one in segment.files if one.topic == topic)
            generation = segment.generations.get(topic)
            for number, (low, high) in queues.items():
                queue = MessageQueue(topic, segment.broker, parse_int(number))
                held = self._held.setdefault(queue, [])
                held.append(_Held(low, high, files, generation))
                held.sort(key=lambda one: one.low)

    def _of(self, queue: MessageQueue, generation: str | None) -> list[_Held]:
        held = self._held.get(queue, ())
        return [one for one in held if not is_created_again(one.generation, generation)]

    def extended(self, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, Bounds]:
        """Return the bounds of queues that begin at their first archived message.

        Raise StoreError where neither the archive nor the broker has messages that lie between them.
        """
        self.look()
        try:
            return {queue: self._extended(queue, live) for queue, live in bounds.items()}
        except StoreError:
            # A broker deletes a segment as soon as it is archived, which may be since the last look.
            self._looked_s = None
            self.look()
        return {queue: self._extended(queue, live) for queue, live in bounds.items()}

    def _extended(self, queue: MessageQueue, live: Bounds) -> Bounds:
        held = self._of(queue, live.generation)
        first = live.first
        for one in reversed(held):
            if one.high >= live.end:
                raise StoreError(
                    f"{_named(queue)} ends at {live.end}, and the archive holds its message {one.high}: the topic was "
                    "deleted and created again"
                )
            if one.high < first - 1:
                raise StoreError(
                    f"neither the archive nor the broker has messages {one.high + 1} to {first - 1} of {_named(queue)}",
                    hint="Archive every segment before retention deletes it (archivePath), or read without the option "
                    "archive.",
                )
            first = min(first, one.low)
        return replace(live, first=first)

    def divided(self, ranges: Iterable[QueueRange]) -> tuple[list[QueueRange], list[ArchivedPart]]:
        """Return the ranges that the brokers are asked for, and the parts that are read from archived files."""
        live: list[QueueRange] = []
        files: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
        for one in ranges:
            at = one.start
            for held in self._of(one.queue, one.generation):
                low, high = max(at, held.low), min(one.end, held.high + 1)
                if low >= high:
                    continue
                if low > at:
                    live.append(replace(one, start=at, end=low))
                for path in held.files:
                    wanted = files.setdefault((path, one.queue.topic, one.queue.broker_name), [])
                    wanted.append((one.queue.queue_id, low, high))
                at = high
            if at < one.end:
                live.append(replace(one, start=at))
        parts = [ArchivedPart(*key, tuple(wanted)) for key, wanted in sorted(files.items())]
        return live, parts


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


def read_part(part: ArchivedPart, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, in the order of the log."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    wanted = None
    for number, low, high in part.queues:
        offset = pc.field(c.QUEUE_OFFSET)
        one = (pc.field(c.QUEUE_ID) == number) & (offset >= low) & (offset < high)
        wanted = one if wanted is None else wanted | one
    stored = [name for name in columns if name != c.TOPIC]
    schema = c.arrow_schema(columns)
    # A column is needed even if only the topic is asked for.
    scanned = ds.dataset(part.path, format="parquet").scanner(
        columns=stored or [c.QUEUE_OFFSET], filter=wanted, batch_size=_BATCH_ROWS, use_threads=False
    )
    for batch in scanned.to_batches():
        if batch.num_rows:
            arrays = [
                pa.array([part.topic] * batch.num_rows, pa.string()) if field.name == c.TOPIC
                else batch.column(field.name).cast(field.type)
                for field in schema
            ]  # fmt: skip
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
