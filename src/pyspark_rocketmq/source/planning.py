"""Pure rules for what a batch reads: limits, lost data, and the division of ranges into partitions.

The bounds of a queue are [first, end): the offset of its first message, and the offset that its next message will get.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.source.offsets import Generations, Offsets

# Ranges with fewer messages share a task, because a task costs more than reading them.
PACKED_RECORDS: Final = 20_000
# The same where only offsets are read, which costs nearly nothing for each message.
PACKED_OFFSETS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset of a queue and the offset after its last message.

    `generation` tells the topic from one of the same name that was deleted; '' is none, None is unknown.
    """

    first: int
    end: int
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages [start, end) of a queue. The generation is that of `Bounds`."""

    queue: MessageQueue
    start: int
    end: int
    generation: str | None = None

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Step:
    """The next end of a stream, and a sentence for every loss before it."""

    end: Offsets
    losses: Sequence[str] = ()
    available: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch may read. `mean_bytes` is the mean size of a queue's messages, if bytes are limited."""

    rows_max: int | None = None
    bytes_max: int | None = None
    mean_bytes: Mapping[MessageQueue, float] = field(default_factory=dict)


def is_created_again(then: str | None, now: str | None) -> bool:
    """Return whether a topic was deleted and created again between two looks.

    A topic that had a generation and has none may be one that the broker found in its log after a crash.
    """
    return then is not None and bool(now) and then != now


def next_end(
    start: Offsets,
    visible: Mapping[MessageQueue, Bounds],
    limits: Limits,
    generations: Generations | None = None,
) -> Step:
    """Return how far the batch after `start` reads.

    A new queue starts at its first message, once it has one. A queue that is not visible keeps its offset. A queue that
    ends before the query's offset was created again, and so was one whose generation is not that of `generations`: the
    query continues at its first message, and this batch reads nothing of it.
    """
    end = dict(start)
    losses: list[str] = []
    todo: dict[MessageQueue, QueueRange] = {}
    for queue in sorted(visible):
        bounds = visible[queue]
        begin = start.get(queue, bounds.first)
        then = (generations or {}).get((queue.topic, queue.broker_name))
        if queue in start and is_created_again(then, bounds.generation):
            losses.append(_named(queue, f"was deleted and created again after messages up to {begin} were read"))
            end[queue] = bounds.first
            continue
        if begin > bounds.end:
            losses.append(_named(queue, f"ends at {bounds.end}, before {begin}: it was created again or cut"))
            end[queue] = bounds.first
            continue
        if begin < bounds.first:
            losses.append(_named(queue, f"begins at {bounds.first}: messages from {begin} on were deleted"))
            begin = bounds.first
        if queue in start or bounds.end > begin:
            end[queue] = begin
        if bounds.end > begin:
            todo[queue] = QueueRange(queue, begin, bounds.end)
    for queue, count in _shares(todo, limits).items():
        end[queue] = todo[queue].start + count
    return Step(end, losses, sum(one.count for one in todo.values()))


def _named(queue: MessageQueue, what: str) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} {what}"


def _shares(todo: Mapping[MessageQueue, QueueRange], limits: Limits) -> dict[MessageQueue, int]:
    """Return how many messages of each queue fit both limits, at least one in all."""
    counts = {queue: one.count for queue, one in todo.items()}
    if limits.bytes_max is not None:
        weights = {queue: max(1.0, limits.mean_bytes.get(queue, 1.0)) for queue in counts}
        total = sum(count * weights[queue] for queue, count in counts.items())
        if total > limits.bytes_max:
            affordable = max(1, int(sum(counts.values()) * (limits.bytes_max / total)))
            counts = prorated(counts, affordable)
    if limits.rows_max is not None:
        counts = prorated(counts, limits.rows_max)
    return counts


def prorated(counts: Mapping[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    """Return at most `limit` messages in all, in proportion to `counts`. The largest remainders are rounded up."""
    total = sum(counts.values())
    if total <= limit:
        return dict(counts)
    limit = max(limit, 1)
    shares = {queue: count * limit // total for queue, count in counts.items()}
    left = limit - sum(shares.values())
    by_rest = sorted(counts, key=lambda queue: (-(counts[queue] * limit % total), queue))
    for queue in by_rest[:left]:
        shares[queue] += 1
    return shares


def ranges_between(
    start: Offsets,
    end: Offsets,
    visible: Mapping[MessageQueue, Bounds],
    generations: Generations | None = None,
) -> tuple[list[QueueRange], list[str]]:
    """Return the ranges between two positions that still exist, and a sentence for each loss.

    A queue that `start` does not contain is new in this batch, and begins at its first message. A start after its end
    is an empty range.
    """
    ranges: list[QueueRange] = []
    losses: list[str] = []
    for queue in sorted(end):
        bounds = visible.get(queue)
        begin, stop = start.get(queue, 0 if bounds is None else bounds.first), end[queue]
        if begin >= stop:
            continue
        if bounds is None:
            losses.append(_named(queue, f"does not exist: messages {begin} to {stop - 1} cannot be read"))
            continue
        if is_created_again((generations or {}).get((queue.topic, queue.broker_name)), bounds.generation):
            losses.append(_named(queue, f"was deleted and created again: messages {begin} to {stop - 1} are gone"))
            continue
        if stop > bounds.end:
            losses.append(_named(queue, f"ends at {bounds.end}: messages up to {stop - 1} are gone"))
            stop = bounds.end
        if begin < bounds.first:
            losses.append(_named(queue, f"begins at {bounds.first}: messages from {begin} on were deleted"))
            begin = bounds.first
        if begin < stop:
            ranges.append(QueueRange(queue, begin, stop, bounds.generation))
    return ranges, losses


def partitions_of(
    ranges: Iterable[QueueRange],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
    packed_records: int = PACKED_RECORDS,
) -> list[tuple[QueueRange, ...]]:
    """Return the ranges of each partition: divided if more partitions are asked for, and joined if they are small."""
    pieces = [piece for one in ranges if one.count > 0 for piece in _cut_to(one, records_max)]
    if not pieces:
        return []
    if partitions_min is not None and len(pieces) < partitions_min:
        return [(piece,) for piece in _cut_to_number(pieces, partitions_min)]
    return _packed(pieces, partitions_min or 1, min(packed_records, records_max or packed_records))


def _cut_to(one: QueueRange, records_max: int | None) -> list[QueueRange]:
    return [one] if records_max is None else _cut(one, math.ceil(one.count / records_max))


def _cut(one: QueueRange, parts: int) -> list[QueueRange]:
    """Return `parts` ranges of nearly equal length, or fewer if there are fewer messages."""
    parts = max(1, min(parts, one.count))
    edges = [one.start + one.count * number // parts for number in range(parts + 1)]
    return [QueueRange(one.queue, low, high, one.generation) for low, high in itertools.pairwise(edges)]


def _cut_to_number(pieces: Sequence[QueueRange], number: int) -> list[QueueRange]:
    """Return `number` pieces or a few more, with the longest divided most, or fewer if there are fewer messages."""
    total = sum(piece.count for piece in pieces)
    size = max(1, total // number)
    cut = [part for piece in pieces for part in _cut(piece, math.ceil(piece.count / size))]
    return cut


def _packed(pieces: Sequence[QueueRange], partitions_min: int, records: int) -> list[tuple[QueueRange, ...]]:
    """Join neighbours up to `records` messages, as long as at least `partitions_min` partitions are left."""
    spare = len(pieces) - partitions_min
    packed: list[list[QueueRange]] = []
    size = 0
    for piece in pieces:
        if packed and spare > 0 and size + piece.count <= records:
            packed[-1].append(piece)
            size += piece.count
            spare -= 1
        else:
            packed.append([piece])
            size = piece.count
    return [tuple(group) for group in packed]
