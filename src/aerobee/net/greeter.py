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
    from aerobee.net.server import Http2Sink, Server

# The first byte of HTTP/2 (`PRI *`). Read as the length of a frame of remoting it is beyond any that is taken.
_HTTP2 = b"P"


class Greeter(asyncio.Protocol):
    """One connection until it is known to be plain, or for its whole life if it is TLS."""

    def __init__(self, server: Server, refused: frozenset[int]) -> None:
        self._server = server
        self._channel = Channel(server, refused)
        self._greeting = Greeting()
        self._transport: asyncio.Transport
        self._tls: TlsTransport | None = None
        # Takes the bytes of a connection that is HTTP/2; until the first one it is not known.
        self._http2: Http2Sink | None = None
        self._is_known = False
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
        if self._http2 is not None:
            self._http2.receive(data)
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
            if self._server.believes_proxy(channel.source):
                channel.came_from(*greeted.source)
            else:
                self._server.proxy_disbelieved(channel)
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
            if not self._speaks_http2(greeted.rest):
                self._transport.set_protocol(cast(asyncio.BaseProtocol, channel))
            self._give(greeted.rest)

    def _speaks_http2(self, first: bytes) -> bool:
        """Tell by its first byte whether a connection is HTTP/2, where this server speaks that."""
        make = self._server.http2
        self._is_known = True
        if make is None or first[:1] != _HTTP2:
            return False
        self._http2 = make(self._channel)
        return True

    def _give(self, plain: bytes) -> None:
        if self._http2 is not None:
            self._http2.receive(plain)
        else:
            self._channel.data_received(plain)

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
            if not self._is_known:
                self._speaks_http2(plain)
            self._give(plain)
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
        if self._http2 is not None:
            self._http2.lost()
        self._channel.connection_lost(exc)
