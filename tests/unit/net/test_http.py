"""The HTTP port for monitoring, as a machine and over connections in memory."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterator

import pytest

from aerobee.net.http import CONNECTIONS_MAX, HEAD_BYTES_MAX, Get, Gets, HttpPort, HttpRefusedError, Page, text_page
from aerobee.testing.clock import VirtualClock
from aerobee.testing.loop import run_virtual
from aerobee.testing.net import SimNet


def read(data: bytes) -> Get | None:
    gets = Gets()
    gets.receive(data)
    return gets.next()


def test_a_request_byte_by_byte() -> None:
    gets = Gets()
    data = b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br, gzip\r\n\r\n"
    for place in range(len(data) - 1):
        gets.receive(data[place : place + 1])
        assert gets.next() is None
    gets.receive(data[-1:])
    assert gets.next() == Get("/metrics", takes_gzip=True, closes=False)
    assert not gets.has_begun


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        ("gzip", True),
        ("GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("deflate", False),
        ("", False),
    ],
)
def test_compression_is_what_the_client_takes(header: str, takes: bool) -> None:
    found = read(f"GET / HTTP/1.1\r\nAccept-Encoding: {header}\r\n\r\n".encode())
    assert found is not None
    assert found.takes_gzip is takes


def test_old_clients_close() -> None:
    assert read(b"GET / HTTP/1.0\r\n\r\n") == Get("/", takes_gzip=False, closes=True)
    assert read(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") == Get("/", takes_gzip=False, closes=False)
    assert read(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n") == Get("/", takes_gzip=False, closes=True)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01" + b"x" * HEAD_BYTES_MAX, 400),
        (b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 400),
        (b"x" * 3 * HEAD_BYTES_MAX, 400),
    ],
)
def test_what_is_not_served_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(HttpRefusedError) as refused:
        read(data)
    assert refused.value.status == status


# -- over connections


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.closed = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class Stand:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.net = SimNet(loop, seed=1)
        self.pages: dict[str, Callable[[], Page]] = {"/": lambda: text_page(200, "hello")}
        self.port = HttpPort(self.pages, VirtualClock(loop.time), self.net.host("10.0.0.1"))

    async def connect(self) -> Client:
        _, client = await self.net.host("10.0.0.2").connect("10.0.0.1", 80, Client)
        return client

    async def get(self, path: str, *headers: str) -> tuple[bytes, bytes]:
        client = await self.connect()
        lines = [f"GET {path} HTTP/1.1", "Connection: close", *headers, "", ""]
        client.transport.write("\r\n".join(lines).encode())
        await client.closed.wait()
        head, _, body = client.data.partition(b"\r\n\r\n")
        return head, body


def run(main: Callable[[Stand], Awaitable[None]]) -> None:
    async def start(loop: asyncio.AbstractEventLoop) -> None:
        stand = Stand(loop)
        await stand.port.listen("10.0.0.1", 80)
        await main(stand)
        await stand.port.close()

    run_virtual(start)


def test_a_page_and_a_path_that_does_not_exist() -> None:
    async def main(stand: Stand) -> None:
        head, body = await stand.get("/")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 5" in head
        assert body == b"hello"
        head, body = await stand.get("/other")
        assert head.startswith(b"HTTP/1.1 404 ")
        assert body == b"there are these pages: /\n"

    run(main)


def test_a_large_page_is_compressed_and_whole() -> None:
    def many() -> Iterator[str]:
        for number in range(20_000):
            yield f"line {number} é\n"

    async def main(stand: Stand) -> None:
        stand.pages["/many"] = lambda: Page(200, "text/plain", many())
        head, body = await stand.get("/many", "Accept-Encoding: gzip")
        assert b"Content-Encoding: gzip" in head
        assert gzip.decompress(body).decode() == "".join(many())
        head, body = await stand.get("/many")
        assert b"Content-Encoding" not in head
        assert body.decode() == "".join(many())

    run(main)


def test_requests_of_one_connection_are_answered_in_order() -> None:
    async def main(stand: Stand) -> None:
        stand.pages["/two"] = lambda: text_page(200, "two")
        client = await stand.connect()
        client.transport.write(b"GET / HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\n\r\n")
        await client.closed.wait()
        statuses = [line for line in client.data.split(b"\r\n") if b"HTTP/1.1 " in line]
        assert statuses == [b"HTTP/1.1 200 OK", b"helloHTTP/1.1 200 OK", b"twoHTTP/1.1 405 Method Not Allowed"]

    run(main)


def test_a_page_that_fails_is_an_error_and_no_end() -> None:
    def fails() -> Iterator[str]:
        yield "begun"
        raise RuntimeError("planned")

    def raises() -> Page:
        raise RuntimeError("planned")

    async def main(stand: Stand) -> None:
        stand.pages.update({"/fails": lambda: Page(200, "text/plain", fails()), "/raises": raises})
        for path in ("/fails", "/raises"):
            head, body = await stand.get(path)
            assert head.startswith(b"HTTP/1.1 500 ")
            assert b"planned" not in body
        assert (await stand.get("/"))[1] == b"hello"

    run(main)


def test_who_does_not_finish_a_request_is_cut() -> None:
    async def main(stand: Stand) -> None:
        idle, slow = await stand.connect(), await stand.connect()
        slow.transport.write(b"GET / HT")
        await asyncio.sleep(11)
        assert (slow.closed.is_set(), idle.closed.is_set()) == (True, False)
        await asyncio.sleep(280)
        idle.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        assert idle.data.endswith(b"hello")
        await asyncio.sleep(400)
        assert idle.closed.is_set()

    run(main)


def test_connections_are_bounded_and_the_idlest_goes() -> None:
    """A thousand clients that connect and say nothing keep no scraper out."""

    async def main(stand: Stand) -> None:
        scraper = await stand.connect()
        idle = [await stand.connect() for _ in range(CONNECTIONS_MAX - 1)]
        scraper.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        for _ in range(3):
            assert (await stand.get("/"))[1] == b"hello"
        # Those that the three took the place of; they have closed again, and the others are left alone.
        assert [client.closed.is_set() for client in idle] == [True] + [False] * (CONNECTIONS_MAX - 2)
        more = [await stand.connect() for _ in range(CONNECTIONS_MAX - 2)]
        await asyncio.sleep(1)
        assert not scraper.closed.is_set()
        assert sum(not one.closed.is_set() for one in (scraper, *idle, *more)) == CONNECTIONS_MAX
        assert (await stand.get("/"))[1] == b"hello"

    run(main)


def test_a_request_that_trickles_is_cut() -> None:
    async def main(stand: Stand) -> None:
        client = await stand.connect()
        began_s = asyncio.get_running_loop().time()
        while not client.closed.is_set():
            client.transport.write(b"G")
            await asyncio.sleep(1)
            assert asyncio.get_running_loop().time() - began_s < 15

    run(main)
