"""Headers about consumer and producer groups and their clients."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


class GetConsumerListByGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class GetAllProducerInfoRequestHeader(Header, kw_only=True):
    """GET_ALL_PRODUCER_INFO."""


class GetConsumerRunningInfoRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class GetConsumeStatsRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_CONSUME_STATS."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool = False


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    # Callers before 5.5 send no header.
    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    total_group_num: Int32


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool = False


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class HeartbeatRequestHeader(RpcRequestHeader, kw_only=True):
    """HEART_BEAT."""


class UnregisterClientRequestHeader(RpcRequestHeader, kw_only=True):
    """UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
