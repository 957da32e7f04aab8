"""The keyword arguments of consumers, declared once for the asyncio and the synchronous clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aerobee.client.consumer.allocation import Allocation
from aerobee.client.consumer.groupmember import OnQueues
from aerobee.client.consumer.processqueue import PREFETCH_BYTES
from aerobee.client.core import ClientOptions, ConsumeHook, ReceiveHook, require_at_least, require_types
from aerobee.errors import InvalidArgumentError


class PushConsumerOptions(ClientOptions, total=False):
    """The keyword arguments of a push consumer, besides those of every client. Times are in seconds."""

    # "queues": members share the queues out. "pop": no queue belongs to a member; each message is handed out for
    # `invisible` seconds, which are renewed while its handler runs.
    mode: str
    invisible: float
    # How many handlers run at the same time. Plain functions run in as many threads.
    concurrency: int
    # How long running handlers may take to end when the consumer stops.
    drain_timeout: float
    # Every consumer gets every message. Its offsets are saved in a local file.
    broadcast: bool
    # Where a group starts that has no offset yet: first, last or timestamp.
    consume_from: str
    consume_timestamp: datetime | int | None
    # averagely (the default), averagely_by_circle (round robin), consistent_hash, or a strategy such as
    # aerobee.MachineRoomNearby(...).
    allocate: str | Allocation
    # After so many retries a message becomes a dead letter. -1: after 16, and never for an ordered one.
    max_reconsume_times: int
    # A message that its handler holds longer is handed out again; 0: never.
    consume_timeout: float
    # How long an ordered queue stands still after a failure.
    suspend: float
    persist_interval: float
    pull_batch_size: int
    pull_threshold: int
    pull_threshold_bytes: int
    # The bytes of bodies that are held, over all queues.
    prefetch_bytes: int
    max_span: int
    on_assigned: OnQueues | None
    on_revoked: OnQueues | None
    # True traces to RMQ_SYS_TRACE_TOPIC; a text names another topic.
    trace: bool | str
    # Where a broadcast consumer saves its offsets. The default is ~/.rocketmq_offsets, as in Java.
    offset_dir: str | None
    # Called around every call of a handler.
    hooks: Sequence[ConsumeHook]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerConfig:
    """The settings of a push consumer, with RocketMQ's defaults (DefaultMQPushConsumer)."""

    mode: str = "queues"
    invisible: float = 60.0
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
    hooks: Sequence[ConsumeHook] = ()

    def check(self) -> None:
        """Raise TypeError or InvalidArgumentError for the first setting that is wrong."""
        require_types(self)
        if self.mode not in ("queues", "pop"):
            raise InvalidArgumentError(f"mode={self.mode!r}: queues and pop are known")
        if self.mode == "pop" and self.broadcast:
            raise InvalidArgumentError("broadcast=True and mode='pop' cannot go together: POP shares messages out")
        require_at_least("invisible", self.invisible, 1)
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


class SimpleConsumerOptions(ClientOptions, total=False):
    """The keyword arguments of a simple consumer, besides those of every client. Times are in seconds."""

    # Where a group begins that has no position yet: first or last.
    consume_from: str
    # Messages of a queue come in order: the next ones when all of those before are acknowledged.
    fifo: bool
    # Renew the time of a message until it is acknowledged, for `renew_max` at most.
    renew: bool
    renew_max: float
    # A message that came so often without an acknowledgement goes to the dead letters of the group.
    max_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConsumerConfig:
    """The settings of a simple consumer, with RocketMQ's defaults (the settings that its proxy gives)."""

    consume_from: str = "last"
    fifo: bool = False
    renew: bool = False
    renew_max: float = 3 * 3600.0
    max_attempts: int = 17

    def check(self) -> None:
        """Raise TypeError or InvalidArgumentError for the first setting that is wrong."""
        require_types(self)
        if self.consume_from not in ("first", "last"):
            raise InvalidArgumentError(f"consume_from={self.consume_from!r}: first and last are known")
        require_at_least("renew_max", self.renew_max, 0)
        require_at_least("max_attempts", self.max_attempts, 1)


class LitePullConsumerOptions(ClientOptions, total=False):
    """The keyword arguments of a pull consumer, besides those of every client. Times are in seconds."""

    # Messages count as done with the next poll. Save their offsets every persist_interval and at the end.
    auto_commit: bool
    consume_from: str
    consume_timestamp: datetime | int | None
    allocate: str | Allocation
    persist_interval: float
    pull_batch_size: int
    pull_threshold: int
    pull_threshold_bytes: int
    # The bytes of bodies that are held, over all queues.
    prefetch_bytes: int
    max_span: int
    on_assigned: OnQueues | None
    on_revoked: OnQueues | None
    # Every consumer gets every message. Its offsets are saved in a local file.
    broadcast: bool
    offset_dir: str | None
    # Called when messages are handed out.
    hooks: Sequence[ReceiveHook]


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConsumerConfig:
    """The settings of a pull consumer, with RocketMQ's defaults (DefaultLitePullConsumer)."""

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
    hooks: Sequence[ReceiveHook] = ()

    def check(self) -> None:
        """Raise TypeError or InvalidArgumentError for the first setting that is wrong."""
        require_types(self)
        require_at_least("persist_interval", self.persist_interval, 0.01)
        require_at_least("pull_batch_size", self.pull_batch_size, 1)
        require_at_least("pull_threshold", self.pull_threshold, 1)
        require_at_least("pull_threshold_bytes", self.pull_threshold_bytes, 1)
        require_at_least("prefetch_bytes", self.prefetch_bytes, 1)
        require_at_least("max_span", self.max_span, 1)
