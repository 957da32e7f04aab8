"""Request codes whose feature Aerobee does not have, answered with the reason.

docs/compat.md lists them with the same words, and docs/decisions/0003-what-of-rocketmq-we-refuse.md explains them.
"""

from __future__ import annotations

from typing import Final

from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response

_ROCKSDB: Final = "there is no RocksDB store"
_CONTAINER: Final = "there is no broker container: start one process for each broker"
_CONTROLLER: Final = "a broker joins its group through the coordination store, not through a controller"
_COLD: Final = "there is no flow control of cold reads: a thread of their own serves them"

REFUSED_CODES: Final[dict[int, str]] = {
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _ROCKSDB,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: _ROCKSDB,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "a broker serves no static topics: create a plain topic",
    RequestCode.ADD_BROKER: _CONTAINER,
    RequestCode.REMOVE_BROKER: _CONTAINER,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _CONTROLLER,
    RequestCode.CONTROLLER_REGISTER_BROKER: _CONTROLLER,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _CONTROLLER,
    RequestCode.UPDATE_CONTROLLER_CONFIG: "there is no controller: settings belong to each broker (updateBrokerConfig)",
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _CONTROLLER,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _CONTROLLER,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _COLD,
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _COLD,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: _COLD,
    RequestCode.SET_COMMITLOG_READ_MODE: "there is no read mode: the kernel gets no advice about the log",
    RequestCode.RESET_MASTER_FLUSH_OFFSET: "replicas agree by themselves on what is safe (aerobee replica status)",
    RequestCode.GET_BROKER_LITE_INFO: "lite topics do not exist",
    RequestCode.SWITCH_TIMER_ENGINE: "there is one timer engine, the time wheel in files: RocksDB timers do not exist",
}


class RefusedRequests:
    """Answers every one of these codes with REQUEST_CODE_NOT_SUPPORTED and the reason."""

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(REFUSED_CODES, self.refuse)

    @staticmethod
    def refuse(channel: Channel, command: Command) -> Command:
        remark = f"request type {command.code} not supported: {REFUSED_CODES[command.code]}"
        return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
