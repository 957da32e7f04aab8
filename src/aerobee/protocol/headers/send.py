"""Headers of sending: requests 10, 310, 320, 324-326, 36, 370 and their answers."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field, json

from aerobee.hot.wire.send import SEND_V2_NAMES
from aerobee.protocol.headers.base import (
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
)


class SendMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """SEND_MESSAGE."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageRequestHeaderV2(TopicQueueRequestHeader, kw_only=True, rename=SEND_V2_NAMES):
    """SEND_MESSAGE_V2."""

    declared_order: ClassVar[bool] = True

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = None


class SendExt(Struct, kw_only=True, gc=False, rename=SEND_V2_NAMES):
    """The ext fields of SEND_MESSAGE_V2 for one typed decode. Absent fields have the values that SendFields wants."""

    producer_group: str
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 0
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 = -1
    batch: bool = False
    broker_name: str = ""


class SendEnvelope(Struct, gc=False):
    """The JSON header of a send."""

    code: int
    ext: SendExt = field(name="extFields")
    flag: int = 0
    opaque: int = 0


# This module is never compiled: msgspec takes the bounds of a field from its annotation, which a compiled class loses.
decode_send_envelope = json.Decoder(SendEnvelope, strict=False).decode


class SendMessageResponseHeader(Header, kw_only=True):
    """Answer to SEND_MESSAGE."""

    declared_order: ClassVar[bool] = True

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ReplyMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


class ConsumerSendMsgBackRequestHeader(RpcRequestHeader, kw_only=True):
    """CONSUMER_SEND_MSG_BACK."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class RecallMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """RECALL_MESSAGE."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """Answer to RECALL_MESSAGE."""

    msg_id: str
