"""RECALL_MESSAGE: refused, as Apache's broker refuses it by default (`recallMessageEnable`). It needs timers."""

from __future__ import annotations

from aerobee.model.sysproperties import MSG_REGION
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import RecallMessageRequestHeader


class RecallHandler:
    """RocketMQ: RecallMessageProcessor."""

    def __init__(self, region: str) -> None:
        self._region = region

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, channel: Channel, command: Command) -> Command:
        decode_header(RecallMessageRequestHeader, command)
        remark = "recall failed, operation is forbidden"
        return response(command, ResponseCode.NO_PERMISSION, remark=remark, ext={MSG_REGION: self._region})
