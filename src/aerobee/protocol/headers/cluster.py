"""Headers between brokers and of broker administration."""

from __future__ import annotations

from typing import Final

from aerobee.protocol.headers.base import Header, Int32, Int64

# Ext fields of ours (docs/formats/private.md): of GET_BROKER_CONFIG, asks for the sources of settings and holds them;
# of UPDATE_BROKER_CONFIG, names settings whose change over the wire is taken back.
SOURCES_FIELD: Final = "__AEROBEE_SOURCES"
UNSET_FIELD: Final = "__AEROBEE_UNSET"


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """Answer of the controller."""

    version: str


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class AddBrokerRequestHeader(Header, kw_only=True):
    """ADD_BROKER."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header, kw_only=True):
    """REMOVE_BROKER."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ExchangeHAInfoRequestHeader(Header, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(Header, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET."""

    master_flush_offset: Int64


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class CheckRocksdbCqWriteProgressRequestHeader(Header, kw_only=True):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS."""

    topic: str
    check_store_time: Int64 = 0


class ExportRocksDBConfigToJsonRequestHeader(Header, kw_only=True):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON."""

    config_type: str
