"""What every Net promises: loopback sockets on asyncio and on uvloop, and the simulated network on virtual
time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Net
from aerobee.testing.loop import run_virtual
from aerobee.testing.net import SimNet, Weather

Run = Callable[[Callable[[Net], Awaitable[None]]], None]


class Peer(asyncio.Protocol):
    """Keeps what it is told, and lets a test wait for it."""

    def __init__(self, *, is_echo: bool = False, keeps_half_open: bool = False) -> None:
        self.is_echo = is_echo
        self.keeps_half_open = keeps_half_open
        self.data = bytearray()
        self.events: list[str] = []
        self.changed = asyncio.Event()

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no instances of it
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.changed.set()
        if self.is_echo:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self._note("eof")
        return self.keeps_half_open

    def connection_lost(self, error: Exception | None) -> None:
        self._note("lost" if error is None else "broken")

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def _run_sockets(loop_factory: Callable[[], asyncio.AbstractEventLoop] | None) -> Run:
    def run(scenario: Callable[[Net], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(20):
                await scenario(RealNet())

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

    return run


def _run_simulated(weather: Weather) -> Run:
    def run(scenario: Callable[[Net], Awaitable[None]]) -> None:
        async def main(loop: asyncio.AbstractEventLoop) -> None:
            await scenario(SimNet(loop, seed=3, weather=weather).host("10.0.0.1"))

        run_virtual(main, seed=3, shuffle=True)

    return run


RUNS = {
    "asyncio": _run_sockets(None),
    "uvloop": _run_sockets(uvloop.new_event_loop),
    "simulated": _run_simulated(Weather()),
    "trickling": _run_simulated(Weather(chunk_bytes_max=1)),
}


@pytest.fixture(params=list(RUNS))
def run(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


async def _pair(net: Net, **of_server: bool) -> tuple[Peer, Peer]:
    """A client and a server end, connected; nobody listens any more."""
    server = Peer(**of_server)
    listener = await net.listen("127.0.0.1", 0, lambda: server)
    transport, client = await net.connect("127.0.0.1", listener.port, Peer)
    assert client.transport is transport and client.events == ["made"]
    await server.until(lambda: bool(server.events))
    listener.close()
    return client, server


def test_bytes_come_back_in_order(run: Run) -> None:
    async def scenario(net: Net) -> None:
        client, server = await _pair(net, is_echo=True)
        sent = b""
        for number in range(200):
            sent += str(number).encode()
            client.transport.write(str(number).encode())
        await client.until(lambda: len(client.data) == len(sent))
        assert client.data == sent == server.data
        assert client.transport.get_extra_info("peername")[:2] == server.transport.get_extra_info("sockname")[:2]
        assert client.transport.get_extra_info("sockname")[:2] == server.transport.get_extra_info("peername")[:2]
        client.transport.close()
        await server.until(lambda: "lost" in server.events)

    run(scenario)


def test_a_close_is_told_to_both_once_and_after_the_last_byte(run: Run) -> None:
    async def scenario(net: Net) -> None:
        client, server = await _pair(net)
        client.transport.write(b"last words")
        client.transport.close()
        client.transport.close()
        assert client.transport.is_closing()
        await server.until(lambda: "lost" in server.events)
        await client.until(lambda: "lost" in client.events)
        assert server.data == b"last words"
        assert server.events == ["made", "eof", "lost"]
        assert client.events == ["made", "lost"]

    run(scenario)


def test_a_half_closed_connection_still_carries_the_answer(run: Run) -> None:
    async def scenario(net: Net) -> None:
        client, server = await _pair(net, keeps_half_open=True)
        client.transport.write(b"question")
        client.transport.write_eof()
        await server.until(lambda: "eof" in server.events)
        server.transport.write(b"answer")
        server.transport.close()
        await client.until(lambda: "lost" in client.events)
        assert client.data == b"answer" and server.data == b"question"

    run(scenario)


def test_an_abort_is_the_end_for_both(run: Run) -> None:
    async def scenario(net: Net) -> None:
        client, server = await _pair(net)
        client.transport.write(b"x")
        await server.until(lambda: bool(server.data))
        client.transport.abort()
        await client.until(lambda: len(client.events) == 2)
        server.transport.write(b"y")
        await server.until(lambda: server.events[-1] in ("lost", "broken"))

    run(scenario)


def test_nobody_listening_is_refused(run: Run) -> None:
    async def scenario(net: Net) -> None:
        listener = await net.listen("127.0.0.1", 0, Peer)
        port = listener.port
        assert port > 0 and listener.host == "127.0.0.1"
        listener.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await net.connect("127.0.0.1", port, Peer)

    run(scenario)


def test_a_port_is_bound_once(run: Run) -> None:
    async def scenario(net: Net) -> None:
        listener = await net.listen("127.0.0.1", 0, Peer)
        with pytest.raises(OSError, match=r"(?i)address already in use"):
            await net.listen("127.0.0.1", listener.port, Peer)
        listener.close()

    run(scenario)


def test_a_reader_that_pauses_makes_the_writer_pause(run: Run) -> None:
    async def scenario(net: Net) -> None:
        client, server = await _pair(net)
        server.transport.pause_reading()
        sent = 0
        chunk = bytes(1 << 10)
        while "pause" not in client.events:
            client.transport.write(chunk)
            sent += len(chunk)
            await asyncio.sleep(0)
        assert not server.transport.is_reading() and len(server.data) < sent
        server.transport.resume_reading()
        await client.until(lambda: "resume" in client.events)
        await server.until(lambda: len(server.data) == sent)
        client.transport.close()
        await server.until(lambda: "lost" in server.events)

    run(scenario)


def test_a_port_that_is_bound_refuses_until_it_is_started(run: Run) -> None:
    async def scenario(net: Net) -> None:
        listener = await net.listen("127.0.0.1", 0, lambda: Peer(is_echo=True), start=False)
        with pytest.raises(OSError):
            await net.connect("127.0.0.1", listener.port, Peer)
        await listener.start()
        transport, client = await net.connect("127.0.0.1", listener.port, Peer)
        transport.write(b"hi")
        await client.until(lambda: client.data == b"hi")
        transport.close()
        await client.until(lambda: "lost" in client.events)
        listener.close()
        await listener.wait_closed()

    run(scenario)
