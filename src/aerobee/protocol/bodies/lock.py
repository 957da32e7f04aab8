"""Bodies of requests that lock queues for ordered consumption."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.base import Body, wire


@dataclass(frozen=True, slots=True)
class LockBatchRequestBody(Body):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


@dataclass(frozen=True, slots=True)
class LockBatchResponseBody(Body):
    """The queues that are locked now."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = wire("lockOKMQSet", ())
