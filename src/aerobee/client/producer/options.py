"""The keyword arguments of clients, declared once for the asyncio and the synchronous face."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Protocol, TypedDict

from aerobee.client.core.config import ClientConfig
from aerobee.client.core.keywords import require_at_least, require_seconds, require_types, unexpected
from aerobee.client.core.receipt import SendReceipt
from aerobee.client.producer.transactions import OnCheck
from aerobee.model.message import Message


class ClientOptions(TypedDict, total=False):
    """What every client may be told."""

    # A tenant's prefix of topics and groups, added on the wire and taken off again.
    namespace: str
    # Both or none; default $AEROBEE_ACCESS_KEY and $AEROBEE_SECRET_KEY.
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    # True: by the environment's files, or whom the system trusts; default $AEROBEE_TLS and its like.
    tls: ssl.SSLContext | bool | None
    instance_name: str | None
    client_ip: str | None
    unit_name: str | None
    vip_channel: bool
    # JSON, or ROCKETMQ for the binary header.
    serialize: str
    request_timeout_ms: int
    connect_timeout_ms: int
    heartbeat_interval_ms: int
    route_interval_ms: int


@dataclass(slots=True)
class SendContext:
    """What a hook sees. `receipt` or `error` is set when it is called the second time."""

    message: Message
    group: str
    receipt: SendReceipt | None = None
    error: BaseException | None = None


class SendHook(Protocol):
    """Called around every send. What `before_send` raises refuses the send; what `after_send` raises is logged."""

    def before_send(self, context: SendContext) -> None: ...
    def after_send(self, context: SendContext) -> None: ...


class ProducerOptions(ClientOptions, total=False):
    """What a producer may be told besides."""

    group: str
    # Asked by the broker about half messages whose transaction was not ended.
    on_check: OnCheck | None
    # Seconds, over all tries of one send.
    timeout: float
    # Seconds of one try where another may follow.
    attempt_timeout: float | None
    retries: int
    retry_not_durable: bool
    # A message sent again after a lost answer is stored once; needs Aerobee's broker.
    idempotent: bool
    avoid_slow_brokers: bool
    max_in_flight: int
    max_message_size: int
    # zlib, lz4, zstd; None sends every body as it is.
    compression: str | None
    compress_over: int
    compress_level: int
    # True for RMQ_SYS_TRACE_TOPIC, or a topic's name.
    trace: bool | str
    hooks: Sequence[SendHook]
    default_topic_queue_nums: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """ProducerOptions with RocketMQ's defaults (DefaultMQProducer)."""

    group: str = "DEFAULT_PRODUCER"
    on_check: OnCheck | None = None
    timeout: float = 3.0
    attempt_timeout: float | None = None
    retries: int = 2
    retry_not_durable: bool = False
    idempotent: bool = False
    avoid_slow_brokers: bool = False
    max_in_flight: int = 1000
    max_message_size: int = 4 << 20
    compression: str | None = "zlib"
    compress_over: int = 4096
    compress_level: int = 5
    trace: bool | str = False
    hooks: Sequence[SendHook] = ()
    default_topic_queue_nums: int = 4

    def check(self) -> None:
        """TypeError or InvalidArgumentError names what is wrong."""
        require_types(self)
        require_seconds("timeout", self.timeout)
        if self.attempt_timeout is not None:
            require_seconds("attempt_timeout", self.attempt_timeout)
        require_at_least("retries", self.retries, 0)
        require_at_least("max_in_flight", self.max_in_flight, 1)
        require_at_least("max_message_size", self.max_message_size, 1)
        require_at_least("compress_over", self.compress_over, 0)
        require_at_least("default_topic_queue_nums", self.default_topic_queue_nums, 1)


def split_options(call: str, options: Mapping[str, Any], own: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(those that are fields of `own`, those of every client). A name of neither is a TypeError, as for any
    function."""
    mine = {one.name for one in fields(own)}
    shared = ClientOptions.__annotations__
    unknown = [name for name in options if name not in mine and name not in shared]
    if unknown:
        raise unexpected(call, unknown, (*sorted(mine), *shared))
    return (
        {name: value for name, value in options.items() if name in mine},
        {name: value for name, value in options.items() if name not in mine},
    )


def shown_defaults(own: type[Any]) -> dict[str, object]:
    """Of a client's options, for help()."""
    return {one.name: one.default for kind in (ClientConfig, own) for one in fields(kind) if one.default is not MISSING}
