"""Blocking connections and iterators run ahead: whole reads, ends and errors that arrive where they are read."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from aerobee.runtime.blocking import BlockingStream, ahead, wait_readable
from aerobee.runtime.net import RealNet


def pair() -> tuple[BlockingStream, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = BlockingStream("127.0.0.1", server.getsockname()[1], 30.0)
        return stream, server.accept()[0]


def test_a_read_is_whole_however_it_comes_and_says_when_it_ends() -> None:
    stream, peer = pair()
    with peer:
        assert stream.is_quiet()
        peer.sendall(b"ab")
        assert wait_readable([stream], 30.0) == [stream]
        threading.Timer(0.05, peer.sendall, (b"cdef",)).start()
        assert stream.receive(5) == b"abcde"
        stream.send(b"x")
        assert peer.recv(1) == b"x"
        stream.set_timeout(0.01)
        with pytest.raises(TimeoutError):
            stream.receive(2)
    with pytest.raises(ConnectionError):
        stream.receive(1)
    stream.close()


def test_a_name_that_no_host_can_have_is_an_error_of_the_connection() -> None:
    for host in ("a..b", "x" * 64, "é" * 80):
        with pytest.raises(OSError, match="is no name of a host"):
            BlockingStream(host, 1, 30.0)
        with pytest.raises(OSError, match="is no name of a host"):
            asyncio.run(RealNet().connect(host, 1, asyncio.Protocol))


def test_items_come_in_order_and_the_error_after_them() -> None:
    def make() -> Iterator[int]:
        yield from range(5)
        raise ValueError("the end")

    seen = []
    with pytest.raises(ValueError, match="the end"):
        for item in ahead(make, 2, "test"):
            seen.append(item)
    assert seen == [0, 1, 2, 3, 4]
    assert list(ahead(lambda: iter(()), 1, "test")) == []


def test_no_more_than_asked_is_made_and_leaving_early_cleans_up() -> None:
    made: list[int] = []
    closed = threading.Event()

    def make() -> Iterator[int]:
        try:
            for number in range(1000):
                made.append(number)
                yield number
        finally:
            closed.set()

    items = ahead(make, 2, "test")
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]  # a generator
    assert closed.wait(30)
    assert len(made) <= 5
