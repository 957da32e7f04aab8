"""The server's side of gRPC on one HTTP/2 connection: calls, their messages, and answers. It does no I/O.

A request is a POST of `application/grpc`; each message has five bytes before it, a flag and a length. The answer ends
with the trailers `grpc-status` and `grpc-message`. Compressed messages are refused, as the specification allows for a
server that names `identity` only. What is no gRPC at all gets an answer of HTTP.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i64

from aerobee.hot.h2.frames import CANCEL
from aerobee.hot.h2.hpack import METHOD, PATH, literal
from aerobee.hot.wire.digits import whole
from aerobee.protocol.http2 import Http2Connection
from aerobee.protocol.http2streams import DATA, OPENED, Stream, StreamEvent

# RocketMQ: ProxyConfig.grpcMaxInboundMessageSize is 130 MiB; one message and what goes with it has less.
MESSAGE_MAX: Final = (4 << 20) + (64 << 10)
_PREFIX: Final = 5

# Status codes of gRPC.
OK: Final = 0
CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

# Header blocks. 0x88 is `:status 200` of the static table, 31 `content-type` and 28 `content-length`.
_STATUS_200: Final = b"\x88"
_HEAD: Final = _STATUS_200 + literal(b"content-type", b"application/grpc")
_TRAILERS_OK: Final = literal(b"grpc-status", b"0")
_ACCEPTED: Final = literal(b"grpc-accept-encoding", b"identity")
_TEXT: Final = literal(b"content-type", b"text/plain; charset=utf-8")

_TIMEOUT_DIGITS_MAX: Final = 8
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}

# What happened to a call: it was OPENED and may be refused, a MESSAGE came, its request HAS_ENDED, it was given UP.
CALLED: Final = 0
MESSAGE: Final = 1
HAS_ENDED: Final = 2
GIVEN_UP: Final = 3


class GrpcCall:
    """One call of a method."""

    def __init__(self, stream: Stream, path: bytes, metadata: dict[bytes, bytes], now_s: float) -> None:
        self.stream: Stream = stream
        self.path: bytes = path
        self.metadata: dict[bytes, bytes] = metadata
        self.began_s: float = now_s
        # How long the client waits, in seconds; 0.0 where it does not say.
        self.timeout_s: float = 0.0
        # What the service keeps with the call.
        self.state: object = None
        # The method of a request that is none of gRPC, which is answered when it is complete.
        self.plain: bytes = b""
        # Whether the client goes on to send messages. Any other request has to be complete in time.
        self.is_streaming: bool = False
        self.has_ended: bool = False
        self.is_answered: bool = False
        self.sent_head: bool = False
        self.chunks: list[bytes] = []
        self.held: i64 = 0
        self.needed: i64 = _PREFIX


class CallEvent:
    """What happened to a call."""

    def __init__(self, kind: int, call: GrpcCall, message: bytes = b"", *, ended: bool = False) -> None:
        self.kind: int = kind
        self.call: GrpcCall = call
        self.message: bytes = message
        # Whether this is the last message of the request.
        self.ended: bool = ended


class GrpcConnection:
    """The calls of one connection."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.http = Http2Connection(now_s)
        # Bytes of messages that are not complete.
        self.held: int = 0
        self._events: list[CallEvent] = []

    @property
    def calls(self) -> list[GrpcCall]:
        """Return the calls that are not answered yet."""
        return [one.call for one in self.http.streams.values() if isinstance(one.call, GrpcCall)]

    # -- in

    def receive(self, data: bytes, now_s: float) -> list[CallEvent]:
        """Take received bytes and return what they bring about."""
        for event in self.http.receive(data, now_s):
            stream = event.stream
            if event.kind == OPENED:
                self._opened(stream, now_s, ended=event.ended)
            else:
                call = stream.call
                if not isinstance(call, GrpcCall):
                    continue
                if call.plain:
                    self._plain_data(call, event)
                elif event.kind == DATA:
                    if not call.is_answered:
                        self._data(call, event.data, ended=event.ended)
                else:
                    self._forget(call)
                    call.has_ended = call.is_answered = True
                    self._events.append(CallEvent(GIVEN_UP, call))
        events, self._events = self._events, []
        return events

    def _opened(self, stream: Stream, now_s: float, *, ended: bool) -> None:
        if stream.is_too_large:
            self._refuse(stream, RESOURCE_EXHAUSTED, "the header fields are too large")
            return
        path = method = b""
        metadata: dict[bytes, bytes] = {}
        for field in stream.fields:
            kind = field.kind
            if kind == PATH:
                path = field.value
            elif kind == METHOD:
                method = field.value
            else:
                metadata[field.name] = field.value
        stream.fields = []
        content = metadata.get(b"content-type", b"")
        if method != b"POST" or not _is_grpc(content):
            # An answer before the end of the request would hide what is wrong with the rest of it.
            stream.call = plain = GrpcCall(stream, path, metadata, now_s)
            plain.plain = method
            if ended:
                self._answer_http(plain)
            return
        call = GrpcCall(stream, path, metadata, now_s)
        timeout = metadata.get(b"grpc-timeout")
        if timeout is not None:
            seconds = _seconds(timeout)
            if seconds < 0.0:
                self._refuse(stream, INTERNAL, "grpc-timeout is not a number with a unit")
                return
            call.timeout_s = max(seconds, 1e-9)
        stream.call = call
        call.has_ended = ended
        self._events.append(CallEvent(CALLED, call))
        if ended:
            self._events.append(CallEvent(HAS_ENDED, call, ended=True))

    def _plain_data(self, call: GrpcCall, event: StreamEvent) -> None:
        if event.kind == DATA:
            self.http.consumed(call.stream)
            if event.ended:
                self._answer_http(call)

    def _answer_http(self, call: GrpcCall) -> None:
        """Tell somebody who does not speak gRPC, such as a browser, what this is."""
        call.is_answered = True
        words = b"This port serves gRPC: POST with content-type application/grpc.\n"
        status = b"415" if call.plain == b"POST" else b"405"
        self.http.send_headers(call.stream, literal(b":status", status) + _TEXT, ends=call.plain == b"HEAD")
        self.http.send_data(call.stream, words, ends=True)

    def _data(self, call: GrpcCall, data: bytes, *, ended: bool) -> None:
        call.chunks.append(data)
        size: i64 = len(data)
        call.held += size
        self.held += len(data)
        call.has_ended = ended
        told = False
        if call.held >= call.needed:
            joined = b"".join(call.chunks) if len(call.chunks) > 1 else data
            told = self._messages(call, joined, ended)
        elif call.needed > _PREFIX and not ended:
            self.http.want(call.stream, call.needed - call.held)
        if ended and call.held and not call.is_answered:
            self.fail(call, INTERNAL, "the request ends inside a message")
        elif ended and not told and not call.is_answered:
            self._events.append(CallEvent(HAS_ENDED, call, ended=True))

    def _messages(self, call: GrpcCall, data: bytes, ended: bool) -> bool:
        """Take every whole message, and keep the rest. Return whether the last of the request was among them."""
        size: i64 = len(data)
        at: i64 = 0
        before: i64 = call.held
        call.needed = _PREFIX
        is_last = False
        while size - at >= _PREFIX:
            length: i64 = i64(read_i32_be(data, at + 1)) & 0xFFFFFFFF
            if data[at]:
                self.fail(call, UNIMPLEMENTED, "compressed messages are not accepted; send identity", _ACCEPTED)
                return False
            if length > MESSAGE_MAX:
                self.fail(call, RESOURCE_EXHAUSTED, f"a message has at most {MESSAGE_MAX} bytes, this one {length}")
                return False
            end: i64 = at + _PREFIX + length
            if end > size:
                call.needed = _PREFIX + length
                break
            is_last = ended and end == size
            self._events.append(CallEvent(MESSAGE, call, data[int(at + _PREFIX) : int(end)], ended=is_last))
            at = end
        call.held = size - at
        self.held -= before - call.held
        call.chunks = [data[int(at) :]] if at < size else []
        if call.needed > _PREFIX:
            if not ended:
                self.http.want(call.stream, call.needed - call.held)
        elif not ended:
            self.http.consumed(call.stream)
        return is_last

    def _forget(self, call: GrpcCall) -> None:
        self.held -= call.held
        call.held = 0
        call.chunks = []

    # -- out

    def answer(self, call: GrpcCall, message: bytes) -> None:
        """Answer with one message, and end the call."""
        if call.is_answered:
            return
        call.is_answered = True
        self.http.answer(call.stream, _HEAD, prefixed(message), _TRAILERS_OK)

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Send one message of a stream of answers."""
        if call.is_answered:
            return
        self._send_head(call)
        self.http.send_data(call.stream, prefixed(message))

    def send_all(self, call: GrpcCall, messages: list[bytes]) -> None:
        """Send several messages of a stream of answers, in as few frames as they fit."""
        if call.is_answered:
            return
        self._send_head(call)
        out = BytesWriter()
        for message in messages:
            out.append(0)
            write_i32_be(out, len(message))
            out.write(message)
        self.http.send_data(call.stream, out.getvalue())

    def _send_head(self, call: GrpcCall) -> None:
        if not call.sent_head:
            call.sent_head = True
            self.http.send_headers(call.stream, _HEAD)

    def open(self, call: GrpcCall) -> None:
        """Tell the client that a stream of answers begins."""
        if not call.is_answered:
            self._send_head(call)

    def end(self, call: GrpcCall) -> None:
        """End a stream of answers."""
        if not call.is_answered:
            self._send_head(call)
            call.is_answered = True
            self.http.send_data(call.stream, b"", trailers=_TRAILERS_OK)

    def fail(self, call: GrpcCall, status: int, words: str, more: bytes = b"") -> None:
        """End a call with a status of gRPC."""
        if call.is_answered:
            return
        call.is_answered = True
        self._forget(call)
        trailers = _trailers(status, words) + more
        if call.sent_head:
            self.http.send_data(call.stream, b"", trailers=trailers)
        else:
            self.http.send_headers(call.stream, _HEAD + trailers, ends=True)

    def _refuse(self, stream: Stream, status: int, words: str) -> None:
        self.http.send_headers(stream, _HEAD + _trailers(status, words), ends=True)

    def cut(self, call: GrpcCall) -> None:
        """End a call whose request does not come to an end."""
        self._forget(call)
        call.is_answered = True
        self.http.reset(call.stream, CANCEL)


def _trailers(status: int, words: str) -> bytes:
    message = b"".join(
        bytes((one,)) if one in _PLAIN else b"%%%02X" % one for one in words.encode("utf-8", "replace")[:1024]
    )
    return literal(b"grpc-status", str(status).encode()) + literal(b"grpc-message", message)


def prefixed(message: bytes) -> bytes:
    """Return a message with its flag and length before it."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def _is_grpc(content: bytes) -> bool:
    if content == b"application/grpc":
        return True
    base = content.split(b";", 1)[0].strip()
    return base in (b"application/grpc", b"application/grpc+proto")


def _seconds(timeout: bytes) -> float:
    """Return the seconds of up to eight digits and a unit; -1.0 for anything else."""
    size: i64 = len(timeout) - 1
    if size < 1 or size > _TIMEOUT_DIGITS_MAX:
        return -1.0
    unit = _UNITS_S.get(timeout[int(size) :])
    number: i64 = whole(timeout, 0, size)
    if unit is None or number < 0:
        return -1.0
    return int(number) * unit
