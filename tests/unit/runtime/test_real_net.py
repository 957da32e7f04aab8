"""Real sockets, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest
import uvloop

from aerobee.runtime.net import RealNet


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_only_one_of_two_that_bound_a_port_gets_it(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Linux lets both bind it before one listens, as two brokers do that start at once."""

    async def main() -> None:
        net = RealNet()
        first = await net.listen("127.0.0.1", 0, asyncio.Protocol, start=False)
        second = await net.listen("127.0.0.1", first.port, asyncio.Protocol, start=False)
        await first.start()
        try:
            with pytest.raises(OSError, match="in use") as told:
                await second.start()
            assert told.value.errno == errno.EADDRINUSE
            with pytest.raises(OSError, match="in use"):
                await net.listen("127.0.0.1", first.port, asyncio.Protocol)
            transport, _ = await net.connect("127.0.0.1", first.port, asyncio.Protocol)
            transport.close()
        finally:
            first.close()
            second.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
