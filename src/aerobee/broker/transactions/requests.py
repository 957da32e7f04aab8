"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE. RocketMQ: EndTransactionProcessor, AdminBrokerProcessor."""

from __future__ import annotations

from aerobee.broker.answers import answer_later
from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.transactions.driver import Transactions
from aerobee.errors import AerobeeError
from aerobee.model.ids import decode_offset_message_id
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from aerobee.runtime.seams import Clock


class TransactionHandler:
    """The requests of transactions. Java's clients want no answer; others are answered when the end is stored. Apache
    does not answer an end that says "unknown"; this broker does."""

    def __init__(self, transactions: Transactions, flow: FlowControl, clock: Clock) -> None:
        self._transactions = transactions
        self._flow = flow
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end, RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume}

    def end(self, channel: Channel, command: Command) -> Command | None:
        busy = self._flow.busy(Work.END_TRANSACTION, self._clock.monotonic())
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        header = decode_header(EndTransactionRequestHeader, command)

        def ended(code: int, remark: str | None) -> None:
            answer_later(channel, response(command, code, remark=remark), command)

        self._transactions.end(header, ended)
        return None

    def resume(self, channel: Channel, command: Command) -> Command | None:
        """Ask again about a half message that was given up."""
        header = decode_header(ResumeCheckHalfMessageRequestHeader, command)
        try:
            physical_offset = decode_offset_message_id(header.msg_id or "").physical_offset
        except AerobeeError as error:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=error.message)

        def ended(code: int, remark: str | None) -> None:
            answer_later(channel, response(command, code, remark=remark), command)

        self._transactions.resume(physical_offset, ended)
        return None
