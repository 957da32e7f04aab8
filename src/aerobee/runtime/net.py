"""TCP and TLS of the machine, on the running asyncio loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from typing import TypeVar

from aerobee.runtime.seams import Listener

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

BACKLOG = 1024  # RocketMQ: NettyServerConfig.serverSocketBacklog


class RealListener:
    """A server socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._host: str
        self._port: int
        self._host, self._port = server.sockets[0].getsockname()[:2]

    @property
    def host(self) -> str:
        return str(self._host)

    @property
    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        # Linux lets two processes bind a port, and the first one that listens gets it. asyncio tells the other one, but
        # uvloop drops its socket and says nothing. So the system is asked first.
        for bound in self._server.sockets:
            with socket.fromfd(bound.fileno(), bound.family, bound.type) as same:
                same.listen(BACKLOG)
        await self._server.start_serving()

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        # Since Python 3.12 this waits for every accepted connection too.
        await self._server.wait_closed()


class RealNet:
    """Real sockets. Errors are OSErrors (ConnectionRefusedError and so on) or ssl.SSLError."""

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        start: bool = True,
    ) -> Listener:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol_factory, host, port, ssl=tls, backlog=BACKLOG, start_serving=False)
        listener = RealListener(server)
        if start:
            try:
                await listener.start()
            except OSError:
                listener.close()
                raise
        return listener

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], ProtocolT],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_connection(protocol_factory, host, port, ssl=tls)
        except UnicodeError:
            raise OSError(f"{host[:80]!r} is no name of a host") from None


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an IP address; port 0 takes a free one. Raise OSError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
