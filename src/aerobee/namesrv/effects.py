"""What the route table is told, and what it asks its driver to do. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.model.dataversion import DataVersion
from aerobee.model.topic import TopicConfig

# RocketMQ: RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME. A broker in slave-acting-master mode names
# 10 s instead (BrokerConfig.brokerNotActiveTimeoutMillis) and heartbeats every second.
DEFAULT_HEARTBEAT_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One REGISTER_BROKER: who the broker is, and every topic it has."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    channel_id: int
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    mappings: Mapping[str, Mapping[str, Any]]  # static topics: TopicQueueMappingInfo as Apache's object
    heartbeat_timeout_ms: int | None = None
    # None is a broker from before the field existed: its slaves never stand in for a master.
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    # None leaves what is known, an empty tuple forgets it.
    filter_servers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Departure:
    """A broker said goodbye, or is found to be gone."""

    cluster: str
    broker_name: str
    broker_addr: str


@dataclass(frozen=True, slots=True)
class BrokerJoined:
    """A broker's address is in the table that was not."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str


@dataclass(frozen=True, slots=True)
class BrokerLeft:
    """A broker's address is no longer in the table."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    reason: str


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """Nothing has come over this connection for too long."""

    channel_id: int


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerId:
    """Send NOTIFY_MIN_BROKER_ID_CHANGE, one way, to each address."""

    addresses: tuple[str, ...]
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None


Effect = BrokerJoined | BrokerLeft | CloseChannel | NotifyMinBrokerId


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a registration. A slave learns its master's addresses."""

    accepted: bool
    ha_server_addr: str | None = None
    master_addr: str | None = None
    effects: tuple[Effect, ...] = ()
