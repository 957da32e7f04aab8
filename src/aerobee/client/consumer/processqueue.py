"""One queue as its consumer holds it: the messages that are not done, where to pull next, what may be committed.

This is a machine without a clock. Offsets come in ascending order and may be finished in any order. The offset to
commit is the lowest one that is not finished, so that after a crash every unfinished message is handed out again.
`Prefetch` counts what all queues of a consumer hold. RocketMQ: ProcessQueue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue

# The lease of a lock that is asked of brokers. After a crash of this process the queue stands still for that long.
# Apache's broker knows no leases and keeps a lock for 60 s.
LOCK_LEASE_S: Final = 6.0
# How long a lock is trusted, from the request on. The broker counts from when the request came, and with another clock.
# RocketMQ: ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME (30 s).
LOCK_VALID_S: Final = 5.5
PREFETCH_BYTES: Final = 64 << 20

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of pulling ahead. RocketMQ: DefaultMQPushConsumer.pullThreshold..., consumeConcurrentlyMaxSpan."""

    count: int = 1000
    size_bytes: int = 100 << 20
    span: int = 2000
    # Bytes of all queues of the consumer together.
    total_bytes: int = PREFETCH_BYTES


class Prefetch:
    """The bytes that a consumer holds or expects, over all its queues, and the queues that wait for room.

    Above the limit a queue is pulled only when it holds nothing: one that stands still (it is paused, or the handler of
    an ordered one fails) must not starve the others. So a consumer holds at most the limit and one answer of a broker
    for each queue. RocketMQ: DefaultMQPushConsumer.pullThresholdSizeForTopic, off by default and cut into equal parts.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[Wake, None] = {}

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    def take(self, count: int) -> None:
        self.held_bytes += count

    def give(self, count: int) -> None:
        """Release bytes that are held no more."""
        self.held_bytes -= count
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def wait(self, wake: Wake) -> None:
        """Have `wake` called once when there is room."""
        self._waiting[wake] = None

    def forget(self, wake: Wake) -> None:
        self._waiting.pop(wake, None)


class ProcessQueue:
    """The state of one owned queue."""

    def __init__(self, queue: MessageQueue, next_offset: int, prefetch: Prefetch | None = None) -> None:
        self.queue = queue
        # The bytes of this queue are counted there too.
        self._prefetch = prefetch or Prefetch(PREFETCH_BYTES)
        # Everything below this offset was pulled, or does not match the subscription.
        self.next_offset = next_offset
        # Whether the queue was given up: nothing of it is committed from then on.
        self.dropped = False
        self.size_bytes = 0
        self.lock_until_s = 0.0
        self.pulled_ms = 0
        self.consumed_ms = 0
        self._pending: dict[int, Message] = {}
        self._order: deque[int] = deque()
        self._highest = -1

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, offset: int) -> bool:
        return offset in self._pending

    # -- pulling

    def put(self, messages: Sequence[Message], next_offset: int) -> list[Message]:
        """Add the messages of a pull. Return the new ones: a pull that is answered twice brings no message twice."""
        new: list[Message] = []
        for message in messages:
            offset = message.queue_offset
            if offset <= self._highest:
                continue
            self._highest = offset
            self._pending[offset] = message
            self._order.append(offset)
            self.size_bytes += len(message.body)
            self._prefetch.take(len(message.body))
            new.append(message)
        self.next_offset = max(self.next_offset, next_offset)
        return new

    def full(self, limits: PullLimits, *, with_span: bool = True) -> str | None:
        """Return why nothing more should be pulled now, or None. An ordered queue needs no limit of the span."""
        if len(self._pending) > limits.count:
            return f"{len(self._pending)} messages wait"
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} bytes wait"
        if with_span and self.span > limits.span:
            return f"offset {self.first} is not done, and the last one is {self.span} ahead of it"
        return None

    # -- consuming

    @property
    def first(self) -> int | None:
        """The lowest offset that is not finished."""
        order, pending = self._order, self._pending
        while order and order[0] not in pending:
            order.popleft()
        return order[0] if order else None

    @property
    def last(self) -> int | None:
        """The highest offset that was pulled and is not finished."""
        order, pending = self._order, self._pending
        while order and order[-1] not in pending:
            order.pop()
        return order[-1] if order else None

    @property
    def span(self) -> int:
        """The distance between the lowest and the highest offset that are not finished."""
        first, last = self.first, self.last
        return 0 if first is None or last is None else last - first

    def head(self, count: int) -> list[Message]:
        """Return the first messages that are not finished, in order."""
        result: list[Message] = []
        if self.first is None:
            return result
        for offset in self._order:
            message = self._pending.get(offset)
            if message is not None:
                result.append(message)
                if len(result) == count:
                    break
        return result

    def replace(self, message: Message) -> None:
        """Put a message with other counters in its place, for its next try here."""
        if message.queue_offset in self._pending:
            self._pending[message.queue_offset] = message

    def finish(self, offsets: Iterable[int]) -> int:
        """Note that messages are done. Return the offset that may be committed."""
        for offset in offsets:
            message = self._pending.pop(offset, None)
            if message is not None:
                self._free(len(message.body))
        return self.commit_offset

    def drop(self) -> None:
        """Give the queue up. A second call does nothing."""
        if not self.dropped:
            self._prefetch.give(self.size_bytes)
            self.dropped = True

    def _free(self, count: int) -> None:
        self.size_bytes -= count
        if not self.dropped:
            self._prefetch.give(count)

    @property
    def commit_offset(self) -> int:
        """The offset to commit: everything below it is done."""
        first = self.first
        return self.next_offset if first is None else first

    # -- the lock of ordered queues

    def locked(self, asked_s: float) -> None:
        """Note that the broker gave the lock. Its time counts from the request, not from the answer."""
        self.lock_until_s = max(self.lock_until_s, asked_s + LOCK_VALID_S)

    def holds_lock(self, now_s: float) -> bool:
        return now_s < self.lock_until_s
