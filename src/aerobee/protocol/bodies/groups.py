"""Groups and their clients: settings, connections, subscriptions, request mode, assignment."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.model.dataversion import INITIAL, DataVersion
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.base import Body, wire
from aerobee.protocol.bodies.heartbeat import SubscriptionData


@dataclass(frozen=True, slots=True)
class SubscriptionGroupWrapper(Body):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG and `config/subscriptionGroup.json`."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = INITIAL


@dataclass(frozen=True, slots=True)
class SubscriptionGroupList(Body):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupForbidden(Body):
    """UPDATE_AND_GET_GROUP_FORBIDDEN."""

    topic: str = ""
    group: str = ""
    readable: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupList(Body):
    """Names of groups."""

    group_list: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerList(Body):
    """GET_CONSUMER_LIST_BY_GROUP: client ids. RocketMQ: GetConsumerListByGroupResponseBody."""

    consumer_id_list: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientConnection(Body):
    """A client's connection. RocketMQ: body.Connection."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerConnection(Body):
    """GET_CONSUMER_CONNECTION_LIST."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerConnection(Body):
    """GET_PRODUCER_CONNECTION_LIST."""

    connection_set: tuple[ClientConnection, ...] = ()


@dataclass(frozen=True, slots=True)
class ProducerInfo(Body):
    """A producer's client."""

    client_id: str = ""
    remote_ip: str = wire("remoteIP", "")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ProducerTableInfo(Body):
    """GET_ALL_PRODUCER_INFO: group -> clients."""

    data: dict[str, tuple[ProducerInfo, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuerySubscriptionResponseBody(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class SetMessageRequestModeRequestBody(Body):
    """SET_MESSAGE_REQUEST_MODE."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: int = 0


@dataclass(frozen=True, slots=True)
class QueryAssignmentRequestBody(Body):
    """QUERY_ASSIGNMENT."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = None
    message_model: str | None = None


@dataclass(frozen=True, slots=True)
class MessageQueueAssignment(Body):
    """A queue that is assigned to a client, and the mode in which the client reads it."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class QueryAssignmentResponseBody(Body):
    """Answer to QUERY_ASSIGNMENT."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] = ()
