"""Checks of what the Java driver printed: nothing is lost or changed, the order is kept, repeats are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]
Queue = tuple[str, str, int]


def of_kind(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def queue_of(message: Event) -> Queue:
    return message["topic"], message["storeHost"], message["queueId"]


def lost(sent: Iterable[Event], taken: Iterable[Event]) -> list[int]:
    """Return sequence numbers that were acknowledged and never taken, or taken with another body or another id."""
    found = {(message["sequence"], message["bodyHash"], message["msgId"]) for message in taken}
    return [one["sequence"] for one in sent if (one["sequence"], one["bodyHash"], one["msgId"]) not in found]


def repeated(taken: Iterable[Event]) -> list[int]:
    """Return sequence numbers that were taken more than once."""
    counts = Counter(message["sequence"] for message in taken)
    return sorted(sequence for sequence, count in counts.items() if count > 1)


def out_of_order(taken: Iterable[Event]) -> list[tuple[Queue, int, int]]:
    """Return queue, offset and the offset taken before it, wherever the two do not follow each other.

    A jump back is a repeat (see `repeated`). It is returned too; the caller must know a reason for it.
    """
    last: dict[Queue, int] = {}
    wrong = []
    for message in taken:
        queue, offset = queue_of(message), message["queueOffset"]
        if queue in last and offset != last[queue] + 1:
            wrong.append((queue, offset, last[queue]))
        last[queue] = offset
    return wrong


def first_takes_in_order(taken: Iterable[Event]) -> bool:
    """Check that each queue's messages were first seen one after the other, whatever was repeated in between."""
    last: dict[Queue, int] = {}
    for message in taken:
        queue, offset = queue_of(message), message["queueOffset"]
        if offset > last.get(queue, -1) + 1 and queue in last:
            return False
        last[queue] = max(offset, last.get(queue, -1))
    return True


def send_order_kept(taken: Iterable[Event]) -> bool:
    """Check that each queue holds the messages of one thread in the order of the sends."""
    by_queue: dict[Queue, list[tuple[int, int]]] = {}
    for message in taken:
        by_queue.setdefault(queue_of(message), []).append((message["queueOffset"], message["sequence"]))
    return all(
        sequences == sorted(sequences)
        for sequences in ([sequence for _, sequence in sorted(pairs)] for pairs in by_queue.values())
    )
