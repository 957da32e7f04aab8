"""The HA port: one listener for two protocols. The first four bytes of a connection tell which.

RocketMQ's own HA protocol begins with an offset of 8 bytes, which never begins with `AEHA`: it would be larger than 4
exbibytes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from aerobee.net.config import ServerTls
from aerobee.net.tls import TlsTransport
from aerobee.replication.frames import MAGIC
from aerobee.runtime.seams import Listener, Net
from aerobee.telemetry.stdlog import get_log

# How long a new connection may take to say which protocol it speaks.
FIRST_BYTES_S: Final = 10.0
CONNECTIONS_MAX: Final = 256
# The content type of a TLS handshake. As the first byte of an offset it would be larger than a log can be.
TLS_HANDSHAKE: Final = b"\x16"

ProtocolFactory = Callable[[], asyncio.Protocol]
_log = get_log("replication")


class HaPort:
    """The listener. A factory of None refuses the connections of its protocol.

    The protocol that a factory makes is given `connection_made` and then everything that was received, as if it had
    been there from the start.
    """

    def __init__(
        self,
        net: Net,
        host: str,
        port: int,
        *,
        ours: ProtocolFactory | None = None,
        tls: Callable[[], ServerTls] = ServerTls,
    ) -> None:
        """Open nothing yet. `tls` returns which connections are taken, with the certificate of now."""
        self._net = net
        self.tls = tls
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
    """A connection until its first four bytes are there. Then its protocol takes over.

    A TLS connection passes through this for its whole life, as through the greeter of the other ports.
    """

    def __init__(self, port: HaPort) -> None:
        self._port = port
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._tls: TlsTransport | None = None
        self._protocol: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._port.opened(self)
        self._timer = asyncio.get_running_loop().call_later(FIRST_BYTES_S, self.give_up)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._tls is None:
            if not self._data and data[:1] == TLS_HANDSHAKE:
                context = self._port.tls().context
                if self._refused(is_tls=True) or context is None:
                    return
                self._tls = TlsTransport(transport, context)
            else:
                self._take(transport, data)
                return
        self._decrypt(self._tls, data)

    def _decrypt(self, tls: TlsTransport, data: bytes) -> None:
        try:
            plain = tls.receive(data)
        except ssl.SSLError as error:
            _log.warning("a connection to the HA port was closed", reason=f"TLS: {error.reason or error}")
            # OpenSSL's alert about the failure may still be sent.
            if self._transport is not None:
                self._transport.close()
            return
        if plain and self._protocol is not None:
            self._protocol.data_received(plain)
        elif plain:
            self._take(tls, plain)
        if tls.has_ended:
            tls.close()

    def _take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take plain bytes until they say which protocol this is."""
        self._data += data
        if len(self._data) < len(MAGIC):
            return
        self._end()
        if self._tls is None and self._refused(is_tls=False):
            return
        factory = self._port.choose(self._data[: len(MAGIC)])
        if factory is None:
            _log.warning("a connection to the HA port was closed: its protocol is not served here")
            transport.abort()
            return
        self._protocol = protocol = factory()
        if self._tls is None and self._transport is not None:
            self._transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_closing():
            protocol.data_received(self._data)

    def _refused(self, *, is_tls: bool) -> bool:
        refusal = self._port.tls().refusal(is_tls)
        if refusal and self._transport is not None:
            _log.warning("a connection to the HA port was closed", reason=refusal)
            self._transport.abort()
        return bool(refusal)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def give_up(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._port.spoke(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
