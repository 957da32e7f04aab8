from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.net import SimNet, Weather

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.events: list[str] = []

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost" if error is None else type(error).__name__)


class World:
    """Host B listens on port 1; `accepted` are its ends."""

    def __init__(self, loop: VirtualLoop, weather: Weather | None = None, seed: int = 1) -> None:
        self.loop = loop
        self.net = SimNet(loop, seed=seed, weather=weather)
        self.accepted: list[Peer] = []

    async def listen(self, host: str = B) -> None:
        await self.net.host(host).listen("0.0.0.0", 1, self._accept)

    def _accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def connect(self, source: str = A, target: str = B) -> Peer:
        return (await self.net.host(source).connect(target, 1, Peer))[1]


def _in_world(scenario: Callable[[World], Awaitable[None]], weather: Weather | None = None, seed: int = 1) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, weather, seed)
        await world.listen()
        await scenario(world)

    run_virtual(main)


def test_a_one_way_cut_holds_one_way_until_healed() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        server = world.accepted[0]
        world.net.cut(A, B)
        client.transport.write(b"held")
        server.transport.write(b"free")
        await asyncio.sleep(100)
        assert client.data == b"free" and server.data == b""
        world.net.heal(A, B)
        await asyncio.sleep(1)
        assert server.data == b"held" and client.events == server.events == ["made"]

    _in_world(scenario)


def test_a_cut_also_holds_the_end_of_a_connection() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        world.net.cut(A, B)
        client.transport.close()
        await asyncio.sleep(100)
        assert client.events == ["made", "lost"] and world.accepted[0].events == ["made"]
        world.net.heal_all()
        await asyncio.sleep(1)
        assert world.accepted[0].events == ["made", "lost"]
        assert world.net.connections() == []

    _in_world(scenario)


@pytest.mark.parametrize("way", [(A, B), (B, A)])
def test_connecting_waits_while_either_way_is_cut(way: tuple[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.net.cut(*way)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await world.connect()
        dialling = asyncio.create_task(world.connect())
        await asyncio.sleep(5)
        assert not dialling.done()
        world.net.heal(*way)
        await dialling
        await asyncio.sleep(1)
        # An attempt given up while its answer was held is seen by the server as one that is reset.
        assert [peer.events for peer in world.accepted if peer.events[-1] == "made"] == [["made"]]

    _in_world(scenario)


def test_a_partition_parts_two_groups_and_no_others() -> None:
    async def scenario(world: World) -> None:
        await world.listen(C)
        world.net.partition([A], [B])
        await world.connect(A, C)
        await world.connect(C, B)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await world.connect(B, A)
        world.net.heal_all()
        world.net.isolate(C, [A, B, C])
        assert world.net.is_cut(C, A) and world.net.is_cut(B, C)
        assert not world.net.is_cut(C, C) and not world.net.is_cut(A, B)

    _in_world(scenario)


def test_a_host_without_power_leaves_its_peers_half_open() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        server = world.accepted[0]
        world.net.power_off(B)
        client.transport.write(b"into the void")
        await asyncio.sleep(1000)
        assert client.events == ["made"] and server.events == ["made"] and server.data == b""
        world.net.power_on(B)
        await asyncio.sleep(1)
        assert client.events == ["made", "ConnectionResetError"] and server.events == ["made"]
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        await world.listen()
        await world.connect()

    _in_world(scenario)


def test_a_silent_half_open_end_is_found_by_writing_only() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        world.net.power_off(B)
        world.net.power_on(B)
        await asyncio.sleep(1000)
        assert client.events == ["made"]
        client.transport.write(b"x")
        await asyncio.sleep(1)
        assert client.events == ["made", "ConnectionResetError"]

    _in_world(scenario)


def test_a_killed_process_resets_its_connections_and_frees_its_port() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        world.net.kill(B)
        await asyncio.sleep(1)
        assert client.events == ["made", "ConnectionResetError"] and world.accepted[0].events == ["made"]
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        await world.listen()
        await world.connect()

    _in_world(scenario)


def test_reset_breaks_the_connections_between_two_hosts() -> None:
    async def scenario(world: World) -> None:
        first, second, other = await world.connect(), await world.connect(), await world.connect(C)
        assert world.net.reset(A, B) == 2
        await asyncio.sleep(1)
        assert first.events[-1] == second.events[-1] == "ConnectionResetError"
        assert other.events == ["made"]

    _in_world(scenario)


def test_trickling_bytes_arrive_one_by_one_and_in_order() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        client.transport.write(b"abcdef")
        await asyncio.sleep(1)
        assert world.accepted[0].chunks == [b"a", b"b", b"c", b"d", b"e", b"f"]

    _in_world(scenario, Weather(chunk_bytes_max=1))


def test_a_duplicated_attempt_repeats_the_first_bytes_and_ends() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        client.transport.write(b"first")
        await asyncio.sleep(1)
        client.transport.write(b"second")
        await asyncio.sleep(1)
        assert [peer.data for peer in world.accepted] == [b"firstsecond", b"first"]
        assert [peer.events for peer in world.accepted] == [["made"], ["made", "lost"]]

    _in_world(scenario, Weather(duplicate=1.0))


def test_chance_refuses_and_resets() -> None:
    async def scenario(world: World) -> None:
        refused = 0
        for _ in range(100):
            try:
                client = await world.connect()
            except ConnectionRefusedError:
                refused += 1
                continue
            client.transport.write(b"x")
            await asyncio.sleep(1)
            assert (client.events[-1] == "ConnectionResetError") == (world.accepted[-1].data == b"")
        broken = sum(peer.events[-1] != "made" for peer in world.accepted)
        assert 10 < refused < 60 and 10 < broken < 60

    _in_world(scenario, Weather(refuse=0.3, reset=0.5))


def test_data_that_meets_a_closed_end_is_answered_by_a_reset() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        world.accepted[0].transport.close()
        client.transport.write(b"too late")
        await asyncio.sleep(1)
        assert world.accepted[0].data == b"" and client.events[-1] in ("lost", "ConnectionResetError")
        assert world.net.connections() == []

    _in_world(scenario)


def test_a_host_binds_its_own_addresses_only() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(OSError):
            await world.net.host(A).listen(C, 5, Peer)
        listener = await world.net.host(A).listen(A, 5, Peer)
        assert (listener.host, listener.port) == (A, 5)
        listener.close()
        await world.net.host(A).listen("127.0.0.1", 5, Peer)

    _in_world(scenario)


def test_a_stopped_host_hears_everything_later_and_what_it_wrote_leaves() -> None:
    async def scenario(world: World) -> None:
        client = await world.connect()
        server = world.accepted[0]
        server.transport.write(b"before")
        world.net.stop(server.transport.get_extra_info("sockname")[0])
        client.transport.write(b"held")
        await asyncio.sleep(5)
        assert (client.data, server.data) == (b"before", b"")
        client.transport.abort()
        await asyncio.sleep(5)
        assert server.events == ["made"]
        world.net.go_on(server.transport.get_extra_info("sockname")[0])
        await asyncio.sleep(1)
        assert server.events[-1] == "ConnectionResetError"

    _in_world(scenario)
