"""What a slave asks its master over the remoting port, before it follows: how far its log goes, and single records.

The HA protocol itself tells neither. RocketMQ: AdminBrokerProcessor.getBrokerRuntimeInfo, QueryMessageProcessor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aerobee.errors import BrokerError, RemoteProtocolError
from aerobee.model.numbers import int_or
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.message import ViewMessageRequestHeader


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The first offset of a log and its end."""

    start: int
    end: int


class MasterPeek(Protocol):
    """A master as its slave asks it."""

    async def bounds(self) -> LogBounds:
        """Return what the master's log holds. Raise AerobeeError where it does not answer."""

    async def record_at(self, offset: int) -> bytes | None:
        """Return the record at an offset as it is stored, None where the master finds none."""


class RemoteMaster:
    """A master behind its remoting address."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def bounds(self) -> LogBounds:
        command = request(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=self._client.next_opaque())
        answer = await self._client.ask(self.address, command)
        table = KVTable.decode(answer.body).table
        start, end = (int_or(table.get(key, ""), -1, 0) for key in ("commitLogMinOffset", "commitLogMaxOffset"))
        if start < 0 or end < start:
            raise RemoteProtocolError(f"the master at {self.address} does not tell what its log holds")
        return LogBounds(start, end)

    async def record_at(self, offset: int) -> bytes | None:
        command = request(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset), opaque=self._client.next_opaque()
        )
        try:
            answer = await self._client.ask(self.address, command)
        except BrokerError:
            return None
        return answer.body or None
