"""The state that a consumer reports, and the result of consuming one message on request."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.base import Body, wire
from aerobee.protocol.bodies.heartbeat import SubscriptionData

PROP_NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE = "PROP_CONSUME_TYPE"
PROP_CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class ProcessQueueInfo(Body):
    """The state of a queue in a consumer."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = wire("cachedMsgSizeInMiB", 0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class PopProcessQueueInfo(Body):
    """The state of a queue in a consumer that pops."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ConsumeStatus(Body):
    """The rates and times of a topic in a consumer."""

    pull_rt: float = wire("pullRT", 0.0)
    pull_tps: float = wire("pullTPS", 0.0)
    consume_rt: float = wire("consumeRT", 0.0)
    consume_ok_tps: float = wire("consumeOKTPS", 0.0)
    consume_failed_tps: float = wire("consumeFailedTPS", 0.0)
    consume_failed_msgs: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerRunningInfo(Body):
    """GET_CONSUMER_RUNNING_INFO."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumeMessageDirectlyResult(Body):
    """CONSUME_MESSAGE_DIRECTLY. `consume_result` is CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, ..."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: int = 0
