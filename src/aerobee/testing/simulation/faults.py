"""What goes wrong in a run, drawn from its seed. To add a fault, write a method and add it to `Faults.kinds`.

A fault happens, lasts for a while and is mended by itself. Faults overlap. Each is counted by its name in
`World.faults` and written to the trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aerobee.runtime.tasks import Tasks
from aerobee.testing.crash import CrashMode
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.simulation.cluster import BrokerHost, NameServerHost, SimulatedCluster
from aerobee.testing.simulation.load import ClientHost
from aerobee.testing.simulation.story import Story
from aerobee.testing.simulation.world import World

_LASTS_S: Final = (0.2, 2.5)
_GAP_S: Final = (0.1, 2.2)
# How long a name server may name a broker whose connection was reset.
_ROUTE_GONE_S: Final = 1.0

Kind = Callable[[float], Awaitable[None]]


class Faults:
    """Injects faults until `end_s`, then mends everything that is left."""

    def __init__(self, world: World, story: Story, cluster: SimulatedCluster, clients: list[ClientHost]) -> None:
        self._world = world
        self._story = story
        self._cluster = cluster
        self._clients = clients
        self._draw: SeededEntropy = world.entropy.fork()
        self._hosts = list(world.machines)
        # Pairs of hosts between which something is cut now.
        self._cuts: list[tuple[str, str]] = []
        self.kinds: dict[str, tuple[int, Kind]] = {
            "partition": (3, self.partition),
            "one-way cut": (2, self.one_way_cut),
            "delays": (2, self.delays),
            "small chunks": (1, self.small_chunks),
            "resets": (2, self.resets),
            "refused connections": (1, self.refusals),
            "broker power cut": (4, self.broker_power_cut),
            "broker kill -9": (3, self.broker_kill),
            "broker restart": (2, self.broker_restart),
            "name server kill -9": (1, self.namesrv_kill),
            "client kill -9": (1, self.client_kill),
            "client restart": (2, self.client_restart),
            "slow disk": (2, self.slow_disk),
            "failed sync": (1, self.failed_sync),
            "clock jump": (2, self.clock_jump),
        }

    async def run(self, end_s: float) -> None:
        drawn = [name for name, (weight, _) in self.kinds.items() for _ in range(weight)]
        now_s = self._world.loop.time
        running: list[asyncio.Task[None]] = []
        async with Tasks() as tasks:
            while True:
                await asyncio.sleep(self._draw.between(*_GAP_S))
                if now_s() >= end_s:
                    break
                name = self._draw.choose(drawn)
                lasts_s = self._draw.between(*_LASTS_S)
                running.append(tasks.start(self._inject(name, lasts_s), name=name))
            if running:
                await asyncio.wait(running)
        self._world.net.heal_all()

    async def _inject(self, name: str, lasts_s: float) -> None:
        self._world.trace.note("fault", name)
        self._world.faults[name] += 1
        await self.kinds[name][1](lasts_s)

    # --- the network

    async def partition(self, lasts_s: float) -> None:
        """Cut one host off from some of the others, both ways."""
        host = self._draw.choose(self._hosts)
        others = [other for other in self._hosts if other != host and self._draw.chance(0.6)]
        cuts = [(host, other) for other in others] + [(other, host) for other in others]
        await self._cut(cuts, lasts_s)

    async def one_way_cut(self, lasts_s: float) -> None:
        await self._cut([(self._draw.choose(self._hosts), self._draw.choose(self._hosts))], lasts_s)

    async def _cut(self, cuts: list[tuple[str, str]], lasts_s: float) -> None:
        net = self._world.net
        for cut in cuts:
            self._cuts.append(cut)
            net.cut(*cut)
        await asyncio.sleep(lasts_s)
        for cut in cuts:
            self._cuts.remove(cut)
            if cut not in self._cuts:
                net.heal(*cut)

    async def delays(self, lasts_s: float) -> None:
        weather = self._world.net.weather
        weather.delay_s = (0.001, self._draw.between(0.05, 0.4))
        await asyncio.sleep(lasts_s)
        weather.delay_s = (0.0005, 0.002)

    async def small_chunks(self, lasts_s: float) -> None:
        weather = self._world.net.weather
        weather.chunk_bytes_max = 64
        await asyncio.sleep(lasts_s / 4)
        weather.chunk_bytes_max = None

    async def resets(self, lasts_s: float) -> None:
        """Reset connections by chance, at any write."""
        weather = self._world.net.weather
        weather.reset = 0.02
        await asyncio.sleep(lasts_s)
        weather.reset = 0.0

    async def refusals(self, lasts_s: float) -> None:
        weather = self._world.net.weather
        weather.refuse = 0.5
        await asyncio.sleep(lasts_s)
        weather.refuse = 0.0

    # --- servers and clients

    def _broker(self) -> BrokerHost | None:
        return self._draw.choose([broker for broker in self._cluster.brokers if broker.is_up] or [None])

    async def broker_power_cut(self, lasts_s: float) -> None:
        broker = self._broker()
        if broker is not None:
            mode = self._draw.choose(list(CrashMode))
            broker.cut_power(mode)
            await self._back(broker, lasts_s)

    async def broker_kill(self, lasts_s: float) -> None:
        broker = self._broker()
        if broker is not None:
            broker.kill()
            if lasts_s > _ROUTE_GONE_S:
                await self._route_goes(broker)
                lasts_s -= _ROUTE_GONE_S
            await self._back(broker, lasts_s)

    async def _route_goes(self, broker: BrokerHost) -> None:
        """Wait, then look whether the name servers have heard that the broker is gone.

        One that the killed process never registered with may still hold an earlier process, whose power was cut.
        """
        assert broker.node is not None
        registered = broker.node.registrar.registered
        reached = [
            one
            for one in self._cluster.namesrvs
            if one.address in registered and not self._is_apart(one, broker) and not one.machine.down
        ]
        launches = [one.machine.launches for one in reached]
        await asyncio.sleep(_ROUTE_GONE_S)
        for namesrv, launched in zip(reached, launches, strict=True):
            if namesrv.machine.down or namesrv.machine.launches != launched or self._is_apart(namesrv, broker):
                continue
            assert namesrv.node is not None
            if broker.name in namesrv.node.names.state.routes.brokers():
                self._story.problems.append(f"{namesrv.machine.address} names {broker.name}, which was killed")

    def _is_apart(self, namesrv: NameServerHost, broker: BrokerHost) -> bool:
        pair = {namesrv.machine.address, broker.machine.address}
        return any(set(cut) == pair for cut in self._cuts) or self._world.net.weather.delay_s[1] > 0.01

    async def broker_restart(self, lasts_s: float) -> None:
        """Stop in an orderly way, and start again."""
        broker = self._broker()
        if broker is not None:
            await broker.stop()
            await self._back(broker, lasts_s / 2)

    async def _back(self, broker: BrokerHost, lasts_s: float) -> None:
        await asyncio.sleep(lasts_s)
        broker.start()
        await broker.up.wait()

    async def namesrv_kill(self, lasts_s: float) -> None:
        up = [one for one in self._cluster.namesrvs if not one.machine.down]
        if up:
            namesrv = self._draw.choose(up)
            namesrv.machine.kill()
            await asyncio.sleep(lasts_s)
            namesrv.start()

    async def client_kill(self, lasts_s: float) -> None:
        client = self._client()
        if client is not None:
            client.machine.kill()
            await asyncio.sleep(lasts_s / 2)
            client.start()

    async def client_restart(self, lasts_s: float) -> None:
        client = self._client()
        if client is not None:
            await client.stop()
            await asyncio.sleep(lasts_s / 4)
            client.start()

    def _client(self) -> ClientHost | None:
        return self._draw.choose(
            [one for one in self._clients if not one.machine.down and not one.stopping.is_set()] or [None]
        )

    # --- disks and clocks

    async def slow_disk(self, lasts_s: float) -> None:
        machine = self._draw.choose(self._cluster.brokers).machine
        machine.slow_s = self._draw.between(0.05, 0.6)
        await asyncio.sleep(lasts_s)
        machine.slow_s = 0.0

    async def failed_sync(self, lasts_s: float) -> None:
        """Let a sync of a log fail. The broker acknowledges nothing more, and its operator starts it again."""
        broker = self._broker()
        if broker is not None:
            self._world.expected_errors.add("sync")
            disk = broker.machine.disk
            disk.fail(1, "sync", path="commitlog")
            await asyncio.sleep(lasts_s)
            disk.heal()
            if broker.is_up:
                broker.kill()
                await self._back(broker, lasts_s / 4)

    async def clock_jump(self, lasts_s: float) -> None:
        """Set the wall clock of a broker forward or back, for good."""
        machine = self._draw.choose(self._cluster.brokers).machine
        machine.jump(self._draw.below(8_000) - 4_000)
