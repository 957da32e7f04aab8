"""What lines of the Java driver prove: nothing lost, nothing changed, order kept, repeats named."""

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
    """Sequence numbers that were acknowledged and never taken, or taken with another body or another id."""
    found = {(message["sequence"], message["bodyHash"], message["msgId"]) for message in taken}
    return [one["sequence"] for one in sent if (one["sequence"], one["bodyHash"], one["msgId"]) not in found]


def repeated(taken: Iterable[Event]) -> list[int]:
    """Sequence numbers taken more than once."""
    counts = Counter(message["sequence"] for message in taken)
    return sorted(sequence for sequence, count in counts.items() if count > 1)


def out_of_order(taken: Iterable[Event]) -> list[tuple[Queue, int, int]]:
    """Queue, offset and the offset taken before it, where that is not the one before.

    A jump back is a repeat (see `repeated`) and fine only where something explains it; it is named too.
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
    """Each queue's messages were first seen one after the other, whatever was repeated in between."""
    last: dict[Queue, int] = {}
    for message in taken:
        queue, offset = queue_of(message), message["queueOffset"]
        if offset > last.get(queue, -1) + 1 and queue in last:
            return False
        last[queue] = max(offset, last.get(queue, -1))
    return True


def send_order_kept(taken: Iterable[Event]) -> bool:
    """Of messages sent by one thread one after the other: each queue holds them in the order of the sends."""
    by_queue: dict[Queue, list[tuple[int, int]]] = {}
    for message in taken:
        by_queue.setdefault(queue_of(message), []).append((message["queueOffset"], message["sequence"]))
    return all(
        sequences == sorted(sequences)
        for sequences in ([sequence for _, sequence in sorted(pairs)] for pairs in by_queue.values())
    )
