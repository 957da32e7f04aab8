"""HTTP/1.1 without I/O, as much of it as etcd's gateway needs. Bytes go in, requests or parts of answers come out.

A server accepts POST with a Content-Length. A client accepts answers with a Content-Length or in chunks. Whatever else
comes raises RemoteProtocolError, and the connection is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.model.numbers import parse_hex, parse_int

HEAD_BYTES_MAX: Final = 16 * 1024
_HEAD_LINES_MAX: Final = 100
_CHUNK_LINE_MAX: Final = 256
_BLANK: Final = b"\r\n\r\n"

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    412: "Precondition Failed",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A whole request. The names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPart:
    """A part of an answer's body. `is_last` says that the answer ends with it."""

    status: int
    data: bytes
    is_last: bool


def encode_request(path: str, host: str, body: bytes, token: str = "") -> bytes:
    """Return a POST request with a JSON body."""
    authorization = f"Authorization: {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"{authorization}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def encode_answer(status: int, body: bytes) -> bytes:
    """Return a whole answer with a JSON body."""
    return _status_line(status) + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def encode_stream_head() -> bytes:
    """Return the head of an answer that goes on in chunks."""
    return _status_line(200) + b"Transfer-Encoding: chunked\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    """Return one chunk. Empty data would end the answer."""
    assert data
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: application/json\r\n".encode()


class RequestReader:
    """The requests of one connection."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._buffer = bytearray()

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request is waiting for the rest."""
        return bool(self._buffer)

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer. Raise RemoteProtocolError if there are more than one request may have."""
        self._buffer += data
        if len(self._buffer) > HEAD_BYTES_MAX + self._body_bytes_max:
            raise RemoteProtocolError("a request is too large")

    def next(self) -> HttpRequest | None:
        """Return the next request, or None until it is complete."""
        head_end = _head_end(self._buffer)
        if head_end < 0:
            return None
        lines = _lines(bytes(self._buffer[: head_end - len(_BLANK)]))
        parts = lines[0].split(" ")
        if len(parts) != 3 or parts[2] != "HTTP/1.1":
            raise RemoteProtocolError("this is no HTTP/1.1 request")
        headers = _headers(lines[1:])
        if "transfer-encoding" in headers:
            raise RemoteProtocolError("requests in chunks are not accepted")
        size = _content_length(headers, self._body_bytes_max) or 0
        if len(self._buffer) < head_end + size:
            return None
        body = bytes(self._buffer[head_end : head_end + size])
        del self._buffer[: head_end + size]
        return HttpRequest(method=parts[0], path=parts[1], headers=headers, body=body)


class AnswerReader:
    """The answers of one connection."""

    def __init__(self, part_bytes_max: int) -> None:
        self._part_bytes_max = part_bytes_max
        self._buffer = bytearray()
        self._status = 0
        # Bytes of the body that are still to come; None while a head or the line before a chunk is awaited.
        self._left: int | None = None
        self._is_chunked = False

    def receive(self, data: bytes) -> list[HttpPart]:
        """Take bytes from the peer and return the parts that are complete. Chunks are parts; so is a whole body."""
        self._buffer += data
        if len(self._buffer) > self._part_bytes_max + HEAD_BYTES_MAX:
            raise RemoteProtocolError("an answer is too large")
        parts: list[HttpPart] = []
        while (part := self._next()) is not None:
            parts.append(part)
        return parts

    def _next(self) -> HttpPart | None:
        if not self._status and not self._read_head():
            return None
        return self._next_chunk() if self._is_chunked else self._whole_body()

    def _read_head(self) -> bool:
        head_end = _head_end(self._buffer)
        if head_end < 0:
            return False
        lines = _lines(bytes(self._buffer[: head_end - len(_BLANK)]))
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):
            raise RemoteProtocolError("this is no HTTP answer")
        try:
            self._status = parse_int(words[1], 100, 599)
        except ValueError as error:
            raise RemoteProtocolError(f"an HTTP answer has no status: {error}") from None
        headers = _headers(lines[1:])
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = None if self._is_chunked else _content_length(headers, self._part_bytes_max)
        if not self._is_chunked and self._left is None:
            raise RemoteProtocolError("an HTTP answer does not say its length")
        del self._buffer[:head_end]
        return True

    def _whole_body(self) -> HttpPart | None:
        assert self._left is not None
        if len(self._buffer) < self._left:
            return None
        return self._take(self._left, is_last=True)

    def _next_chunk(self) -> HttpPart | None:
        if self._left is None:
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                if len(self._buffer) > _CHUNK_LINE_MAX:
                    raise RemoteProtocolError("the size of a chunk is too long")
                return None
            text = bytes(self._buffer[:line_end]).partition(b";")[0].strip().decode("latin-1")
            try:
                self._left = parse_hex(text, digits_max=8)
            except ValueError as error:
                raise RemoteProtocolError(f"the size of a chunk makes no sense: {error}") from None
            if self._left > self._part_bytes_max:
                raise RemoteProtocolError("a chunk is too large")
            del self._buffer[: line_end + 2]
        if len(self._buffer) < self._left + 2:
            return None
        if self._buffer[self._left : self._left + 2] != b"\r\n":
            raise RemoteProtocolError("a chunk does not end where it says")
        part = self._take(self._left, is_last=self._left == 0)
        del self._buffer[:2]
        return part

    def _take(self, size: int, *, is_last: bool) -> HttpPart:
        part = HttpPart(status=self._status, data=bytes(self._buffer[:size]), is_last=is_last)
        del self._buffer[:size]
        self._left = None
        if is_last:
            self._status = 0
        return part


def _head_end(buffer: bytearray) -> int:
    """Return where the head ends, or -1 while it is not complete."""
    found = buffer.find(_BLANK, 0, HEAD_BYTES_MAX)
    if found < 0 and len(buffer) >= HEAD_BYTES_MAX:
        raise RemoteProtocolError("a head of HTTP is too long")
    return found + len(_BLANK) if found >= 0 else -1


def _lines(head: bytes) -> list[str]:
    lines = head.decode("latin-1").split("\r\n")
    if len(lines) > _HEAD_LINES_MAX:
        raise RemoteProtocolError("a head of HTTP has too many lines")
    return lines


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RemoteProtocolError("a header of HTTP makes no sense")
        name = name.lower()
        if name == "content-length" and headers.get(name, value.strip()) != value.strip():
            raise RemoteProtocolError("two headers give different lengths")
        headers[name] = value.strip()
    return headers


def _content_length(headers: Mapping[str, str], limit: int) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    try:
        return parse_int(text, 0, limit)
    except ValueError as error:
        raise RemoteProtocolError(f"a body of HTTP is refused: {error}") from None
