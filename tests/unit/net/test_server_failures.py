"""What a handler should not do: the asker gets an answer, the log one line, and the connection stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from aerobee.hot.frame import Frame
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.server import Server
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, request, response
from aerobee.runtime.clock import SystemClock

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
                lambda code: client.call(f"127.0.0.1:{port}", request(code, opaque=client.next_opaque()), timeout_s=5)
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
