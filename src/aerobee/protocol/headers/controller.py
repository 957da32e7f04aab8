"""Headers of the controller (1001-1013)."""

from __future__ import annotations

from typing import ClassVar

from aerobee.protocol.headers.base import Header, Int32, Int64


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 = 0


class ElectMasterRequestHeader(Header, kw_only=True):
    """CONTROLLER_ELECT_MASTER."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 = 0


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str | None = None


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """CLEAN_BROKER_DATA."""

    java_package: ClassVar[str] = "protocol.header.controller.admin"

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """CONTROLLER_APPLY_BROKER_ID."""

    java_package: ClassVar[str] = "protocol.header.controller.register"

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """CONTROLLER_GET_NEXT_BROKER_ID."""

    java_package: ClassVar[str] = "protocol.header.controller.register"

    cluster_name: str | None = None
    broker_name: str | None = None


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """CONTROLLER_REGISTER_BROKER."""

    java_package: ClassVar[str] = "protocol.header.controller.register"

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 = 0
