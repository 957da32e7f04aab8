"""The units of a consume queue, for administrators."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.protocol.bodies.base import Body
from aerobee.protocol.bodies.heartbeat import SubscriptionData


@dataclass(frozen=True, slots=True)
class ConsumeQueueData(Body):
    """One unit, and whether the subscription takes it."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(frozen=True, slots=True)
class QueryConsumeQueueResponseBody(Body):
    """QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
