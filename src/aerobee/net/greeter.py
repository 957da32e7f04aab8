"""The first protocol of an accepted connection. It finds out what the peer speaks: plain remoting, TLS or the PROXY
protocol.

The channel exists from the start, so that limits, sweeps and observers see every connection alike. A plain
connection is handed to its channel with the first read and costs nothing afterwards. A TLS connection passes through
this protocol for its whole life.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, cast

from aerobee.errors import RemoteProtocolError
from aerobee.net.channel import Channel
from aerobee.net.tls import TlsTransport
from aerobee.protocol.greeting import Greeted, Greeting

if TYPE_CHECKING:
    from aerobee.net.server import Server


class Greeter(asyncio.Protocol):
    """One connection until it is known to be plain, or for its whole life if it is TLS."""

    def __init__(self, server: Server, refused: frozenset[int]) -> None:
        self._server = server
        self._channel = Channel(server, refused)
        self._greeting = Greeting()
        self._transport: asyncio.Transport
        self._tls: TlsTransport | None = None
        # Limits the time from the first byte until the greeting and the TLS handshake are complete.
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._channel.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._tls is not None:
            self._decrypt(self._tls, data)
            return
        try:
            greeted = self._greeting.receive_data(data)
        except RemoteProtocolError as error:
            self._server.protocol_error(self._channel, error)
            self._channel.abort()
            return
        if greeted is None:
            self._await_more()
        else:
            self._greeted(greeted)

    def _greeted(self, greeted: Greeted) -> None:
        channel, tls = self._channel, self._server.tls
        if greeted.source is not None:
            channel.came_from(*greeted.source)
        refusal = tls.refusal(greeted.is_tls)
        if refusal:
            self._server.greeting_failed(channel, refusal)
            channel.abort()
        elif greeted.is_tls:
            assert tls.context is not None
            self._tls = TlsTransport(self._transport, tls.context)
            channel.carried_by(self._tls)
            self._await_more()
            self._decrypt(self._tls, greeted.rest)
        else:
            self._know()
            self._transport.set_protocol(cast(asyncio.BaseProtocol, channel))
            channel.data_received(greeted.rest)

    def _decrypt(self, tls: TlsTransport, data: bytes) -> None:
        try:
            plain = tls.receive(data)
        except ssl.SSLError as error:
            self._server.greeting_failed(self._channel, f"TLS: {error.reason or error}")
            # OpenSSL's alert about the failure may still be sent.
            self._transport.close()
            return
        if tls.is_open:
            self._know()
        if plain:
            self._channel.data_received(plain)
        if tls.has_ended:
            self._channel.close()

    # -- time

    def _await_more(self) -> None:
        if self._timer is None:
            limit_s = self._server.limits.greeting_s
            self._timer = asyncio.get_running_loop().call_later(limit_s, self._late)

    def _late(self) -> None:
        what = "a PROXY header" if self._tls is None else "a TLS handshake"
        self._server.cut(self._channel, f"{what} was begun and not finished")

    def _know(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # -- passed on

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    def eof_received(self) -> None:
        """Return None, so that the transport closes: the peer will send nothing more."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._know()
        self._channel.connection_lost(exc)
