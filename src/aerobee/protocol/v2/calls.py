"""Requests and answers of apache.rocketmq.v2.MessagingService.

Numbers and types are those of rocketmq-proto 2.1.2. Enums are plain numbers (`enums`).
"""

from __future__ import annotations

from aerobee.protocol.v2.fields import boolean, int32, int64, message, sub, subs, text, texts
from aerobee.protocol.v2.values import (
    PbAssignment,
    PbDuration,
    PbEndpoints,
    PbFilterExpression,
    PbMessage,
    PbMessageQueue,
    PbOffsetOption,
    PbResource,
    PbSettings,
    PbStatus,
    PbTimestamp,
)


@message
class PbQueryRouteRequest:
    """QueryRouteRequest."""

    topic: PbResource | None = sub(1, PbResource)
    endpoints: PbEndpoints | None = sub(2, PbEndpoints)


@message
class PbQueryRouteResponse:
    """QueryRouteResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    message_queues: list[PbMessageQueue] = subs(2, PbMessageQueue)


@message
class PbSendMessageRequest:
    """SendMessageRequest."""

    messages: list[PbMessage] = subs(1, PbMessage)


@message
class PbSendResultEntry:
    """SendResultEntry."""

    status: PbStatus | None = sub(1, PbStatus)
    message_id: str = text(2)
    transaction_id: str = text(3)
    offset: int = int64(4)
    recall_handle: str = text(5)


@message
class PbSendMessageResponse:
    """SendMessageResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    entries: list[PbSendResultEntry] = subs(2, PbSendResultEntry)


@message
class PbQueryAssignmentRequest:
    """QueryAssignmentRequest."""

    topic: PbResource | None = sub(1, PbResource)
    group: PbResource | None = sub(2, PbResource)
    endpoints: PbEndpoints | None = sub(3, PbEndpoints)


@message
class PbQueryAssignmentResponse:
    """QueryAssignmentResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    assignments: list[PbAssignment] = subs(2, PbAssignment)


@message
class PbReceiveMessageRequest:
    """ReceiveMessageRequest."""

    group: PbResource | None = sub(1, PbResource)
    message_queue: PbMessageQueue | None = sub(2, PbMessageQueue)
    filter_expression: PbFilterExpression | None = sub(3, PbFilterExpression)
    batch_size: int = int32(4)
    invisible_duration: PbDuration | None = sub(5, PbDuration)
    auto_renew: bool = boolean(6)
    long_polling_timeout: PbDuration | None = sub(7, PbDuration)
    attempt_id: str | None = text(8, optional=True)


@message
class PbReceiveMessageResponse:
    """ReceiveMessageResponse."""

    status: PbStatus | None = sub(1, PbStatus, oneof="content")
    message: PbMessage | None = sub(2, PbMessage, oneof="content")
    delivery_timestamp: PbTimestamp | None = sub(3, PbTimestamp, oneof="content")


@message
class PbAckMessageEntry:
    """AckMessageEntry."""

    message_id: str = text(1)
    receipt_handle: str = text(2)
    lite_topic: str | None = text(3, optional=True)


@message
class PbAckMessageRequest:
    """AckMessageRequest."""

    group: PbResource | None = sub(1, PbResource)
    topic: PbResource | None = sub(2, PbResource)
    entries: list[PbAckMessageEntry] = subs(3, PbAckMessageEntry)


@message
class PbAckMessageResultEntry:
    """AckMessageResultEntry."""

    message_id: str = text(1)
    receipt_handle: str = text(2)
    status: PbStatus | None = sub(3, PbStatus)


@message
class PbAckMessageResponse:
    """AckMessageResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    entries: list[PbAckMessageResultEntry] = subs(2, PbAckMessageResultEntry)


@message
class PbForwardMessageToDeadLetterQueueRequest:
    """ForwardMessageToDeadLetterQueueRequest."""

    group: PbResource | None = sub(1, PbResource)
    topic: PbResource | None = sub(2, PbResource)
    receipt_handle: str = text(3)
    message_id: str = text(4)
    delivery_attempt: int = int32(5)
    max_delivery_attempts: int = int32(6)
    lite_topic: str | None = text(7, optional=True)


@message
class PbForwardMessageToDeadLetterQueueResponse:
    """ForwardMessageToDeadLetterQueueResponse."""

    status: PbStatus | None = sub(1, PbStatus)


@message
class PbHeartbeatRequest:
    """HeartbeatRequest."""

    group: PbResource | None = sub(1, PbResource)
    client_type: int = int32(2)


@message
class PbHeartbeatResponse:
    """HeartbeatResponse."""

    status: PbStatus | None = sub(1, PbStatus)


@message
class PbEndTransactionRequest:
    """EndTransactionRequest."""

    topic: PbResource | None = sub(1, PbResource)
    message_id: str = text(2)
    transaction_id: str = text(3)
    resolution: int = int32(4)
    source: int = int32(5)
    trace_context: str = text(6)


@message
class PbEndTransactionResponse:
    """EndTransactionResponse."""

    status: PbStatus | None = sub(1, PbStatus)


@message
class PbPrintThreadStackTraceCommand:
    """PrintThreadStackTraceCommand."""

    nonce: str = text(1)


@message
class PbReconnectEndpointsCommand:
    """ReconnectEndpointsCommand."""

    nonce: str = text(1)


@message
class PbThreadStackTrace:
    """ThreadStackTrace."""

    nonce: str = text(1)
    thread_stack_trace: str | None = text(2, optional=True)


@message
class PbVerifyMessageCommand:
    """VerifyMessageCommand."""

    nonce: str = text(1)
    message: PbMessage | None = sub(2, PbMessage)


@message
class PbVerifyMessageResult:
    """VerifyMessageResult."""

    nonce: str = text(1)


@message
class PbRecoverOrphanedTransactionCommand:
    """RecoverOrphanedTransactionCommand."""

    message: PbMessage | None = sub(1, PbMessage)
    transaction_id: str = text(2)


@message
class PbNotifyUnsubscribeLiteCommand:
    """NotifyUnsubscribeLiteCommand."""

    lite_topic: str = text(1)


@message
class PbTelemetryCommand:
    """TelemetryCommand."""

    status: PbStatus | None = sub(1, PbStatus)
    settings: PbSettings | None = sub(2, PbSettings, oneof="command")
    thread_stack_trace: PbThreadStackTrace | None = sub(3, PbThreadStackTrace, oneof="command")
    verify_message_result: PbVerifyMessageResult | None = sub(4, PbVerifyMessageResult, oneof="command")
    recover_orphaned_transaction_command: PbRecoverOrphanedTransactionCommand | None = sub(
        5, PbRecoverOrphanedTransactionCommand, oneof="command"
    )
    print_thread_stack_trace_command: PbPrintThreadStackTraceCommand | None = sub(
        6, PbPrintThreadStackTraceCommand, oneof="command"
    )
    verify_message_command: PbVerifyMessageCommand | None = sub(7, PbVerifyMessageCommand, oneof="command")
    reconnect_endpoints_command: PbReconnectEndpointsCommand | None = sub(
        8, PbReconnectEndpointsCommand, oneof="command"
    )
    notify_unsubscribe_lite_command: PbNotifyUnsubscribeLiteCommand | None = sub(
        9, PbNotifyUnsubscribeLiteCommand, oneof="command"
    )


@message
class PbNotifyClientTerminationRequest:
    """NotifyClientTerminationRequest."""

    group: PbResource | None = sub(1, PbResource)


@message
class PbNotifyClientTerminationResponse:
    """NotifyClientTerminationResponse."""

    status: PbStatus | None = sub(1, PbStatus)


@message
class PbChangeInvisibleDurationRequest:
    """ChangeInvisibleDurationRequest."""

    group: PbResource | None = sub(1, PbResource)
    topic: PbResource | None = sub(2, PbResource)
    receipt_handle: str = text(3)
    invisible_duration: PbDuration | None = sub(4, PbDuration)
    message_id: str = text(5)
    lite_topic: str | None = text(6, optional=True)
    suspend: bool | None = boolean(7, optional=True)


@message
class PbChangeInvisibleDurationResponse:
    """ChangeInvisibleDurationResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    receipt_handle: str = text(2)


@message
class PbPullMessageRequest:
    """PullMessageRequest."""

    group: PbResource | None = sub(1, PbResource)
    message_queue: PbMessageQueue | None = sub(2, PbMessageQueue)
    offset: int = int64(3)
    batch_size: int = int32(4)
    filter_expression: PbFilterExpression | None = sub(5, PbFilterExpression)
    long_polling_timeout: PbDuration | None = sub(6, PbDuration)


@message
class PbPullMessageResponse:
    """PullMessageResponse."""

    status: PbStatus | None = sub(1, PbStatus, oneof="content")
    message: PbMessage | None = sub(2, PbMessage, oneof="content")
    next_offset: int | None = int64(3, oneof="content")


@message
class PbUpdateOffsetRequest:
    """UpdateOffsetRequest."""

    group: PbResource | None = sub(1, PbResource)
    message_queue: PbMessageQueue | None = sub(2, PbMessageQueue)
    offset: int = int64(3)


@message
class PbUpdateOffsetResponse:
    """UpdateOffsetResponse."""

    status: PbStatus | None = sub(1, PbStatus)


@message
class PbGetOffsetRequest:
    """GetOffsetRequest."""

    group: PbResource | None = sub(1, PbResource)
    message_queue: PbMessageQueue | None = sub(2, PbMessageQueue)


@message
class PbGetOffsetResponse:
    """GetOffsetResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    offset: int = int64(2)


@message
class PbQueryOffsetRequest:
    """QueryOffsetRequest."""

    message_queue: PbMessageQueue | None = sub(1, PbMessageQueue)
    query_offset_policy: int = int32(2)
    timestamp: PbTimestamp | None = sub(3, PbTimestamp)


@message
class PbQueryOffsetResponse:
    """QueryOffsetResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    offset: int = int64(2)


@message
class PbRecallMessageRequest:
    """RecallMessageRequest."""

    topic: PbResource | None = sub(1, PbResource)
    recall_handle: str = text(2)


@message
class PbRecallMessageResponse:
    """RecallMessageResponse."""

    status: PbStatus | None = sub(1, PbStatus)
    message_id: str = text(2)


@message
class PbSyncLiteSubscriptionRequest:
    """SyncLiteSubscriptionRequest."""

    action: int = int32(1)
    topic: PbResource | None = sub(2, PbResource)
    group: PbResource | None = sub(3, PbResource)
    lite_topic_set: list[str] = texts(4)
    version: int | None = int64(5, optional=True)
    offset_option: PbOffsetOption | None = sub(6, PbOffsetOption)


@message
class PbSyncLiteSubscriptionResponse:
    """SyncLiteSubscriptionResponse."""

    status: PbStatus | None = sub(1, PbStatus)
