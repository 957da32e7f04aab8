"""Cases of the HTTP port for metrics: heads that never end, crowds of connections, pages that nobody reads."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from aerobee.model.numbers import parse_int
from aerobee.testing.hostile.attacker import PATIENCE_S, Attacker
from aerobee.testing.hostile.requests import case

_GET: Final = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
_CROWD: Final = 1_000
_TRICKLES: Final = 60
_FLOOD: Final = 4 << 20


@contextlib.contextmanager
def _crowd(attacker: Attacker, count: int) -> Iterator[list[socket.socket]]:
    """Open so many connections to the port."""
    host, _, port = attacker.metrics.rpartition(":")
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection((host, parse_int(port)), PATIENCE_S))
        yield opened
    finally:
        for one in opened:
            one.close()


def _write(one: socket.socket, data: bytes) -> bool:
    """Send bytes; return False where the server closed the connection."""
    try:
        one.sendall(data)
    except OSError:
        return False
    return True


def _answer(one: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := one.recv(1 << 16):
            said += data
    return said


def _is_served(attacker: Attacker) -> None:
    """Assert that whoever comes now is answered."""
    with _crowd(attacker, 1) as (one,):
        assert _write(one, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = _answer(one)
        assert said.startswith(b"HTTP/1.1 200 "), said[:200]


@case("metrics port: heads that trickle in on sixty connections")
def trickles(attacker: Attacker) -> None:
    head = _GET + b"X-Slow: " + b"a" * 400 + b"\r\n\r\n"
    with _crowd(attacker, _TRICKLES) as crowd:
        for place in range(0, len(head) - 4):  # it never ends
            for one in crowd:
                _write(one, head[place : place + 1])
        _is_served(attacker)


@case("metrics port: heads that are too large")
def large_heads(attacker: Attacker) -> None:
    for name in (b"X-Large: " + b"a" * _FLOOD, b"X: a\r\n" * (_FLOOD // 6), b"\r\n" * (_FLOOD // 2), b"\x00" * _FLOOD):
        with _crowd(attacker, 3) as crowd:
            for one in crowd:
                _write(one, _GET + name)
                said = _answer(one)
                # A reset may overtake the answer.
                assert said[:13] in (b"", b"HTTP/1.1 400 "), said[:200]
    _is_served(attacker)


@case("metrics port: a thousand connections that ask nothing")
def idle_crowd(attacker: Attacker) -> None:
    with _crowd(attacker, _CROWD):
        _is_served(attacker)
    _is_served(attacker)


@case("metrics port: pages that nobody reads")
def unread_pages(attacker: Attacker) -> None:
    with _crowd(attacker, _TRICKLES) as crowd:
        for one in crowd:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            _write(one, (_GET + b"\r\n") * 50)
    with _crowd(attacker, _TRICKLES) as crowd:
        for one in crowd:
            _write(one, _GET + b"Accept-Encoding: gzip\r\n\r\n")
        _is_served(attacker)


@case("metrics port: requests that are none")
def nonsense(attacker: Attacker) -> None:
    heads = (
        b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n",
        b"\x16\x03\x01\x02",
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept-Encoding: " + b"gzip;q=1," * 700 + b"\r\nConnection: close\r\n\r\n",
    )
    for head in heads:
        with _crowd(attacker, 1) as (one,):
            _write(one, head)
            one.shutdown(socket.SHUT_WR)
            said = _answer(one)
            assert b"root:" not in said and not said.startswith(b"HTTP/1.1 500"), said[:200]
    _is_served(attacker)
