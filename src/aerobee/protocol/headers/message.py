"""Headers of requests that look up messages by id, key or queue position."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64, TopicQueueRequestHeader, TopicRequestHeader


class ViewMessageRequestHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID."""

    topic: str | None = None
    offset: Int64


class QueryMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_MESSAGE."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(Header, kw_only=True):
    """Answer to QUERY_MESSAGE."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class QueryConsumeQueueRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
