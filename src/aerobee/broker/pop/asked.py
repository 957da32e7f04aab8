"""What pops are asked for and answered, as values: for the handlers of requests and for the gRPC service alike.

Those of which every request makes one are no dataclasses, whose __init__ would not be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from aerobee.protocol.codes import ResponseCode

POLLING_FULL = ResponseCode.POLLING_FULL
POLLING_TIMEOUT = ResponseCode.POLLING_TIMEOUT


class PopBatch:
    """What one queue gave."""

    def __init__(
        self,
        kind: int,
        topic: str,
        queue_id: int,
        start: int,
        offsets: list[int],
        buffers: list[bytes | memoryview],
    ) -> None:
        # 0: the topic itself; 1 and 2: its retry topics (`records.py`).
        self.kind: int = kind
        # The topic that was read, and its queue.
        self.topic: str = topic
        self.queue_id: int = queue_id
        # Where the read began: the first offset, or that of a message before it that a filter did not take.
        self.start: int = start
        self.offsets: list[int] = offsets
        # Whole records as they are stored; several may share one buffer.
        self.buffers: list[bytes | memoryview] = buffers
        # For pops in order: how often messages were consumed before, by offset.
        self.consumed: dict[int, int] = {}


class PopResult:
    """What a pop is answered. `code` is 0, or one of RocketMQ's."""

    def __init__(
        self, code: int, pop_time: int = 0, invisible_ms: int = 0, revive_queue: int = 0, *, remark: str = ""
    ) -> None:
        self.code: int = code
        self.pop_time: int = pop_time
        self.invisible_ms: int = invisible_ms
        self.revive_queue: int = revive_queue
        # How many messages are left in the queues that were asked.
        self.rest: int = 0
        self.batches: list[PopBatch] = []
        self.remark: str = remark


def _never() -> bool:
    return False


class PopRequest:
    """One pop. `told` is called once, now or later."""

    def __init__(  # noqa: PLR0913 (what a pop can ask for)
        self,
        group: str,
        topic: str,
        told: Callable[[PopResult], None],
        queue_id: int = -1,
        count: int = 32,
        invisible_ms: int = 60_000,
        *,
        from_start: bool = False,
        tags: Collection[int] | None = None,
        accept: Callable[[bytes], bool] | None = None,
        in_order: bool = False,
        attempt_id: str | None = None,
        wait_until_s: float = 0.0,
        is_gone: Callable[[], bool] = _never,
    ) -> None:
        self.group: str = group
        self.topic: str = topic
        self.told: Callable[[PopResult], None] = told
        # -1: any queue.
        self.queue_id: int = queue_id
        self.count: int = count
        self.invisible_ms: int = invisible_ms
        # Where a group begins that has no position: at the queue's start, or at its end.
        self.from_start: bool = from_start
        # The hash codes of the tags that are wanted, or a function over the property block of a record; None takes all.
        self.tags: Collection[int] | None = tags
        self.accept: Callable[[bytes], bool] | None = accept
        self.in_order: bool = in_order
        self.attempt_id: str | None = attempt_id
        # Until when it waits for messages, in monotonic seconds; 0 does not wait.
        self.wait_until_s: float = wait_until_s
        # Whether nobody is there any more to be answered: what it took is then given to the next pop at once.
        self.is_gone: Callable[[], bool] = is_gone


class Lease:
    """A message that a consumer holds, as its handle says it, or `count` messages that follow each other. `topic` is
    the one that was read."""

    def __init__(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        pop_time: int,
        in_order: bool = False,
        until_ms: int = 0,
        count: int = 1,
    ) -> None:
        self.group: str = group
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.offset: int = offset
        self.pop_time: int = pop_time
        self.in_order: bool = in_order
        # When the handle is over, unless its time was changed; 0 for not known.
        self.until_ms: int = until_ms
        self.count: int = count

    def each(self) -> list[Lease]:
        """Return a lease for each message."""
        return [
            Lease(self.group, self.topic, self.queue_id, offset, self.pop_time, self.in_order, self.until_ms)
            for offset in range(self.offset, self.offset + self.count)
        ]


@dataclass(frozen=True, slots=True)
class InFlight:
    """What one group holds of one queue."""

    topic: str
    group: str
    queue_id: int
    # Everything below was handed out; nothing below is held.
    taken: int
    safe: int
    count: int
    # Offset, pop time and deadline of the first of them.
    messages: list[tuple[int, int, int]]
