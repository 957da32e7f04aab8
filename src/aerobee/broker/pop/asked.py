"""What pops are asked for and answered, as values: for the handlers of requests and for the gRPC service alike."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from aerobee.protocol.codes import ResponseCode

POLLING_FULL = ResponseCode.POLLING_FULL
POLLING_TIMEOUT = ResponseCode.POLLING_TIMEOUT


@dataclass(slots=True)
class PopBatch:
    """What one queue gave."""

    # 0: the topic itself; 1 and 2: its retry topics (`records.py`).
    kind: int
    # The topic that was read, and its queue.
    topic: str
    queue_id: int
    # Where the read began: the first offset, or that of a message before it that a filter did not take.
    start: int
    offsets: list[int]
    # Whole records as they are stored; several may share one buffer.
    buffers: list[bytes | memoryview]
    # For pops in order: how often messages were consumed before, by offset.
    consumed: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class PopResult:
    """What a pop is answered. `code` is 0, or one of RocketMQ's."""

    code: int
    pop_time: int = 0
    invisible_ms: int = 0
    revive_queue: int = 0
    # How many messages are left in the queues that were asked.
    rest: int = 0
    batches: list[PopBatch] = field(default_factory=list)
    remark: str = ""


def _never() -> bool:
    return False


@dataclass(slots=True)
class PopRequest:
    """One pop. `told` is called once, now or later."""

    group: str
    topic: str
    told: Callable[[PopResult], None]
    # -1: any queue.
    queue_id: int = -1
    count: int = 32
    invisible_ms: int = 60_000
    # Where a group begins that has no position: at the queue's start, or at its end.
    from_start: bool = False
    # The hash codes of the tags that are wanted, or a function over the property block of a record; None takes all.
    tags: Collection[int] | None = None
    accept: Callable[[bytes], bool] | None = None
    in_order: bool = False
    attempt_id: str | None = None
    # Until when it waits for messages, in monotonic seconds; 0 does not wait.
    wait_until_s: float = 0.0
    # Whether nobody is there any more to be answered: what it took is then given to the next pop at once.
    is_gone: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True)
class Lease:
    """A message that a consumer holds, as its handle says it. `topic` is the one that was read."""

    group: str
    topic: str
    queue_id: int
    offset: int
    pop_time: int
    in_order: bool = False
    # When the handle is over, unless its time was changed; 0 for not known.
    until_ms: int = 0


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
