"""What a handler should not do: the asker gets an answer, the log one line, and the connection stays."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from aerobee.hot.wire.frame import Frame
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.limits import ConnectionLimits
from aerobee.net.server import Server
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, encode_command, request, response
from aerobee.runtime.clock import SystemClock
from aerobee.testing.workload import eventually

FAST, SLOW, LARGE, FINE = 10, 11, 12, 13


def fast(channel: Channel, frame: Frame) -> None:
    raise ValueError("fast")


def slow(channel: Channel, command: Command) -> Command:
    raise KeyError("slow")


def large(channel: Channel, command: Command) -> Command:
    return response(command, body=bytes(17 << 20))


def fine(channel: Channel, command: Command) -> Command:
    return response(command)


Ask = Callable[[int], Awaitable[Command]]


def serve(body: Callable[[Ask], Awaitable[None]]) -> None:
    async def run() -> None:
        server = Server("failing", {SLOW: slow, LARGE: large, FINE: fine}, clock=SystemClock(), fast={FAST: fast})
        port = await server.listen("127.0.0.1", 0)
        client = RemotingClient()
        try:
            await body(
                lambda code: client.call(f"127.0.0.1:{port}", request(code, opaque=client.next_opaque()), timeout_s=60)
            )
            assert len(server.channels) == 1, "the connection was not kept"
        finally:
            await client.close()
            await server.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "text"), [(FAST, "ValueError: fast"), (SLOW, "KeyError: 'slow'"), (LARGE, "too large")]
)
def test_a_failing_handler_is_answered_and_the_connection_stays(code: int, text: str) -> None:
    async def body(ask: Ask) -> None:
        answer = await ask(code)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert text in (answer.remark or "")
        assert (await ask(FINE)).code == ResponseCode.SUCCESS

    serve(body)


def test_failures_that_a_peer_repeats_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def body(ask: Ask) -> None:
        for _ in range(20):
            await ask(FAST)
            await ask(SLOW)

    with caplog.at_level(logging.ERROR, logger="aerobee"):
        serve(body)
    assert len([one for one in caplog.records if "request failed" in one.getMessage()]) == 2


def test_a_peer_that_reads_nothing_is_cut_as_soon_as_its_answers_fill_memory() -> None:
    """Answers may come from the disk or a timer, much faster than the sweep of once a second."""
    sent = 0

    def flood(channel: Channel, command: Command) -> None:
        loop = asyncio.get_running_loop()

        def more() -> None:
            nonlocal sent
            if not channel.closed and sent < 100:
                sent += 1
                channel.send(response(command, body=bytes(1 << 20)))
                loop.call_soon(more)

        more()

    async def run() -> None:
        limits = ConnectionLimits(write_buffer_bytes_max=8 << 20, write_high_water_bytes=1 << 20)
        server = Server("flood", {SLOW: flood}, clock=SystemClock(), limits=limits)
        port = await server.listen("127.0.0.1", 0)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", port))
            deaf.sendall(encode_command(request(SLOW, opaque=1)))
            await eventually(lambda: sent and not server.channels)
        assert sent < 30, "it was not cut before 8 MiB and what the system buffers"
        await server.close()

    asyncio.run(run())
