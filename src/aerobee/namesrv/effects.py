"""The events that the route table takes, and the effects that it asks its driver to perform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.model.dataversion import DataVersion
from aerobee.model.topic import TopicConfig

# RocketMQ: RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME. A broker in slave-acting-master mode asks for 10 s
# (BrokerConfig.brokerNotActiveTimeoutMillis) and sends a heartbeat every second.
DEFAULT_HEARTBEAT_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The content of REGISTER_BROKER: the identity of a broker and its topics."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    channel_id: int
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    mappings: Mapping[str, Mapping[str, Any]]  # of static topics: TopicQueueMappingInfo as JSON
    heartbeat_timeout_ms: int | None = None
    # None means a broker of a version without this field. Its slaves never act as a master.
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    # None keeps the known filter servers. An empty tuple removes them.
    filter_servers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Departure:
    """A broker that has unregistered or is gone."""

    cluster: str
    broker_name: str
    broker_addr: str


@dataclass(frozen=True, slots=True)
class BrokerJoined:
    """The address of a broker was added to the table."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str


@dataclass(frozen=True, slots=True)
class BrokerLeft:
    """The address of a broker was removed from the table."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    reason: str


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """A connection that was silent for too long must be closed."""

    channel_id: int


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerId:
    """NOTIFY_MIN_BROKER_ID_CHANGE must be sent one-way to each address."""

    addresses: tuple[str, ...]
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None


Effect = BrokerJoined | BrokerLeft | CloseChannel | NotifyMinBrokerId


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a registration. It tells a slave the addresses of its master."""

    accepted: bool
    ha_server_addr: str | None = None
    master_addr: str | None = None
    effects: tuple[Effect, ...] = ()
