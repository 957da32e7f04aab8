"""Cases of HTTP/2 on the broker's ports: floods, bombs, windows that never open, streams that are never finished."""

from __future__ import annotations

from typing import Final

from aerobee.hot.h2 import frames
from aerobee.hot.h2.frames import frame, word
from aerobee.hot.h2.hpack import literal
from aerobee.testing.hostile.attacker import Attacker, Line
from aerobee.testing.hostile.requests import case, make_topic

_BEGIN: Final = frames.PREFACE + frame(frames.SETTINGS, 0, 0)
_ROUTE: Final = "/apache.rocketmq.v2.MessagingService/QueryRoute"
_SEND: Final = "/apache.rocketmq.v2.MessagingService/SendMessage"
_RECEIVE: Final = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
_TELEMETRY: Final = "/apache.rocketmq.v2.MessagingService/Telemetry"
# A request of a route: the topic `witness`, and one IPv4 address.
_WITNESS: Final = b"\x0a\x09\x12\x07witness\x12\x0f\x08\x01\x12\x0b\x0a\x07a.b.c.d\x10\x01"
_FLOOD: Final = 20_000


def _headers(path: str, *more: tuple[bytes, bytes]) -> bytes:
    """Return the header block of a call."""
    fields = (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"a"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"x-mq-client-id", b"attacker@1"), *more,
    )  # fmt: skip
    return b"".join(literal(name, value) for name, value in fields)


def _call(stream: int, path: str = _ROUTE, message: bytes = _WITNESS) -> bytes:
    """Return the frames of a whole call."""
    body = b"\x00" + word(len(message)) + message
    head = frame(frames.HEADERS, frames.END_HEADERS, stream, _headers(path))
    return head + frame(frames.DATA, frames.END_STREAM, stream, body)


def _begun(attacker: Attacker, settings: bytes = b"") -> Line:
    line = attacker.line()
    line.write(frames.PREFACE + frame(frames.SETTINGS, 0, 0, settings))
    return line


def _flood(attacker: Attacker, piece: bytes, times: int = _FLOOD, begin: bytes = b"") -> None:
    """Send the same frames many times, on three connections, each until the server closes it."""
    for _ in range(3):
        line = _begun(attacker)
        if begin:
            line.write(begin)
        block = piece * 500
        for _ in range(times // 500):
            if not line.write(block):
                break


@case("HTTP/2: rapid reset")
def rapid_reset(attacker: Attacker) -> None:
    reset = word(frames.CANCEL)
    for path in (_ROUTE, _RECEIVE, _TELEMETRY):
        line, number = _begun(attacker), 1
        while number < 2 * _FLOOD:
            pieces = []
            for stream in range(number, number + 400, 2):
                pieces += [_call(stream, path), frame(frames.RST_STREAM, 0, stream, reset)]
            number += 400
            if not line.write(b"".join(pieces)):
                break


@case("HTTP/2: the server is made to reset streams")
def made_to_reset(attacker: Attacker) -> None:
    line, number = _begun(attacker), 1
    while number < 2 * _FLOOD:
        head = _headers(_ROUTE)
        pieces = [
            frame(frames.HEADERS, frames.END_HEADERS, stream, head) + frame(frames.WINDOW_UPDATE, 0, stream, word(0))
            for stream in range(number, number + 400, 2)
        ]
        number += 400
        if not line.write(b"".join(pieces)):
            break


@case("HTTP/2: CONTINUATION without end")
def continuations(attacker: Attacker) -> None:
    head = frame(frames.HEADERS, 0, 1, _headers(_ROUTE))
    for payload in (b"", literal(b"x", b"y"), literal(b"x", b"y" * 16_000)):
        _flood(attacker, frame(frames.CONTINUATION, 0, 1, payload), 2_000, head)


@case("HTTP/2: floods of PING, SETTINGS, PRIORITY, empty DATA, WINDOW_UPDATE and unknown frames")
def small_frames(attacker: Attacker) -> None:
    _flood(attacker, frame(frames.PING, 0, 0, b"12345678"))
    _flood(attacker, frame(frames.PING, frames.ACK, 0, b"12345678"))
    _flood(attacker, frame(frames.SETTINGS, 0, 0))
    _flood(attacker, frame(frames.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x01" * 2_000), 2_000)
    _flood(attacker, frame(frames.SETTINGS, frames.ACK, 0))
    _flood(attacker, frame(frames.PRIORITY, 0, 3, word(1) + b"\x00"))
    _flood(attacker, frame(frames.DATA, 0, 1), begin=frame(frames.HEADERS, 4, 1, _headers(_SEND)))
    _flood(attacker, frame(frames.WINDOW_UPDATE, 0, 0, word(1)))
    _flood(attacker, frame(0xBB, 0, 0, b"x" * 100))
    _flood(attacker, frame(frames.GOAWAY, 0, 0, bytes(8)))


@case("HTTP/2: padding and windows that change back and forth over many streams")
def windows_back_and_forth(attacker: Attacker) -> None:
    padded = frame(frames.DATA, frames.PADDED, 1, b"\xff" + bytes(255))
    _flood(attacker, padded, begin=frame(frames.HEADERS, 4, 1, _headers(_SEND)))
    line = _begun(attacker, b"\x00\x04" + word(0))
    line.write(b"".join(_call(stream) for stream in range(1, 1_999, 2)))
    change = frame(frames.SETTINGS, 0, 0, b"\x00\x04" + word(1)) + frame(frames.SETTINGS, 0, 0, b"\x00\x04" + word(0))
    for _ in range(2_000):
        if not line.write(change):
            break


@case("HTTP/2: HPACK bombs")
def hpack_bombs(attacker: Attacker) -> None:
    """One large entry of the table, named again and again; numbers and texts without end; bad Huffman codes."""
    plain = _headers(_ROUTE)
    entry = b"\x40" + literal(b"a" * 2_000, b"v" * 2_000)[1:]
    for block in (
        plain + entry + b"\xbe" * 12_000,
        plain + b"\xbe" * 16_000,
        plain + b"\x3f" + b"\xff" * 15_000,
        plain + b"\x00\x7f" + b"\xff" * 15_000,
        plain + b"\x00\x01x\xff" + b"\xff" * 10_000,
        b"\x20" * 16_000,
        b"\x3f\xe1\x1f" * 5_000,
    ):
        for _ in range(20):
            line = _begun(attacker)
            for stream in range(1, 40, 2):
                if not line.write(frame(frames.HEADERS, frames.END_HEADERS, stream, block[: frames.PAYLOAD_MAX])):
                    break


@case("HTTP/2: a hundred thousand streams that stay half open")
def half_open(attacker: Attacker) -> None:
    for path in (_SEND, _RECEIVE, _TELEMETRY):
        for part in (b"", b"\x00\x00\x40\x00\x00half"):
            line, number, head = _begun(attacker), 1, _headers(path)
            while number < 34_000:
                pieces = []
                for stream in range(number, number + 1_000, 2):
                    pieces.append(frame(frames.HEADERS, frames.END_HEADERS, stream, head))
                    if part:
                        pieces.append(frame(frames.DATA, 0, stream, part))
                number += 1_000
                if not line.write(b"".join(pieces)):
                    break


@case("HTTP/2: messages that announce 4 GiB and bring as much as they may")
def endless_messages(attacker: Attacker) -> None:
    for announced in (0xFFFFFFFF, 4 << 20):
        for _ in range(8):
            line = _begun(attacker)
            for stream in range(1, 400, 2):
                line.write(frame(frames.HEADERS, frames.END_HEADERS, stream, _headers(_SEND)))
                first = b"\x00" + word(announced) + bytes(16_000)
                if not line.write(
                    frame(frames.DATA, 0, stream, first) + 2 * frame(frames.DATA, 0, stream, bytes(16_000))
                ):
                    break


@case("HTTP/2: readers who read nothing, with windows open and shut")
def slow_readers(attacker: Attacker) -> None:
    for settings in (b"", b"\x00\x04" + word(0), b"\x00\x04" + word(0x7FFFFFFF)):
        for _ in range(10):
            line = _begun(attacker, settings)
            line.write(frame(frames.WINDOW_UPDATE, 0, 0, word(0x7FFF0000)))
            for first in range(1, 8_000, 400):
                if not line.write(b"".join(_call(stream) for stream in range(first, first + 400, 2))):
                    break


@case("HTTP/2: calls of every kind with broken messages")
def broken_messages(attacker: Attacker) -> None:
    line, number = _begun(attacker), 1
    for name in ("SendMessage", "ReceiveMessage", "AckMessage", "Heartbeat", "Telemetry", "EndTransaction", "No", ""):
        for message in (b"", b"\xff" * 1_000, b"\x0a" * 60_000, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 10_000):
            path = f"/apache.rocketmq.v2.MessagingService/{name}"
            body = b"\x00" + word(len(message)) + message
            line.write(frame(frames.HEADERS, frames.END_HEADERS, number, _headers(path)))
            for at in range(0, len(body), 16_000):
                ends = frames.END_STREAM if at + 16_000 >= len(body) else 0
                line.write(frame(frames.DATA, ends, number, body[at : at + 16_000]))
            number += 2
            line.skim()


@case("HTTP/2: messages of very many empty parts")
def many_empty_parts(attacker: Attacker) -> None:
    """Two bytes can be an object each, before anybody has looked at what they mean."""
    for name, part in (("AckMessage", b"\x1a\x00"), ("SendMessage", b"\x0a\x00"), ("Heartbeat", b"\x78\x01")):
        for _ in range(3):
            line = _begun(attacker)
            message = part * 30_000
            body = b"\x00" + word(len(message)) + message
            for stream in range(1, 40, 2):
                path = f"/apache.rocketmq.v2.MessagingService/{name}"
                line.write(frame(frames.HEADERS, frames.END_HEADERS, stream, _headers(path)))
                for at in range(0, len(body), 16_000):
                    ends = frames.END_STREAM if at + 16_000 >= len(body) else 0
                    line.write(frame(frames.DATA, ends, stream, body[at : at + 16_000]))
                line.skim()


@case("HTTP/2: many questions for the route of the widest topic")
def wide_routes(attacker: Attacker) -> None:
    make_topic(attacker.line(), "wide", "8192")
    wide = _WITNESS.replace(b"\x0a\x09\x12\x07witness", b"\x0a\x06\x12\x04wide")
    for _ in range(3):
        line = _begun(attacker)
        line.write(b"".join(_call(stream, _ROUTE, wide) for stream in range(1, 120, 2)))
        line.skim()
