"""What the calls of apache.rocketmq.v2 are made of: messages, queues, settings.

Numbers and types are those of rocketmq-proto 2.1.2. Enums are plain numbers (`enums`).
"""

from __future__ import annotations

from aerobee.protocol.v2.fields import boolean, float32, int32, int64, message, raw, sub, subs, text, text_map, texts


@message
class PbTimestamp:
    """google.protobuf.Timestamp."""

    seconds: int = int64(1)
    nanos: int = int32(2)


@message
class PbDuration:
    """google.protobuf.Duration."""

    seconds: int = int64(1)
    nanos: int = int32(2)


@message
class PbFilterExpression:
    """FilterExpression."""

    type: int = int32(1)
    expression: str = text(2)


@message
class PbExponentialBackoff:
    """ExponentialBackoff."""

    initial: PbDuration | None = sub(1, PbDuration)
    max: PbDuration | None = sub(2, PbDuration)
    multiplier: float = float32(3)


@message
class PbCustomizedBackoff:
    """CustomizedBackoff."""

    next: list[PbDuration] = subs(1, PbDuration)


@message
class PbRetryPolicy:
    """RetryPolicy."""

    max_attempts: int = int32(1)
    exponential_backoff: PbExponentialBackoff | None = sub(2, PbExponentialBackoff, oneof="strategy")
    customized_backoff: PbCustomizedBackoff | None = sub(3, PbCustomizedBackoff, oneof="strategy")


@message
class PbResource:
    """Resource."""

    resource_namespace: str = text(1)
    name: str = text(2)


@message
class PbSubscriptionEntry:
    """SubscriptionEntry."""

    topic: PbResource | None = sub(1, PbResource)
    expression: PbFilterExpression | None = sub(2, PbFilterExpression)


@message
class PbAddress:
    """Address."""

    host: str = text(1)
    port: int = int32(2)


@message
class PbEndpoints:
    """Endpoints."""

    scheme: int = int32(1)
    addresses: list[PbAddress] = subs(2, PbAddress)


@message
class PbBroker:
    """Broker."""

    name: str = text(1)
    id: int = int32(2)
    endpoints: PbEndpoints | None = sub(3, PbEndpoints)


@message
class PbMessageQueue:
    """MessageQueue."""

    topic: PbResource | None = sub(1, PbResource)
    id: int = int32(2)
    permission: int = int32(3)
    broker: PbBroker | None = sub(4, PbBroker)
    accept_message_types: list[int] = int32(5, many=True)


@message
class PbDigest:
    """Digest."""

    type: int = int32(1)
    checksum: str = text(2)


@message
class PbDeadLetterQueue:
    """DeadLetterQueue."""

    topic: str = text(1)
    message_id: str = text(2)


@message
class PbSystemProperties:
    """SystemProperties."""

    tag: str | None = text(1, optional=True)
    keys: list[str] = texts(2)
    message_id: str = text(3)
    body_digest: PbDigest | None = sub(4, PbDigest)
    body_encoding: int = int32(5)
    message_type: int = int32(6)
    born_timestamp: PbTimestamp | None = sub(7, PbTimestamp)
    born_host: str = text(8)
    store_timestamp: PbTimestamp | None = sub(9, PbTimestamp)
    store_host: str = text(10)
    delivery_timestamp: PbTimestamp | None = sub(11, PbTimestamp)
    receipt_handle: str | None = text(12, optional=True)
    queue_id: int = int32(13)
    queue_offset: int | None = int64(14, optional=True)
    invisible_duration: PbDuration | None = sub(15, PbDuration)
    delivery_attempt: int | None = int32(16, optional=True)
    message_group: str | None = text(17, optional=True)
    trace_context: str | None = text(18, optional=True)
    orphaned_transaction_recovery_duration: PbDuration | None = sub(19, PbDuration)
    dead_letter_queue: PbDeadLetterQueue | None = sub(20, PbDeadLetterQueue)
    lite_topic: str | None = text(21, optional=True)
    priority: int | None = int32(22, optional=True)


@message
class PbMessage:
    """Message."""

    topic: PbResource | None = sub(1, PbResource)
    user_properties: dict[str, str] = text_map(2)
    system_properties: PbSystemProperties | None = sub(3, PbSystemProperties)
    body: bytes = raw(4)


@message
class PbAssignment:
    """Assignment."""

    message_queue: PbMessageQueue | None = sub(1, PbMessageQueue)


@message
class PbStatus:
    """Status."""

    code: int = int32(1)
    message: str = text(2)


@message
class PbUA:
    """UA."""

    language: int = int32(1)
    version: str = text(2)
    platform: str = text(3)
    hostname: str = text(4)


@message
class PbPublishing:
    """Publishing."""

    topics: list[PbResource] = subs(1, PbResource)
    max_body_size: int = int32(2)
    validate_message_type: bool = boolean(3)


@message
class PbSubscription:
    """Subscription."""

    group: PbResource | None = sub(1, PbResource)
    subscriptions: list[PbSubscriptionEntry] = subs(2, PbSubscriptionEntry)
    fifo: bool | None = boolean(3, optional=True)
    receive_batch_size: int | None = int32(4, optional=True)
    long_polling_timeout: PbDuration | None = sub(5, PbDuration)
    lite_subscription_quota: int | None = int32(6, optional=True)
    max_lite_topic_size: int | None = int32(7, optional=True)


@message
class PbMetric:
    """Metric."""

    on: bool = boolean(1)
    endpoints: PbEndpoints | None = sub(2, PbEndpoints)


@message
class PbSettings:
    """Settings."""

    client_type: int | None = int32(1, optional=True)
    access_point: PbEndpoints | None = sub(2, PbEndpoints)
    backoff_policy: PbRetryPolicy | None = sub(3, PbRetryPolicy)
    request_timeout: PbDuration | None = sub(4, PbDuration)
    publishing: PbPublishing | None = sub(5, PbPublishing, oneof="pub_sub")
    subscription: PbSubscription | None = sub(6, PbSubscription, oneof="pub_sub")
    user_agent: PbUA | None = sub(7, PbUA)
    metric: PbMetric | None = sub(8, PbMetric)


@message
class PbOffsetOption:
    """OffsetOption."""

    policy: int | None = int32(1, oneof="offset_type")
    offset: int | None = int64(2, oneof="offset_type")
    tail_n: int | None = int64(3, oneof="offset_type")
    timestamp: int | None = int64(4, oneof="offset_type")
