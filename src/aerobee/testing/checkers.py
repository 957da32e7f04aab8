"""Judges of a run with faults: what was acknowledged against what is read. Pure.

A message's identity is its body: `producer-sequence`, unless it is named. Producers send one message after the
other, so that the order within a queue is known from the acknowledgements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Queue = tuple[str, int]  # broker name, queue id


class Acked(NamedTuple):
    """One acknowledgement: who sent the message, and where the broker says that it is."""

    producer: int
    sequence: int
    broker: str
    queue_id: int
    queue_offset: int
    # The body, where it is not `producer-sequence`.
    name: str = ""

    @property
    def body(self) -> str:
        return self.name or f"{self.producer}-{self.sequence}"


class Read(NamedTuple):
    """One message as a consumer got it."""

    broker: str
    queue_id: int
    queue_offset: int
    body: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a run came to. Everything but `duplicates` (a resend may store a message twice) must be empty."""

    acked: int
    read: int
    duplicates: int
    # Acknowledged and found nowhere.
    lost: list[Acked] = field(default_factory=list)
    # Acknowledged at a place where another message is: readers' offsets would mean other messages.
    misplaced: list[Acked] = field(default_factory=list)
    # Pairs of one producer in one queue whose order is not that of sending.
    reordered: list[tuple[Acked, Acked]] = field(default_factory=list)
    # Offsets of a queue that no message has.
    holes: list[tuple[Queue, int]] = field(default_factory=list)
    # Seen by a consumer during the run, while another message (or none) is there now.
    changed: list[Read] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.misplaced or self.reordered or self.holes or self.changed)

    def __str__(self) -> str:
        return (
            f"acked={self.acked} read={self.read} lost={len(self.lost)} misplaced={len(self.misplaced)} "
            f"reordered={len(self.reordered)} holes={len(self.holes)} changed={len(self.changed)} "
            f"duplicates={self.duplicates}"
        )


def judge(acked: Sequence[Acked], final: Iterable[Read], live: Iterable[Read] = ()) -> CheckResult:
    """Judge a run. `final` is everything that the queues hold at the end, `live` what consumers got while faults
    happened."""
    by_queue: dict[Queue, dict[int, str]] = {}
    copies: Counter[str] = Counter()
    for one in final:
        by_queue.setdefault((one.broker, one.queue_id), {})[one.queue_offset] = one.body
        copies[one.body] += 1
    return CheckResult(
        acked=len(acked),
        read=copies.total(),
        duplicates=copies.total() - len(copies),
        lost=[one for one in acked if not copies[one.body]],
        misplaced=[
            one for one in acked if by_queue.get((one.broker, one.queue_id), {}).get(one.queue_offset) != one.body
        ],
        reordered=_reordered(acked),
        holes=_holes(by_queue),
        changed=[one for one in live if by_queue.get((one.broker, one.queue_id), {}).get(one.queue_offset) != one.body],
    )


def _reordered(acked: Sequence[Acked]) -> list[tuple[Acked, Acked]]:
    last: dict[tuple[int, Queue], Acked] = {}
    found = []
    for one in sorted(acked, key=lambda one: (one.producer, one.sequence)):
        key = (one.producer, (one.broker, one.queue_id))
        before = last.get(key)
        if before is not None and before.queue_offset >= one.queue_offset:
            found.append((before, one))
        last[key] = one
    return found


def _holes(by_queue: dict[Queue, dict[int, str]]) -> list[tuple[Queue, int]]:
    return [
        (queue, offset)
        for queue, messages in by_queue.items()
        for offset in range(max(messages) + 1)
        if offset not in messages
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values are, or 0 if there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
