"""Static topics: the mapping of logical queues to the queues of broker groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.protocol.bodies.base import Body

SCOPE_GLOBAL = "__global__"


@dataclass(frozen=True, slots=True)
class LogicQueueMappingItem(Body):
    """One range of a logical queue: a queue of a broker, and the offsets where it starts."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


@dataclass(frozen=True, slots=True)
class TopicQueueMappingInfo(Body):
    """The queues of a static topic that a broker registers: logical to physical queue ids."""

    topic: str = ""
    scope: str = SCOPE_GLOBAL
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The mapping of a static topic, with the whole history of each logical queue that the broker hosts."""

    hosted_queues: dict[int, tuple[LogicQueueMappingItem, ...]] = field(default_factory=dict)
