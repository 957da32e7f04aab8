"""A small HTTP server for monitoring: GET only, without bodies, bounded in every direction.

`Gets` is the machine: bytes in, requests and errors out. `HttpPort` is the driver: a port whose pages are made in
slices, so that a large page never holds the event loop for long, and compressed on the way where the client takes that.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from aerobee.errors import RemoteProtocolError
from aerobee.runtime.seams import Clock, Listener, Net
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

HEAD_BYTES_MAX: Final = 8 * 1024
CONNECTIONS_MAX: Final = 64
# Pages that are made at the same time. A page of many topics takes some megabytes until it has left.
PAGES_MAX: Final = 8
# How long pages may hold the loop at a time.
TURN_S: Final = 0.002
# A request that has begun must be whole, and an answer must be read, within this time.
PROGRESS_S: Final = 10.0
IDLE_S: Final = 300.0
_PIECE_BYTES: Final = 16 * 1024
_BLANK: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip
# zlib's own number for gzip around the data.
_GZIP: Final = 31
_log = get_log("net.http")


@dataclass(frozen=True, slots=True)
class Get:
    """One request. `closes` says that the client wants no other on this connection."""

    path: str
    takes_gzip: bool
    closes: bool


class HttpRefusedError(RemoteProtocolError):
    """A request that is answered with an error and ends its connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Gets:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request waits for the rest."""
        return bool(self._held)

    def receive(self, data: bytes) -> None:
        """Take bytes of the client. Raise HttpRefusedError if they are more than the head of a request may have."""
        if len(self._held) + len(data) > 2 * HEAD_BYTES_MAX:
            raise HttpRefusedError(400, "the request is too large")
        self._held += data

    def next(self) -> Get | None:
        """Return the next whole request, or None. Raise HttpRefusedError for one that is not served."""
        end = self._held.find(_BLANK)
        if end < 0 and len(self._held) <= HEAD_BYTES_MAX:
            return None
        if end < 0 or end > HEAD_BYTES_MAX:
            raise HttpRefusedError(400, "the head of the request is too large")
        try:
            lines = bytes(self._held[:end]).decode("ascii").split("\r\n")
        except UnicodeDecodeError as error:
            raise HttpRefusedError(400, "this is no HTTP request") from error
        del self._held[: end + len(_BLANK)]
        return _get_of(lines)


def _get_of(lines: list[str]) -> Get:
    parts = lines[0].split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0") or not parts[1].startswith("/"):
        raise HttpRefusedError(400, "this is no HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpRefusedError(400, "a header cannot be read")
        headers[name.lower()] = value.strip()
    if parts[0] != "GET":
        raise HttpRefusedError(405, "only GET is served here")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise HttpRefusedError(400, "a request with a body is not served")
    wish = headers.get("connection", "").lower()
    closes = "close" in wish if parts[2] == "HTTP/1.1" else "keep-alive" not in wish
    return Get(parts[1].partition("?")[0], _takes_gzip(headers.get("accept-encoding", "")), closes)


def _takes_gzip(header: str) -> bool:
    for one in header.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


@dataclass(frozen=True, slots=True)
class Page:
    """An answer. The pieces are made one by one while the answer is written."""

    status: int
    content_type: str
    pieces: Iterator[str]


def text_page(status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> Page:
    """Return a short answer."""
    return Page(status, content_type, iter((text,)))


# What a path shows. It is called for each request.
MakePage = Callable[[], Page]


class _Work:
    """A page on its way: it is made, and compressed, piece by piece; then it leaves as a whole with its length."""

    def __init__(self, connection: HttpConnection, get: Get, page: Page) -> None:
        self.connection = connection
        self._get = get
        self._page = page
        self._packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP) if get.takes_gzip else None
        self._made: list[bytes] = []
        self._waiting: list[str] = []
        self._waiting_size = 0

    def step(self) -> bool:
        """Make one more piece. Return False once the answer has been written."""
        piece = next(self._page.pieces, None)
        if piece is None:
            self._pack()
            if self._packer is not None:
                self._made.append(self._packer.flush())
            self._leave()
            return False
        self._waiting.append(piece)
        self._waiting_size += len(piece)
        if self._waiting_size >= _PIECE_BYTES:
            self._pack()
        return True

    def _pack(self) -> None:
        data = "".join(self._waiting).encode("utf-8", "backslashreplace")
        self._waiting, self._waiting_size = [], 0
        self._made.append(data if self._packer is None else self._packer.compress(data))

    def _leave(self) -> None:
        page, size = self._page, sum(map(len, self._made))
        self.connection.answer(page.status, page.content_type, self._made, size, self._get)

    def fail(self) -> None:
        """Answer that the page could not be made."""
        self.connection.refuse(500, "the page could not be made: the server's log tells why")


class HttpPort:
    """A port that serves pages by their paths."""

    def __init__(self, pages: Mapping[str, MakePage], clock: Clock, net: Net) -> None:
        self._pages = pages
        self._clock = clock
        self._net = net
        self._warn = RateLimitedLog(_log, clock)
        self._listener: Listener | None = None
        # In the order in which they were last answered, or opened.
        self._connections: dict[HttpConnection, None] = {}
        self._works: deque[_Work] = deque()
        self._is_called = False
        # The longest time that pages have held the loop, for tests.
        self.longest_turn_s = 0.0

    async def listen(self, host: str, port: int) -> int:
        """Serve the port and return its number; 0 takes a free one."""
        self._listener = await self._net.listen(host, port, lambda: HttpConnection(self))
        return self._listener.port

    async def close(self) -> None:
        """Close the port and every connection."""
        self._works.clear()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for connection in list(self._connections):
            connection.abort()
        if listener is not None:
            await listener.wait_closed()

    def now_s(self) -> float:
        return self._clock.monotonic()

    # -- what connections call

    def opened(self, connection: HttpConnection) -> None:
        self._connections[connection] = None
        if len(self._connections) > CONNECTIONS_MAX:
            self._warn.warning("connections", "there are too many connections to the metrics port: the idlest is cut")
            next((one for one in self._connections if not one.is_answering), connection).abort()

    def closed(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        for work in [one for one in self._works if one.connection is connection]:
            self._works.remove(work)

    def answered(self, connection: HttpConnection) -> None:
        """Note that a connection is in use."""
        if self._connections.pop(connection, 0) is None:
            self._connections[connection] = None

    def asked(self, connection: HttpConnection, get: Get) -> None:
        """Begin to make the page that a client asks for."""
        make = self._pages.get(get.path)
        if make is None:
            page = text_page(404, f"there are these pages: {' '.join(sorted(self._pages))}\n")
        elif len(self._works) >= PAGES_MAX:
            page = text_page(503, "too many pages are being made: ask again later\n")
        else:
            try:
                page = make()
            except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
                self._failed(error)
                page = text_page(500, "the page could not be made: the server's log tells why\n")
        self._works.append(_Work(connection, get, page))
        self._call()

    def _failed(self, error: Exception) -> None:
        self._warn.error("page", "a page of the metrics port could not be made", exc_info=error)

    def _call(self) -> None:
        if not self._is_called and self._works:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Make pieces for a short time, then let the loop serve others."""
        self._is_called = False
        began_s = self.now_s()
        until_s = began_s + TURN_S
        while self._works:
            work = self._works[0]
            try:
                goes_on = work.step()
            except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
                self._failed(error)
                work.fail()
                goes_on = False
            if not goes_on and self._works and self._works[0] is work:
                self._works.popleft()
            if self.now_s() >= until_s:
                break
        self._works.rotate(-1)
        self.longest_turn_s = max(self.longest_turn_s, self.now_s() - began_s)
        self._call()


class HttpConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, port: HttpPort) -> None:
        self._port = port
        self._gets = Gets()
        self._transport: asyncio.Transport | None = None
        self.is_answering = False
        # Whether the time that a request has runs already.
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None
        # How often in a row nothing was found to do.
        self._rests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._expect()
        self._port.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._expect(None)
        self._port.closed(self)

    def data_received(self, data: bytes) -> None:
        self._rests = 0
        try:
            self._gets.receive(data)
            self._next()
        except HttpRefusedError as error:
            self.refuse(error.status, error.message)

    def _next(self) -> None:
        if self.is_answering or self._transport is None:
            return
        get = self._gets.next()
        if get is None and self._gets.has_begun:
            # Bytes that trickle in win no time.
            if not self._has_begun:
                self._expect()
            self._has_begun = True
            return
        self._has_begun = False
        self._expect(None if get is not None else PROGRESS_S)
        if get is not None:
            self.is_answering = True
            # What the client sends meanwhile waits in its socket.
            self._transport.pause_reading()
            self._port.asked(self, get)

    def _expect(self, time_s: float | None = PROGRESS_S) -> None:
        """Look at the connection after this time, unless something comes of it before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if time_s is None else asyncio.get_running_loop().call_later(time_s, self._late)

    def _late(self) -> None:
        """Cut a client that does not finish its request, or does not read its answer. Let one that rests rest."""
        if self._transport is None:
            return
        self._rests += 1
        unread = self._transport.get_write_buffer_size()
        if unread or self._gets.has_begun or self._rests > IDLE_S / PROGRESS_S:
            self.abort()
        else:
            self._expect()

    def answer(self, status: int, content_type: str, made: list[bytes], size: int, get: Get) -> None:
        """Write a whole answer, and take the next request unless the client wanted to close."""
        if self._transport is None:
            return
        coding = "Content-Encoding: gzip\r\n" if get.takes_gzip else ""
        closing = "Connection: close\r\n" if get.closes else ""
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {size}\r\n{coding}{closing}Cache-Control: no-store\r\n\r\n"
        )
        self._port.answered(self)
        self._transport.writelines([head.encode("ascii"), *made])
        self.is_answering = False
        # A client that does not read its answer is cut, whatever is left of it.
        self._expect()
        if get.closes:
            self._transport.close()
            return
        self._transport.resume_reading()
        try:
            self._next()
        except HttpRefusedError as error:
            self.refuse(error.status, error.message)

    def refuse(self, status: int, message: str) -> None:
        """Answer with an error and close."""
        get = Get("", takes_gzip=False, closes=True)
        body = (message + "\n").encode("utf-8", "replace")
        self.answer(status, "text/plain; charset=utf-8", [body], len(body), get)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
