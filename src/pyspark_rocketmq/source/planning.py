"""What a batch reads: limits, data that is gone, and ranges cut to partitions. Pure.

The bounds of a queue are [first, end): the offset of its first message and the one its next message will get.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.source.offsets import Offsets

# Ranges below this many messages share a task: a task costs more than reading them.
PACKED_RECORDS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a queue holds now."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages [start, end) of a queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Step:
    """The next end of a stream, and every loss met on the way, in words."""

    end: Offsets
    losses: Sequence[str] = ()
    available: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch may read; `mean_bytes` is what messages of a queue weigh, where bytes are bounded."""

    rows_max: int | None = None
    bytes_max: int | None = None
    mean_bytes: Mapping[MessageQueue, float] = field(default_factory=dict)


def next_end(start: Offsets, visible: Mapping[MessageQueue, Bounds], limits: Limits) -> Step:
    """How far the batch after `start` reads.

    A queue not seen before starts at its first message, once it has one; one that is not visible keeps its number. A
    queue that ends before where we stand was made anew: it goes on at its first message (this batch reads nothing of
    it).
    """
    end = dict(start)
    losses: list[str] = []
    todo: dict[MessageQueue, QueueRange] = {}
    for queue in sorted(visible):
        bounds = visible[queue]
        begin = start.get(queue, bounds.first)
        if begin > bounds.end:
            losses.append(_named(queue, f"ends at {bounds.end}, before {begin}: it was made anew or cut"))
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
    """How many messages of each queue, within both limits; at least one in all."""
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
    """At most `limit` in all, each by its part of the whole; what rounding leaves goes to the largest rests."""
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
    start: Offsets, end: Offsets, visible: Mapping[MessageQueue, Bounds]
) -> tuple[list[QueueRange], list[str]]:
    """What lies between two positions and is still there, and what is not, in words. A start beyond its end is empty.

    A queue that `start` does not know is new in this batch, and begins at its first message.
    """
    ranges: list[QueueRange] = []
    losses: list[str] = []
    for queue in sorted(end):
        bounds = visible.get(queue)
        begin, stop = start.get(queue, 0 if bounds is None else bounds.first), end[queue]
        if begin >= stop:
            continue
        if bounds is None:
            losses.append(_named(queue, f"is not there: messages {begin} to {stop - 1} cannot be read"))
            continue
        if stop > bounds.end:
            losses.append(_named(queue, f"ends at {bounds.end}: messages up to {stop - 1} are gone"))
            stop = bounds.end
        if begin < bounds.first:
            losses.append(_named(queue, f"begins at {bounds.first}: messages from {begin} on were deleted"))
            begin = bounds.first
        if begin < stop:
            ranges.append(QueueRange(queue, begin, stop))
    return ranges, losses


def partitions_of(
    ranges: Iterable[QueueRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[tuple[QueueRange, ...]]:
    """Ranges cut finer than queues where asked for, and small ones put together where not."""
    pieces = [piece for one in ranges if one.count > 0 for piece in _cut_to(one, records_max)]
    if not pieces:
        return []
    if partitions_min is not None and len(pieces) < partitions_min:
        return [(piece,) for piece in _cut_to_number(pieces, partitions_min)]
    return _packed(pieces, partitions_min or 1, min(PACKED_RECORDS, records_max or PACKED_RECORDS))


def _cut_to(one: QueueRange, records_max: int | None) -> list[QueueRange]:
    return [one] if records_max is None else _cut(one, math.ceil(one.count / records_max))


def _cut(one: QueueRange, parts: int) -> list[QueueRange]:
    """In `parts` of nearly equal length; fewer where there are fewer messages."""
    parts = max(1, min(parts, one.count))
    edges = [one.start + one.count * number // parts for number in range(parts + 1)]
    return [QueueRange(one.queue, low, high) for low, high in itertools.pairwise(edges)]


def _cut_to_number(pieces: Sequence[QueueRange], number: int) -> list[QueueRange]:
    """So many pieces or a few more, the longest cut most; fewer only where there are fewer messages."""
    total = sum(piece.count for piece in pieces)
    size = max(1, total // number)
    cut = [part for piece in pieces for part in _cut(piece, math.ceil(piece.count / size))]
    return cut


def _packed(pieces: Sequence[QueueRange], partitions_min: int, records: int) -> list[tuple[QueueRange, ...]]:
    """Neighbours together up to `records` messages, while at least `partitions_min` partitions are left."""
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
