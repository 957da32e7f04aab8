"""The keyword arguments of consumers, declared once for the asyncio and the synchronous face."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from aerobee.client.consumer.allocation import Allocation
from aerobee.client.consumer.groupmember import OnQueues
from aerobee.client.consumer.processqueue import PREFETCH_BYTES
from aerobee.client.core import ClientOptions, require_at_least, require_types


class PushConsumerOptions(ClientOptions, total=False):
    """What a pushing consumer may be told. Times are seconds."""

    # Handlers that run at the same time; plain functions run in that many threads.
    concurrency: int
    # How long running handlers may take to end when the consumer stops.
    drain_timeout: float
    # Every consumer gets every message; offsets are kept in a file here.
    broadcast: bool
    # first, last or timestamp: where a group starts that has no offset yet.
    consume_from: str
    consume_timestamp: datetime | int | None
    # averagely, averagely_by_circle, consistent_hash, or a strategy of aerobee.allocation.
    allocate: str | Allocation
    # Then a message becomes a dead letter. -1: 16, and no limit for ordered ones.
    max_reconsume_times: int
    # A message held longer by its handler is handed out again; 0 never.
    consume_timeout: float
    # How long an ordered queue is halted after a failure.
    suspend: float
    persist_interval: float
    pull_batch_size: int
    pull_threshold: int
    pull_threshold_bytes: int
    # Of bodies, over all queues.
    prefetch_bytes: int
    max_span: int
    on_assigned: OnQueues | None
    on_revoked: OnQueues | None
    # True for RMQ_SYS_TRACE_TOPIC, or a topic's name.
    trace: bool | str
    # Where a broadcast consumer keeps its offsets; default ~/.rocketmq_offsets, as Java clients do.
    offset_dir: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerConfig:
    """PushConsumerOptions with RocketMQ's defaults (DefaultMQPushConsumer)."""

    concurrency: int = 20
    drain_timeout: float = 30.0
    broadcast: bool = False
    consume_from: str = "last"
    consume_timestamp: datetime | int | None = None
    allocate: str | Allocation = "averagely"
    max_reconsume_times: int = -1
    consume_timeout: float = 900.0
    suspend: float = 1.0
    persist_interval: float = 5.0
    pull_batch_size: int = 32
    pull_threshold: int = 1000
    pull_threshold_bytes: int = 100 << 20
    prefetch_bytes: int = PREFETCH_BYTES
    max_span: int = 2000
    on_assigned: OnQueues | None = None
    on_revoked: OnQueues | None = None
    trace: bool | str = False
    offset_dir: str | None = None

    def check(self) -> None:
        """TypeError or InvalidArgumentError names what is wrong."""
        require_types(self)
        require_at_least("concurrency", self.concurrency, 1)
        require_at_least("drain_timeout", self.drain_timeout, 0)
        require_at_least("max_reconsume_times", self.max_reconsume_times, -1)
        require_at_least("consume_timeout", self.consume_timeout, 0)
        require_at_least("suspend", self.suspend, 0.01)
        require_at_least("persist_interval", self.persist_interval, 0.01)
        require_at_least("pull_batch_size", self.pull_batch_size, 1)
        require_at_least("pull_threshold", self.pull_threshold, 1)
        require_at_least("pull_threshold_bytes", self.pull_threshold_bytes, 1)
        require_at_least("prefetch_bytes", self.prefetch_bytes, 1)
        require_at_least("max_span", self.max_span, 1)


class LitePullConsumerOptions(ClientOptions, total=False):
    """What a pulling consumer may be told. Times are seconds."""

    # Save what was handed out and followed by another poll, every persist_interval and when the consumer closes.
    auto_commit: bool
    consume_from: str
    consume_timestamp: datetime | int | None
    allocate: str | Allocation
    persist_interval: float
    pull_batch_size: int
    pull_threshold: int
    pull_threshold_bytes: int
    # Of bodies, over all queues.
    prefetch_bytes: int
    max_span: int
    on_assigned: OnQueues | None
    on_revoked: OnQueues | None
    # Every consumer gets every message; offsets are kept in a file here.
    broadcast: bool
    offset_dir: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConsumerConfig:
    """LitePullConsumerOptions with RocketMQ's defaults (DefaultLitePullConsumer)."""

    auto_commit: bool = True
    consume_from: str = "last"
    consume_timestamp: datetime | int | None = None
    allocate: str | Allocation = "averagely"
    persist_interval: float = 5.0
    pull_batch_size: int = 32
    pull_threshold: int = 1000
    pull_threshold_bytes: int = 100 << 20
    prefetch_bytes: int = PREFETCH_BYTES
    max_span: int = 2000
    on_assigned: OnQueues | None = None
    on_revoked: OnQueues | None = None
    broadcast: bool = False
    offset_dir: str | None = None

    def check(self) -> None:
        """TypeError or InvalidArgumentError names what is wrong."""
        require_types(self)
        require_at_least("persist_interval", self.persist_interval, 0.01)
        require_at_least("pull_batch_size", self.pull_batch_size, 1)
        require_at_least("pull_threshold", self.pull_threshold, 1)
        require_at_least("pull_threshold_bytes", self.pull_threshold_bytes, 1)
        require_at_least("prefetch_bytes", self.prefetch_bytes, 1)
        require_at_least("max_span", self.max_span, 1)
