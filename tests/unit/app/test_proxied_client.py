"""A client behind a load balancer that speaks the PROXY protocol: its messages carry its own address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.hot.log.record import decode_records
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.testing.workload import RawClient, pull_header

V1 = b"PROXY TCP4 192.0.2.1 127.0.0.1 50000 10911\r\n"
V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes([192, 0, 2, 1, 127, 0, 0, 1, 0xC3, 0x50, 0x2A, 0x9F])


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
def test_the_born_host_is_the_clients(standing: Callable[[], Any], header: bytes) -> None:
    async def main() -> None:
        async with standing() as stand:
            node = stand.broker()
            await node.start()
            client = RawClient(f"127.0.0.1:{node.port}")
            # Before the first request.
            client.remoting.on_open = lambda link: link.write(header)
            assert (await client.send("T", 0, b"one")).code == ResponseCode.SUCCESS
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_header("T", 0, 0, "raw", 0, 10))
            (record,) = decode_records(answer.body)
            assert record.born_host == bytes([192, 0, 2, 1]) + (50000).to_bytes(4, "big")
            await client.close()
            await node.stop()

    asyncio.run(main())
