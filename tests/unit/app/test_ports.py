"""A broker's own port and its fast port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.app.broker import BrokerNode
from aerobee.app.ports import NOT_ON_FAST_PORT
from aerobee.app.process import CannotListenError
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Listener
from aerobee.testing.workload import RawClient

Standing = Callable[[], Any]


def both_of(node: BrokerNode) -> tuple[RawClient, RawClient]:
    return RawClient(f"127.0.0.1:{node.port}"), RawClient(f"127.0.0.1:{node.fast_port}")


def test_the_fast_port_serves_everything_but_pulls(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            node = stand.broker()
            await node.start()
            assert node.fast_port == node.port - 2
            slow, fast = both_of(node)
            await fast.create_topic("T", 1)
            assert (await fast.send("T", 0, b"one")).code == ResponseCode.SUCCESS
            assert (await slow.send("T", 0, b"two")).code == ResponseCode.SUCCESS
            assert await fast.max_offset("T", 0) == 2
            for code in NOT_ON_FAST_PORT:
                answer = await fast.call(code)
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert answer.remark == f" request type {code} not supported"
            _, _, found = await slow.pull("T", 0, 0, hold_ms=0)
            assert [body for _, body in found] == ["one", "two"]
            await slow.close()
            await fast.close()
            await node.stop()
            for port in (node.port, node.fast_port):
                with socket.socket() as probe:
                    assert probe.connect_ex(("127.0.0.1", port)) != 0

    asyncio.run(main())


def test_connections_of_both_ports_are_one_table(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            node = stand.broker()
            await node.start()
            slow, fast = both_of(node)
            for client in (slow, fast):
                await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert len(node.server.channels) == 2
            assert sorted(bool(one.refused) for one in node.server.channels.values()) == [False, True]
            # Two connections, two ids: what is told to one never goes to the other.
            assert all(node.state.channel(channel_id) is one for channel_id, one in node.server.channels.items())
            await slow.close()
            await fast.close()
            await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x7f\xff\xff\xff" + bytes(60)])
def test_junk_on_the_fast_port_closes_its_own_connection_alone(standing: Standing, junk: bytes) -> None:
    async def main() -> None:
        async with standing() as stand:
            node = stand.broker()
            await node.start()
            slow, fast = both_of(node)
            assert (await fast.send("T", 0, b"before")).code == ResponseCode.SUCCESS
            reader, writer = await asyncio.open_connection("127.0.0.1", node.fast_port)
            writer.write(junk)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
            assert (await fast.send("T", 0, b"after")).code == ResponseCode.SUCCESS
            assert await slow.max_offset("T", 0) == 2
            await slow.close()
            await fast.close()
            await node.stop()

    asyncio.run(main())


class RivalNet(RealNet):
    """Sockets of a machine on which another process has bound a port too, and begins to listen before us."""

    def __init__(self, rival: socket.socket) -> None:
        self._rival = rival

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        start: bool = True,
    ) -> Listener:
        listener = await super().listen(host, port, protocol_factory, tls=tls, start=start)
        if listener.port == self._rival.getsockname()[1]:
            self._rival.listen()
        return listener


@pytest.mark.parametrize("distance", [0, 2])
def test_the_slower_of_two_brokers_that_start_on_a_port_lets_everything_go(standing: Standing, distance: int) -> None:
    async def main() -> None:
        async with standing() as stand:
            with socket.socket() as rival:
                rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                rival.bind(("127.0.0.1", 0))
                port = rival.getsockname()[1] + distance
                slower = stand.broker(port=port, net=RivalNet(rival))
                with pytest.raises(OSError, match="in use"):
                    await slower.start()
                assert slower.registrar.registered == set()
            # Both ports and the directory are free again.
            again = stand.broker(port=port)
            await again.start()
            await again.stop()

    asyncio.run(main())


def test_a_taken_fast_port_is_named_and_everything_is_let_go(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            first = stand.broker()
            await first.start()
            port, fast = first.port, first.fast_port
            await first.stop()
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", fast))
                other.listen()
                with pytest.raises(CannotListenError) as refused:
                    await stand.broker(port=port).start()
            assert refused.value.message == f"port {fast} of 127.0.0.1 is in use (fast port of the broker on {port})"
            assert "two below" in (refused.value.hint or "")
            again = stand.broker(port=port)
            await again.start()
            assert (again.port, again.fast_port) == (port, fast)
            await again.stop()

    asyncio.run(main())
