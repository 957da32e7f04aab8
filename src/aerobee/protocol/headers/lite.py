"""Headers of lite topics (200070-200079)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64, RpcRequestHeader


class PopLiteMessageRequestHeader(RpcRequestHeader, kw_only=True):
    """POP_LITE_MESSAGE."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    attempt_id: str | None = None


class PopLiteMessageResponseHeader(Header, kw_only=True):
    """Answer to POP_LITE_MESSAGE."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class LiteSubscriptionCtlRequestHeader(RpcRequestHeader, kw_only=True):
    """LITE_SUBSCRIPTION_CTL."""


class NotifyUnsubscribeLiteRequestHeader(RpcRequestHeader, kw_only=True):
    """NOTIFY_UNSUBSCRIBE_LITE."""

    lite_topic: str
    consumer_group: str
    client_id: str


class GetParentTopicInfoRequestHeader(Header, kw_only=True):
    """GET_PARENT_TOPIC_INFO."""

    topic: str


class GetLiteTopicInfoRequestHeader(Header, kw_only=True):
    """GET_LITE_TOPIC_INFO."""

    parent_topic: str | None = None
    lite_topic: str | None = None


class GetLiteClientInfoRequestHeader(Header, kw_only=True):
    """GET_LITE_CLIENT_INFO."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int32 = 1000


class GetLiteGroupInfoRequestHeader(Header, kw_only=True):
    """GET_LITE_GROUP_INFO."""

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 0


class TriggerLiteDispatchRequestHeader(Header, kw_only=True):
    """TRIGGER_LITE_DISPATCH."""

    group: str
    client_id: str | None = None
