"""Headers of the name server: routes, registration, permissions."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64, TopicRequestHeader


class GetRouteInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """Answer to REGISTER_BROKER."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, kw_only=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool


class RegisterTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """Answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """Answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32
