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
    AerobeeError,
    ConnectTimeoutError,
    LocalProtocolError,
    NotConnectedError,
    RemoteProtocolError,
    RequestTimeoutError,
    TransportError,
)
from aerobee.errors.codes import error_for
from aerobee.hot.wire.frame import Frame
from aerobee.model.numbers import int_or
from aerobee.protocol.codes import FLAG_RESPONSE, ResponseCode
from aerobee.protocol.command import Command, decode_command, encode_command, response
from aerobee.protocol.connection import Connection
from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Net
from aerobee.runtime.tls import tls_failure, tls_words
from aerobee.telemetry.stdlog import get_log

PushHandler = Callable[["Link", Command], Command | None]
Sign = Callable[[Command], None]
Answered = Callable[[Command | AerobeeError], None]
# Takes an answer as it came, or the reason why there is none.
FrameAnswered = Callable[[Frame | AerobeeError], None]

_SWEEP_INTERVAL_S = 0.1
# So many sweeps without the answer to the oldest post make a server silent.
_SILENT_SWEEPS = 5
_NEVER = float("inf")

_log = get_log("net.client")


class Link(asyncio.Protocol):
    """The client's side of one connection to a server."""

    def __init__(self, address: str, pushed: Mapping[int, PushHandler], on_lost: Callable[[Link], None]) -> None:
        self.address = address
        self.closed = False
        self._pushed = pushed
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._machine = Connection()
        self._out: list[bytes] = []
        # By opaque: the deadline (in loop time) and the function to call.
        self._waiting: dict[int, tuple[float, Answered]] = {}
        self._frames: dict[int, tuple[float, FrameAnswered]] = {}
        # The oldest post at the last sweep, and at how many sweeps it was the oldest.
        self._oldest: int | None = None
        self._sweeps = 0
        # Set once the transport is gone.
        self.lost = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        machine = self._machine
        try:
            frames = self._frames
            for frame in machine.receive_frames(data):
                posted = frames.pop(frame.opaque, None) if frames and frame.flag & FLAG_RESPONSE else None
                if posted is not None:
                    posted[1](frame)
                else:
                    self._received(decode_command(frame))
        except RemoteProtocolError as error:
            machine.fail(error)
        if machine.error is not None:
            _log.warning(
                "connection closed: not the remoting protocol", server=self.address, reason=machine.error.message
            )
            self.abort()

    def _received(self, command: Command) -> None:
        if command.is_response:
            waiting = self._waiting.pop(command.opaque, None)
            if waiting is not None:
                waiting[1](command)
            return
        handler = self._pushed.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            answer: Command | None = response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        else:
            try:
                answer = handler(self, command)
            except AerobeeError as error:
                answer = response(command, error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
        if answer is not None and not command.is_oneway:
            self.write(encode_command(answer))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        self._writable.set()
        waiting, self._waiting = self._waiting, {}
        self.lost.set()
        self._on_lost(self)
        # With TLS 1.3 a server asks for the client's certificate only after the handshake.
        why = f": TLS: {tls_words(exc)}" if isinstance(exc, ssl.SSLError) else ""
        for _, answered in waiting.values():
            answered(TransportError(f"connection to {self.address} was lost{why}", broker=self.address))
        frames, self._frames = self._frames, {}
        for _, taken in frames.values():
            taken(TransportError(f"connection to {self.address} was lost{why}", broker=self.address))

    def write(self, frame: bytes) -> None:
        """Queue one frame. All frames that are queued in a tick leave in one write."""
        if self.closed:
            raise TransportError(f"connection to {self.address} is closed", broker=self.address)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    async def drain(self) -> None:
        """Wait until the server reads again."""
        await self._writable.wait()

    @property
    def writable(self) -> bool:
        """Whether the server reads what was written."""
        return self._writable.is_set()

    def post(self, opaque: int, frame: bytes, deadline_s: float, answered: Answered) -> None:
        """Write a request. Call `answered` with the answer, or with the reason why there is none. `deadline_s` is
        loop time."""
        if opaque in self._waiting:
            raise LocalProtocolError(f"opaque {opaque} is already in use")
        self.write(frame)
        self._waiting[opaque] = (deadline_s, answered)

    def post_frame(self, opaque: int, frame: bytes, deadline_s: float, answered: FrameAnswered) -> None:
        """Write a request as `post` does. Call `answered` with the frame of the answer, which nobody has decoded."""
        self.write(frame)
        self._frames[opaque] = (deadline_s, answered)

    def expect(self, opaque: int) -> asyncio.Future[Command]:
        """Return a future for the answer to `opaque`. Whoever stops waiting must call `forget`."""
        if opaque in self._waiting:
            raise LocalProtocolError(f"opaque {opaque} is already in use")
        future: asyncio.Future[Command] = self._loop.create_future()

        def answered(answer: Command | AerobeeError) -> None:
            if future.done():
                return
            if isinstance(answer, AerobeeError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self._waiting[opaque] = (_NEVER, answered)
        return future

    def expire(self, now_s: float) -> None:
        """Tell the posts whose deadline has passed."""
        late = [opaque for opaque, waiting in self._waiting.items() if waiting[0] <= now_s]
        for opaque in late:
            answered = self._waiting.pop(opaque)[1]
            answered(RequestTimeoutError("no answer in time", broker=self.address))
        for opaque in [opaque for opaque, waiting in self._frames.items() if waiting[0] <= now_s]:
            self._frames.pop(opaque)[1](RequestTimeoutError("no answer in time", broker=self.address))

    def is_silent(self) -> bool:
        """Tell whether a post waits for its answer since some sweeps. Each call is a sweep.

        Other requests do not count: a pull is held for long at a server that is well.
        """
        oldest = next((opaque for opaque, waiting in self._waiting.items() if waiting[0] < _NEVER), None)
        if oldest is None:
            oldest = next(iter(self._frames), None)
        self._sweeps = self._sweeps + 1 if oldest is not None and oldest == self._oldest else 0
        self._oldest = oldest
        return self._sweeps >= _SILENT_SWEEPS

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


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
                _, link = await self._net.connect(
                    host.strip("[]"), number, lambda: Link(address, self._pushed, self._lost), tls=self.tls
                )
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
