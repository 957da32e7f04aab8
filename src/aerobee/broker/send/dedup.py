"""What idempotent producers sent lately, so that a message sent again is answered and not stored again.

It also keeps the order of each queue: a message that says which one it follows is stored after that one, and never
after a later one. It is a machine: time is an argument. `learn_marks` fills it from the log at a start, so that a
broker that was killed, or a replica that takes over, knows what its log holds. RocketMQ has nothing like it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aerobee.model.producermark import SEQUENCE_WINDOW, ProducerMark

IDLE_S: Final = 15 * 60.0
PRODUCERS_MAX: Final = 10_000
ENTRIES_MAX: Final = 250_000
# The queues in which the order of one producer is kept.
QUEUES_MAX: Final = 1024

# (code, remark), as Puts says it.
Outcome = Callable[[int, str], None]


def named(topic: str, unique_key: str) -> str:
    """Return what tells a repeat from another message under the same mark: a copy to another topic, with all its
    properties, is none, nor is a message of somebody who read the mark and sends ahead of the producer."""
    return f"{topic}\0{unique_key}"


@dataclass(slots=True)
class Sent:
    """One message. It is being stored while `waiting` is a list, and is stored here after that."""

    waiting: list[Outcome] | None = None
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = 0
    # The values that the sender is told.
    queue_id: int = 0
    recall_handle: str = ""


# A queue, by topic and number.
Queue = tuple[str, int]


@dataclass(slots=True)
class _Memory:
    """One producer's messages by sequence and name (`named`), the oldest first."""

    used_s: float
    highest: int = -1
    sent: dict[tuple[int, str], Sent] = field(default_factory=dict)
    # The highest sequence of those that keep an order, by queue. The longest unused first.
    last: dict[Queue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of one message in the order of its producer and queue."""

    mark: ProducerMark
    queue: Queue
    # The message of the queue before it.
    before: int


class Dedup:
    """The memory of one broker."""

    def __init__(
        self, *, idle_s: float = IDLE_S, producers_max: int = PRODUCERS_MAX, entries_max: int = ENTRIES_MAX
    ) -> None:
        self._idle_s = idle_s
        self._producers_max = producers_max
        self._entries_max = entries_max
        # The longest unused first.
        self._producers: dict[str, _Memory] = {}
        self.entries = 0

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, mark: ProducerMark, name: str) -> Sent | None:
        """Return what is known of a message."""
        memory = self._producers.get(mark.producer_id)
        return None if memory is None else memory.sent.get((mark.sequence, name))

    def is_too_old(self, mark: ProducerMark) -> bool:
        """Tell whether a message is too old to know if it was sent before. A producer of ours never lags so far."""
        memory = self._producers.get(mark.producer_id)
        return memory is not None and mark.sequence <= memory.highest - SEQUENCE_WINDOW

    def begin(self, mark: ProducerMark, name: str, now_s: float) -> Sent:
        """Note that a message which is not known yet is being stored."""
        sent = Sent(waiting=[])
        self._add(mark, name, sent, now_s)
        return sent

    def learn(self, mark: ProducerMark, name: str, sent: Sent, now_s: float, queue: Queue | None = None) -> None:
        """Take up a message that the log holds, in the order of the log. The first of several copies counts. `queue` is
        given for one that keeps an order."""
        if self.find(mark, name) is None:
            self._add(mark, name, sent, now_s)
            if queue is not None and not self.is_overtaken(mark, queue):
                self._set_last(mark, queue, mark.sequence)

    def stored(self, sent: Sent) -> list[Outcome]:
        """Note that a message is in the log. Return those who sent it again meanwhile."""
        waiting, sent.waiting = sent.waiting, None
        return waiting or []

    def refused(self, mark: ProducerMark, name: str, sent: Sent) -> list[Outcome]:
        """Forget a message that was not stored, and that may be sent again. Return those who wait for its outcome."""
        if self.find(mark, name) is sent:
            del self._producers[mark.producer_id].sent[mark.sequence, name]
            self.entries -= 1
        return self.stored(sent)

    # -- the order of a queue

    def is_overtaken(self, mark: ProducerMark, queue: Queue) -> bool:
        """Tell whether a later message of the producer is stored in the queue. Its producer has given this one up."""
        return mark.sequence < self._last(mark, queue)

    def is_early(self, mark: ProducerMark, queue: Queue, after: int) -> bool:
        """Tell whether the message that this one must come `after` is not here yet."""
        return self._last(mark, queue) < after

    def take_turn(self, mark: ProducerMark, queue: Queue) -> Turn:
        """Note that a message, which has begun, is the last of its queue now."""
        turn = Turn(mark, queue, self._last(mark, queue))
        self._set_last(mark, queue, mark.sequence)
        return turn

    def turn_stored(self, turn: Turn) -> None:
        """Note that a message is in the log."""
        self._set_last(turn.mark, turn.queue, max(turn.mark.sequence, self._last(turn.mark, turn.queue)))

    def turn_refused(self, turn: Turn) -> None:
        """Note that a message was not stored: nothing that follows it may be stored before it."""
        self._set_last(turn.mark, turn.queue, min(turn.before, self._last(turn.mark, turn.queue)))

    def _last(self, mark: ProducerMark, queue: Queue) -> int:
        memory = self._producers.get(mark.producer_id)
        return -1 if memory is None else memory.last.get(queue, -1)

    def _set_last(self, mark: ProducerMark, queue: Queue, sequence: int) -> None:
        memory = self._producers.get(mark.producer_id)
        if memory is None:
            return
        last = memory.last
        if last.pop(queue, None) is None:
            self.entries += 1
            if len(last) >= QUEUES_MAX:
                del last[next(iter(last))]
                self.entries -= 1
        last[queue] = sequence

    # -- bounds

    def _add(self, mark: ProducerMark, name: str, sent: Sent, now_s: float) -> None:
        memory = self._producers.pop(mark.producer_id, None) or _Memory(now_s)
        self._producers[mark.producer_id] = memory
        memory.used_s = now_s
        memory.sent[mark.sequence, name] = sent
        self.entries += 1
        if mark.sequence > memory.highest:
            memory.highest = mark.sequence
            self._trim(memory)
        self._forget_idle(now_s)

    def _trim(self, memory: _Memory) -> None:
        floor, sent = memory.highest - SEQUENCE_WINDOW, memory.sent
        while True:
            first = next(iter(sent))
            if first[0] > floor and len(sent) <= 2 * SEQUENCE_WINDOW:
                return
            del sent[first]
            self.entries -= 1

    def _forget_idle(self, now_s: float) -> None:
        producers = self._producers
        while len(producers) > 1:
            first = next(iter(producers))
            memory = producers[first]
            is_crowded = len(producers) > self._producers_max or self.entries > self._entries_max
            if memory.used_s > now_s - self._idle_s and not is_crowded:
                return
            self.entries -= len(memory.sent) + len(memory.last)
            del producers[first]
