"""Outgoing connections: one for each address. Answers are matched to requests by their opaque number.

`RemotingClient` is shared by the broker (to register with name servers), the admin functions and the message
clients. It does not retry: a call returns the answer, or raises an error that says what happened and where.

There are two ways to ask. Coroutines use `call` and `ask`. The send path uses `Link.post`, which needs no task, no
future and no timer of its own: one timer of the client checks all deadlines ten times a second.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from aerobee.errors import (
    ConnectTimeoutError,
    NotConnectedError,
    RequestTimeoutError,
    TransportError,
)
from aerobee.errors.codes import error_for
from aerobee.model.numbers import int_or
from aerobee.net.link import Link, PushHandler
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, encode_command
from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Net
from aerobee.runtime.tls import tls_failure

Sign = Callable[[Command], None]

_SWEEP_INTERVAL_S = 0.1


class RemotingClient:
    """Connections by address. A connection is opened when it is first needed, and again after it was lost."""

    def __init__(
        self,
        pushed: Mapping[int, PushHandler] | None = None,
        *,
        sign: Sign | None = None,
        connect_timeout_s: float = 3.0,
        net: Net | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.on_lost: Callable[[str], None] | None = None
        # Called again and again with the address of a server that does not answer posts, and may hang.
        self.on_silent: Callable[[str], None] | None = None
        # Called with every new connection, before the first request is written to it.
        self.on_open: Callable[[Link], None] | None = None
        self._pushed = dict(pushed or {})
        self._sign = sign
        self._connect_timeout_s = connect_timeout_s
        self._net: Net = net or RealNet()
        # The context of new connections.
        self.tls = tls
        self._sweeper: asyncio.TimerHandle | None = None
        self._links: dict[str, Link] = {}
        self._connecting: dict[str, asyncio.Lock] = {}
        self._opaque = 0
        self._closed = False

    def next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    @property
    def signs(self) -> bool:
        """Whether requests are signed. A signed frame can be built from its command only."""
        return self._sign is not None

    def on_push(self, code: int, handler: PushHandler) -> None:
        """Set the handler for requests of this code that servers send to the client."""
        self._pushed[code] = handler

    def peek(self, address: str) -> Link | None:
        """Return the connection to `address` if it is open and its server reads, so that a request can be posted
        now."""
        link = self._links.get(address)
        return link if link is not None and not link.closed and link.writable else None

    def is_connected(self, address: str) -> bool:
        """Tell whether there is a connection to `address`, whether its server reads or not."""
        link = self._links.get(address)
        return link is not None and not link.closed

    def frame(self, command: Command) -> bytes:
        """Return the bytes of a command, signed if this client signs."""
        if self._sign is not None:
            self._sign(command)
        return encode_command(command)

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        """Return the server's answer, whatever its code is."""
        try:
            async with asyncio.timeout(timeout_s):
                link = await self.link(address)
                await link.drain()
                return await self._exchange(link, command)
        except TimeoutError as error:
            if isinstance(error, RequestTimeoutError):
                raise
            raise RequestTimeoutError(f"no answer within {timeout_s:g} s", broker=address) from None

    async def ask(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        """Return the server's answer if its code is SUCCESS. Raise the error for any other code."""
        answer = await self.call(address, command, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark or "", address)
        return answer

    async def tell(self, address: str, command: Command, timeout_s: float = 3.0) -> None:
        """Send a one-way command, to which there is no answer."""
        async with asyncio.timeout(timeout_s):
            link = await self.link(address)
            await link.drain()
        link.write(self.frame(command))

    async def _exchange(self, link: Link, command: Command) -> Command:
        frame = self.frame(command)
        future = link.expect(command.opaque)
        try:
            link.write(frame)
            return await future
        finally:
            link.forget(command.opaque)

    async def link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is not None and not link.closed:
            return link
        lock = self._connecting.setdefault(address, asyncio.Lock())
        async with lock:
            link = self._links.get(address)
            if link is None or link.closed:
                link = self._links[address] = await self._connect(address)
                if self._sweeper is None:
                    self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_INTERVAL_S, self._sweep)
                if self.on_open is not None:
                    self.on_open(link)
            return link

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for address, link in list(self._links.items()):
            link.expire(now_s)
            if link.is_silent() and self.on_silent is not None:
                self.on_silent(address)
            if link.closed and self._links.get(address) is link:
                del self._links[address]
        # A client without connections needs no timer.
        self._sweeper = loop.call_later(_SWEEP_INTERVAL_S, self._sweep) if self._links else None

    async def _connect(self, address: str) -> Link:
        if self._closed:
            raise TransportError("the client is closed")
        host, _, port = address.rpartition(":")
        number = int_or(port, None, 0, 65535)
        if number is None:
            raise TransportError(f"{address!r} is not host:port", retriable=False)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                # A link has the methods of a protocol.
                link = Link(address, self._pushed, self._lost)
                await self._net.connect(host.strip("[]"), number, lambda: cast(asyncio.Protocol, link), tls=self.tls)
        except TimeoutError:
            words = f"could not connect within {self._connect_timeout_s:g} s"
            raise ConnectTimeoutError(words, broker=address) from None
        except OSError as error:
            failure = tls_failure(error) if self.tls is not None else None
            words, hint = failure or (f"could not connect: {_reason(error)}", None)
            raise NotConnectedError(words, broker=address, hint=hint) from error
        if self._closed:
            link.abort()
            raise TransportError("the client is closed")
        return link

    def _lost(self, link: Link) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
        if self.on_lost is not None and not self._closed:
            self.on_lost(link.address)

    def drop(self, address: str) -> None:
        """Abort the connection to an address, for example because its server stopped answering."""
        link = self._links.get(address)
        if link is not None:
            link.abort()

    def give_up(self, address: str, words: str) -> None:
        """End the connection to a server that does not answer. Everybody who waits hears that in these words."""
        link = self._links.get(address)
        if link is not None:
            link.give_up(words)

    async def close(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        links = list(self._links.values())
        for link in links:
            link.close()
        for link in links:
            try:
                async with asyncio.timeout(1.0):
                    await link.lost.wait()
            except TimeoutError:
                link.abort()
                await link.lost.wait()


def _reason(error: OSError) -> str:
    """Return the operating system's own words. asyncio wraps them, and joins them where a host has several
    addresses."""
    if error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "connection refused"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
