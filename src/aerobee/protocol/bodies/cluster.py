"""Brokers and clusters: addresses, statistics, members, HA state, key-value tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.model.route import BrokerData
from aerobee.protocol.bodies.base import Body


@dataclass(frozen=True, slots=True)
class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KVTable(Body):
    """GET_BROKER_RUNTIME_INFO, GET_KVLIST_BY_NAMESPACE, the answer of REGISTER_BROKER."""

    table: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerStatsItem(Body):
    """Sum, rate and mean over one period."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStatsData(Body):
    """VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


@dataclass(frozen=True, slots=True)
class BrokerMemberGroup(Body):
    """The brokers of one group."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetBrokerMemberGroupResponseBody(Body):
    """GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


@dataclass(frozen=True, slots=True)
class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@dataclass(frozen=True, slots=True)
class HAClientRuntimeInfo(Body):
    """The master as a slave sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool = False


@dataclass(frozen=True, slots=True)
class HARuntimeInfo(Body):
    """GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[HAConnectionRuntimeInfo, ...] = ()
    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()


@dataclass(frozen=True, slots=True)
class EpochEntry(Body):
    """An epoch of the log and its range of offsets."""

    epoch: int = 0
    start_offset: int = 0
    end_offset: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ReplicaIdentity(Body):
    """A replica of a broker group."""

    broker_name: str = ""
    broker_id: int | None = None
    broker_address: str | None = None
    alive: bool | None = None


@dataclass(frozen=True, slots=True)
class ReplicasInfo(Body):
    """A broker group's master and replicas."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    in_sync_replicas: tuple[ReplicaIdentity, ...] = ()
    not_in_sync_replicas: tuple[ReplicaIdentity, ...] = ()
