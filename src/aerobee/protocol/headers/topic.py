"""Headers about topics: create, delete, look up, statistics."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


class CreateTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class CreateTopicListRequestHeader(RpcRequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST."""


class DeleteTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


class GetTopicConfigRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_TOPIC_CONFIG."""

    topic: str


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """GET_ALL_TOPIC_CONFIG."""

    # Callers before 5.5 send no header.
    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """Answer to GET_ALL_TOPIC_CONFIG."""

    total_topic_num: Int32 | None = None


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_TOPIC_STATS_INFO."""

    topic: str


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER."""

    group: str


class UpdateGroupForbiddenRequestHeader(TopicRequestHeader, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str
    topic: str
    readable: bool | None = None
