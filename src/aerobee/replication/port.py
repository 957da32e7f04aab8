"""The HA port: one listener for two protocols. The first four bytes of a connection tell which.

RocketMQ's own HA protocol begins with an offset of 8 bytes, which never begins with `AEHA`: it would be larger than 4
exbibytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aerobee.replication.frames import MAGIC
from aerobee.runtime.seams import Listener, Net
from aerobee.telemetry.stdlog import get_log

# How long a new connection may take to say which protocol it speaks.
FIRST_BYTES_S: Final = 10.0
CONNECTIONS_MAX: Final = 256

ProtocolFactory = Callable[[], asyncio.Protocol]
_log = get_log("replication")


class HaPort:
    """The listener. A factory of None refuses the connections of its protocol.

    The protocol that a factory makes is given `connection_made` and then everything that was received, as if it had
    been there from the start.
    """

    def __init__(self, net: Net, host: str, port: int, *, ours: ProtocolFactory | None = None) -> None:
        self._net = net
        self._host = host
        self._port = port
        self.ours = ours
        self.classic: ProtocolFactory | None = None
        self._listener: Listener | None = None
        self._open: dict[_FirstBytes, None] = {}

    @property
    def port(self) -> int:
        """The port that was bound, or the one asked for before that."""
        return self._port if self._listener is None else self._listener.port

    async def start(self) -> None:
        self._listener = await self._net.listen(self._host, self._port, lambda: _FirstBytes(self))

    async def close(self) -> None:
        """Close the port and every connection that has not said yet what it speaks."""
        if self._listener is not None:
            self._listener.close()
            for first in list(self._open):
                first.give_up()
            await self._listener.wait_closed()

    def opened(self, first: _FirstBytes) -> None:
        """Count a connection that has not spoken. Of too many the oldest goes: a follower speaks at once."""
        if len(self._open) >= CONNECTIONS_MAX:
            next(iter(self._open)).give_up()
        self._open[first] = None

    def spoke(self, first: _FirstBytes) -> None:
        self._open.pop(first, None)

    def choose(self, data: bytes) -> ProtocolFactory | None:
        return self.ours if data == MAGIC else self.classic


class _FirstBytes(asyncio.Protocol):
    """A connection until its first four bytes are there. Then its protocol takes over."""

    def __init__(self, port: HaPort) -> None:
        self._port = port
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._port.opened(self)
        self._timer = asyncio.get_running_loop().call_later(FIRST_BYTES_S, self.give_up)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < len(MAGIC) or self._transport is None or self._transport.is_closing():
            return
        self._end()
        factory = self._port.choose(self._data[: len(MAGIC)])
        if factory is None:
            _log.warning("a connection to the HA port was closed: its protocol is not served here")
            self._transport.abort()
            return
        protocol = factory()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if not self._transport.is_closing():
            protocol.data_received(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def give_up(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._port.spoke(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
