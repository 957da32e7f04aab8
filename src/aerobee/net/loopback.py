"""Connections to a server of the same process, without sockets: bytes pass from call to call.

The server sees an ordinary channel, with the address of whoever the connection is made for.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, TypeVar, cast

from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.runtime.seams import Listener, Net

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class _End(asyncio.Transport):
    """One end of a connection: what is written to it is given to the protocol at the other end."""

    def __init__(self, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.deliver: Callable[[bytes], None] = lambda data: None
        self.other: _End
        self.lost: Callable[[], None] = lambda: None
        self._is_closing = False
        self._is_paused = False
        self._held: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.other._take(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _take(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._is_paused or self._held:
            self._held.append(data)
        else:
            self.deliver(data)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._held:
            self._loop.call_soon(self._give_held)

    def _give_held(self) -> None:
        while self._held and not (self._is_paused or self._is_closing):
            held, self._held = self._held, []
            self.deliver(b"".join(held))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.other._held))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: what the other end holds back is bounded by its own limits."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        for end in (self, self.other):
            if not end._is_closing:
                end._is_closing = True
                end._loop.call_soon(end.lost)


class LoopbackNet:
    """A net that reaches one server without sockets, for a peer with this address, and all others through `net`."""

    def __init__(self, server: Server, is_own: Callable[[str, int], bool], net: Net, peer: tuple[str, int]) -> None:
        self._server = server
        self._is_own = is_own
        self._net = net
        self._peer = peer

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        start: bool = True,
    ) -> Listener:
        return await self._net.listen(host, port, protocol_factory, tls=tls, start=start)

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], ProtocolT],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        if not self._is_own(host, port):
            return await self._net.connect(host, port, protocol_factory, tls=tls)
        protocol, channel = protocol_factory(), Channel(self._server)
        near, far = _End((host, port)), _End(self._peer)
        near.other, far.other = far, near
        near.deliver, near.lost = protocol.data_received, lambda: protocol.connection_lost(None)
        far.deliver, far.lost = channel.data_received, lambda: self._lost(channel)
        protocol.connection_made(near)
        self._server.own_channels += 1
        channel.connection_made(cast(asyncio.BaseTransport, far))
        return near, protocol

    def _lost(self, channel: Channel) -> None:
        self._server.own_channels -= 1
        channel.connection_lost(None)
