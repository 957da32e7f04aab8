"""Headers about offsets: of queues, of consumers, by time, reset and clone."""

from __future__ import annotations

from aerobee.protocol.headers.base import (
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
)


class GetMaxOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """GET_MAX_OFFSET."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """Answer to GET_MAX_OFFSET."""

    offset: Int64


class GetMinOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """GET_MIN_OFFSET."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """Answer to GET_MIN_OFFSET."""

    offset: Int64


class SearchOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    lite_topic: str | None = None
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header, kw_only=True):
    """Answer to SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """Answer to GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64


class QueryConsumerOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """Answer to QUERY_CONSUMER_OFFSET."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class ResetOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET."""

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool = False


class GetConsumerStatusRequestHeader(TopicRequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    topic: str
    group: str
    client_addr: str | None = None


class CloneGroupOffsetRequestHeader(RpcRequestHeader, kw_only=True):
    """CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET."""

    filter_groups: str | None = None
    compare_group: str
    topic: str
