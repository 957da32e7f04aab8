"""The keyword arguments of producers, declared once for the asyncio and the synchronous client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.client.core import ClientOptions, SendHook, require_at_least, require_seconds, require_types
from aerobee.client.producer.transactions import OnCheck


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of a producer, besides those of every client."""

    group: str
    # Called when a broker asks about a half message whose transaction was not ended.
    on_check: OnCheck | None
    # Seconds for all tries of one send together.
    timeout: float
    # Seconds for one try, where another one may follow.
    attempt_timeout: float | None
    retries: int
    retry_not_durable: bool
    # A message that is sent again after a lost answer is stored once. This needs Aerobee's broker.
    idempotent: bool
    avoid_slow_brokers: bool
    max_in_flight: int
    # The bytes of messages that `send_nowait` lets wait for queues without a master.
    max_waiting_bytes: int
    max_message_size: int
    # zlib, lz4 or zstd. None sends every body as it is.
    compression: str | None
    compress_over: int
    compress_level: int
    # True traces to RMQ_SYS_TRACE_TOPIC; a text names another topic.
    trace: bool | str
    hooks: Sequence[SendHook]
    default_topic_queue_nums: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer, with RocketMQ's defaults (DefaultMQProducer)."""

    group: str = "DEFAULT_PRODUCER"
    on_check: OnCheck | None = None
    timeout: float = 3.0
    attempt_timeout: float | None = None
    retries: int = 2
    retry_not_durable: bool = False
    idempotent: bool = False
    avoid_slow_brokers: bool = False
    max_in_flight: int = 1000
    max_waiting_bytes: int = 64 << 20
    max_message_size: int = 4 << 20
    compression: str | None = "zlib"
    compress_over: int = 4096
    compress_level: int = 5
    trace: bool | str = False
    hooks: Sequence[SendHook] = ()
    default_topic_queue_nums: int = 4

    def check(self) -> None:
        """Raise TypeError or InvalidArgumentError for the first setting that is wrong."""
        require_types(self)
        require_seconds("timeout", self.timeout)
        if self.attempt_timeout is not None:
            require_seconds("attempt_timeout", self.attempt_timeout)
        require_at_least("retries", self.retries, 0)
        require_at_least("max_in_flight", self.max_in_flight, 1)
        require_at_least("max_waiting_bytes", self.max_waiting_bytes, 1)
        require_at_least("max_message_size", self.max_message_size, 1)
        require_at_least("compress_over", self.compress_over, 0)
        require_at_least("default_topic_queue_nums", self.default_topic_queue_nums, 1)
