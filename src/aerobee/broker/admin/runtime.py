"""Requests about the broker itself: runtime info, statistics, replication, deleting. RocketMQ: AdminBrokerProcessor."""

from __future__ import annotations

from aerobee.broker.admin.retention import RetentionDriver
from aerobee.broker.admin.runtimeinfo import RuntimeInfo
from aerobee.broker.state import BrokerState
from aerobee.broker.stats import StatsSnapshot
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.bodies.cluster import BrokerStatsData, BrokerStatsItem, KVTable
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.cluster import ViewBrokerStatsDataRequestHeader
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("broker.admin")


class RuntimeAdmin:
    """Requests about the broker itself."""

    def __init__(self, state: BrokerState, info: RuntimeInfo, retention: RetentionDriver) -> None:
        self._state = state
        self._info = info
        self._retention = retention
        self._warn = RateLimitedLog(_log, state.clock)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
        }

    def runtime_info(self, channel: Channel, command: Command) -> Command:
        return response(command, body=KVTable(self._info.table()).encode())

    def stats(self, channel: Channel, command: Command) -> Command:
        header = decode_header(ViewBrokerStatsDataRequestHeader, command)
        view = self._state.stats.view(header.stats_name, header.stats_key)
        if view is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        body = BrokerStatsData(_item(view.minute), _item(view.hour), _item(view.day))
        return response(command, body=body.encode())

    def ha_status(self, channel: Channel, command: Command) -> Command:
        """Show the slaves of a master, or the master of a slave. RocketMQ: DefaultHAService.getRuntimeInfo."""
        return response(command, body=self._info.ha_status().encode())

    def delete_expired(self, channel: Channel, command: Command) -> Command:
        """Delete expired segments whatever the hour, in the rounds that follow."""
        self._retention.delete_by_hand()
        self._warn.warning("by hand", "an operator asked to delete expired segments now", peer=channel.remote_address)
        return response(command)


def _item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.avgpt)
