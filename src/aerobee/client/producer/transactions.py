"""Transactions: a half message that nobody can read before its producer commits it, and brokers' questions about it.

RocketMQ: DefaultMQProducerImpl.sendMessageInTransaction, endTransaction, checkTransactionState.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aerobee.client.core import ClientStateError, SendReceipt, call_user_code
from aerobee.errors import AerobeeError
from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from aerobee.hot.log.record import decode_record
from aerobee.model import sysproperties as names
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.message import Message, from_record
from aerobee.net.link import Link
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import get_log

if TYPE_CHECKING:
    from aerobee.client.core import ClientCore
    from aerobee.client.producer.producer import Producer

_CHECK_THREADS: Final = 4
_log = get_log("client.transaction")


class TransactionState(enum.Enum):
    """How a transaction ended."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0


Verdict = TransactionState | bool | None
# Called when a broker asks: True commits, False rolls back, None means that the broker asks again later. A plain
# function runs in a thread.
OnCheck = Callable[[Message], Verdict | Awaitable[Verdict]]


class Transaction:
    """A half message. Leaving the block commits it; an exception leaves it to `on_check`."""

    def __init__(self, producer: Producer, send: Callable[[], Awaitable[SendReceipt]], topic: str) -> None:
        self._producer = producer
        self._send = send
        self._topic = topic
        self._receipt: SendReceipt | None = None
        self._state: TransactionState | None = None

    @property
    def receipt(self) -> SendReceipt:
        """The receipt of the half message."""
        if self._receipt is None:
            raise ClientStateError("the transaction has not begun", hint="async with producer.transaction(...)")
        return self._receipt

    @property
    def message_id(self) -> str:
        """The id that `on_check` will see. Store it with the local transaction."""
        return self.receipt.message_id

    def commit(self) -> None:
        """Decide that the message becomes readable when the block is left, even by an exception."""
        self._state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Decide that nobody will ever read the message."""
        self._state = TransactionState.ROLLBACK

    async def __aenter__(self) -> Self:
        self._receipt = await self._send()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._state
        if state is None:
            state = TransactionState.COMMIT if error is None else TransactionState.UNKNOWN
        remark = f"{type(error).__name__}: {error}" if error is not None else None
        await self._producer.end_transaction(self._topic, self.receipt, state, remark)


def end_header(group: str, topic: str, receipt: SendReceipt, state: TransactionState) -> EndTransactionRequestHeader:
    """Return the request that ends a transaction of this producer."""
    return EndTransactionRequestHeader(
        topic=topic,
        producer_group=group,
        tran_state_table_offset=receipt.queue_offset,
        commit_log_offset=decode_offset_message_id(receipt.offset_id).physical_offset,
        commit_or_rollback=state.value,
        msg_id=receipt.message_id,
        transaction_id=receipt.transaction_id,
        bname=receipt.broker,
    )


class CheckTable:
    """The producers of a core that answer questions about half messages, by the group that a half message names."""

    def __init__(self, core: ClientCore) -> None:
        self.by_group: dict[str, Check] = {}
        core.on_push(RequestCode.CHECK_TRANSACTION_STATE, "", self._asked)

    async def _asked(self, link: Link, command: Command) -> Command | None:
        try:
            half = from_record(decode_record(command.body, 0))
        except AerobeeError as error:
            _log.warning("a half message could not be read", broker=link.address, reason=str(error))
            return None
        group = half.system_properties.get(names.PRODUCER_GROUP, "")
        check = self.by_group.get(group)
        if check is None:
            _log.warning("a broker asked about a half message of a group that is not here", group=group)
        else:
            await check.answer(link.address, command, half)
        return None


def check_table_of(core: ClientCore) -> CheckTable:
    """Return the table of a core."""
    found = core.shared.get("checks")
    if not isinstance(found, CheckTable):
        found = core.shared["checks"] = CheckTable(core)
    return found


class Check:
    """The answers to brokers' questions about the half messages of one producer."""

    def __init__(self, producer: Producer, on_check: OnCheck) -> None:
        self._producer = producer
        self._on_check = on_check
        self._workers = Workers(_CHECK_THREADS, "aerobee-check")

    def close(self) -> None:
        self._workers.close()

    async def answer(self, address: str, command: Command, half: Message) -> None:
        """Call the user's function and tell the broker. No answer comes back, as in Java."""
        header = decode_header(CheckTransactionStateRequestHeader, command)
        state, remark = await self._verdict(self._producer.user_message(half))
        await self._producer.end_checked(
            address,
            EndTransactionRequestHeader(
                topic=header.topic,
                producer_group=self._producer.wire_group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=state.value,
                from_transaction_check=True,
                msg_id=half.message_id,
                transaction_id=header.transaction_id,
                bname=header.bname,
            ),
            remark,
        )

    async def _verdict(self, half: Message) -> tuple[TransactionState, str | None]:
        verdict, error = await call_user_code(self._on_check, half, self._workers, self._producer.is_closed)
        if error is not None:
            _log.error("on_check raised; the broker will ask again", message_id=half.message_id, exc_info=error)
            return TransactionState.UNKNOWN, f"{type(error).__name__}: {error}"
        if isinstance(verdict, TransactionState):
            return verdict, None
        if isinstance(verdict, bool):
            return TransactionState.COMMIT if verdict else TransactionState.ROLLBACK, None
        if verdict is not None:
            _log.error(
                "on_check must return True, False, None or a TransactionState",
                message_id=half.message_id,
                value=repr(verdict),
            )
        return TransactionState.UNKNOWN, None
