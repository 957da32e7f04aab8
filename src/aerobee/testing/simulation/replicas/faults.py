"""What goes wrong in a run of replicas, drawn from its seed. To add a fault, write a method and name it in `kinds`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from aerobee.errors import AerobeeError, StoreError
from aerobee.runtime.tasks import Tasks
from aerobee.testing.crash import CrashMode
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.simulation.replicas.coordination import ADDRESS, CoordinationServer
from aerobee.testing.simulation.replicas.judge import ReplicaJudge
from aerobee.testing.simulation.replicas.nodes import Node
from aerobee.testing.simulation.world import World

_LASTS_S: Final = (0.1, 3.0)
_GAP_S: Final = (0.05, 1.0)
Kind = Callable[[float], Awaitable[None]]


class ReplicaFaults:
    """Injects faults until `end_s`, then mends everything that is left."""

    def __init__(self, world: World, server: CoordinationServer, nodes: list[Node], judge: ReplicaJudge) -> None:
        self._world = world
        self._server = server
        self._nodes = nodes
        self._judge = judge
        self._draw: SeededEntropy = world.entropy.fork()
        self._hosts = [node.machine.address for node in nodes]
        self._cuts: list[tuple[str, str]] = []
        self.kinds: dict[str, tuple[int, Kind]] = {
            "partition": (4, self.partition),
            "isolation": (3, self.isolation),
            "partition from the coordinator": (3, self.coordinator_partition),
            "one-way cut": (3, self.one_way_cut),
            "delays": (2, self.delays),
            "resets": (1, self.resets),
            "refused connections": (1, self.refusals),
            "kill -9": (4, self.kill),
            "power cut": (3, self.power_cut),
            "restart": (2, self.restart),
            "rolling restart": (1, self.rolling_restart),
            "pause": (3, self.pause),
            "wiped disk": (1, self.wipe),
            "slow disk": (2, self.slow_disk),
            "failed sync": (1, self.failed_sync),
            "full disk": (1, self.full_disk),
            "expiry": (3, self.expiry),
            "clock jump": (2, self.clock_jump),
            "switchover": (4, self.switchover),
            "coordinator away": (2, self.coordinator_away),
            "lost answers": (3, self.lost_answers),
            "compaction": (2, self.compaction),
        }

    async def run(self, end_s: float) -> None:
        drawn = [name for name, (weight, _) in self.kinds.items() for _ in range(weight)]
        running: list[asyncio.Task[None]] = []
        async with Tasks() as tasks:
            while True:
                await asyncio.sleep(self._draw.between(*_GAP_S))
                if self._world.loop.time() >= end_s:
                    break
                name = self._draw.choose(drawn)
                running.append(tasks.start(self._inject(name, self._draw.between(*_LASTS_S)), name=name))
            if running:
                await asyncio.wait(running)
        self._world.net.heal_all()
        self._server.is_up = True

    async def _inject(self, name: str, lasts_s: float) -> None:
        self._world.trace.note("fault", name)
        self._world.faults[name] += 1
        await self.kinds[name][1](lasts_s)

    # --- the network

    async def partition(self, lasts_s: float) -> None:
        """Cut one replica off from some of the others, and perhaps from the coordinator."""
        host = self._host()
        others = [other for other in [*self._hosts, ADDRESS] if other != host and self._draw.chance(0.7)]
        await self._cut([(host, other) for other in others] + [(other, host) for other in others], lasts_s)

    async def isolation(self, lasts_s: float) -> None:
        """Cut one replica off from everything, mostly long enough for an election."""
        await self._isolate(self._host(), lasts_s)

    async def _isolate(self, host: str, lasts_s: float) -> None:
        others = [other for other in [*self._hosts, ADDRESS] if other != host]
        await self._cut([(host, other) for other in others] + [(other, host) for other in others], lasts_s + 4.0)

    async def coordinator_partition(self, lasts_s: float) -> None:
        host = self._host()
        await self._cut([(host, ADDRESS), (ADDRESS, host)], lasts_s * 2)

    async def one_way_cut(self, lasts_s: float) -> None:
        hosts = [*self._hosts, ADDRESS]
        await self._cut([(self._draw.choose(hosts), self._draw.choose(hosts))], lasts_s)

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

    async def resets(self, lasts_s: float) -> None:
        weather = self._world.net.weather
        weather.reset = 0.02
        await asyncio.sleep(lasts_s)
        weather.reset = 0.0

    async def refusals(self, lasts_s: float) -> None:
        weather = self._world.net.weather
        weather.refuse = 0.7
        self._judge.may_overlap = True
        await asyncio.sleep(lasts_s)
        weather.refuse = 0.0

    # --- processes

    def _node(self) -> Node | None:
        """Return a node that no other fault has its hands on, rather the master than another."""
        free = [node for node in self._nodes if node.is_up and not node.is_busy]
        masters = [node for node in free if node.replica_id == self._judge.state.master]
        return self._draw.choose((masters if masters and self._draw.chance(0.4) else free) or [None])

    def _host(self) -> str:
        masters = [node for node in self._nodes if node.replica_id == self._judge.state.master]
        if masters and self._draw.chance(0.4):
            return masters[0].machine.address
        return self._draw.choose(self._hosts)

    def _is_spare(self, node: Node) -> bool:
        """Tell whether what this node holds is also held by another that can be elected: then it may be lost."""
        state = self._judge.state
        if node.replica is not None and node.replica.machine.proposed is not None:
            return False  # it may be elected any moment
        if self._server.under_way[node.machine.address]:
            return False  # what it asked for before its end may still make it the only member
        others = [
            one for one in self._nodes if one is not node and one.has[0] == state.in_sync.get(one.replica_id, "-")
        ]
        return bool(others) or state.in_sync.get(node.replica_id, "-") != node.has[0]

    async def kill(self, lasts_s: float) -> None:
        node = self._node()
        if node is not None:
            node.is_busy = True
            node.kill()
            await self._back(node, lasts_s)

    async def power_cut(self, lasts_s: float) -> None:
        node = self._node()
        if node is None or (not node.sync_flush and not self._is_spare(node)):
            return
        node.is_busy = True
        node.cut_power(self._draw.choose(list(CrashMode)))
        if not node.sync_flush:
            node.last = ("", 0)
        await self._back(node, lasts_s)

    async def wipe(self, lasts_s: float) -> None:
        node = self._node()
        if node is None or not self._is_spare(node):
            return
        node.is_busy = True
        node.kill()
        node.wipe()
        await self._back(node, lasts_s)

    async def restart(self, lasts_s: float) -> None:
        node = self._node()
        if node is not None:
            node.is_busy = True
            await node.stop()
            await self._back(node, lasts_s / 2)

    async def rolling_restart(self, lasts_s: float) -> None:
        for node in self._nodes:
            if node.is_up and not node.is_busy:
                node.is_busy = True
                await node.stop()
                await self._back(node, lasts_s / 4)

    async def _back(self, node: Node, lasts_s: float) -> None:
        await asyncio.sleep(lasts_s)
        node.start()
        node.is_busy = False

    async def pause(self, lasts_s: float) -> None:
        """Stop a process for a while, as SIGSTOP does."""
        node = self._node()
        if node is not None:
            node.is_busy = True
            node.machine.stop()
            await asyncio.sleep(lasts_s * 3)
            node.machine.go_on()
            node.is_busy = False
            for _ in range(10):
                await asyncio.sleep(0.0005)
                self._judge.look_at_authority()

    async def switchover(self, lasts_s: float) -> None:
        master = next((node for node in self._nodes if node.is_up and node.leading_epoch and not node.is_paused), None)
        if master is None or master.replica is None:
            return
        target = self._draw.choose([node for node in self._nodes if node is not master])
        try:
            async with asyncio.timeout(6.0):
                await master.replica.switch_to(target.replica_id)
            self._judge.counts["switchovers"] += 1
        except (AerobeeError, TimeoutError) as error:
            self._world.trace.note("switchover failed", error)

    # --- disks and clocks

    async def slow_disk(self, lasts_s: float) -> None:
        machine = self._draw.choose(self._nodes).machine
        machine.slow_s = self._draw.between(0.05, 0.6)
        await asyncio.sleep(lasts_s)
        machine.slow_s = 0.0

    async def failed_sync(self, lasts_s: float) -> None:
        """Let a sync of a log fail. The replica stops, and its operator starts it again."""
        node = self._node()
        if node is None or not node.sync_flush:
            return  # with ASYNC_FLUSH it is in doubt, and if it is the last member only an operator can help
        self._world.expected_errors.update(("sync", "cannot go on"))
        node.is_busy = True
        disk = node.machine.disk
        disk.fail(1, "sync", path="commitlog")
        await asyncio.sleep(lasts_s)
        disk.heal()
        if node.is_up:
            node.kill()
        await self._back(node, lasts_s / 4)

    async def full_disk(self, lasts_s: float) -> None:
        machine = self._draw.choose(self._nodes).machine
        machine.disk.free_bytes = 1000
        self._world.expected_errors.update(("full", "no space", "cannot go on"))
        await asyncio.sleep(lasts_s)
        machine.disk.free_bytes = None

    async def expiry(self, lasts_s: float) -> None:
        """Delete the oldest segments of some logs, as retention does on each replica by itself."""
        for node in self._nodes:
            if node.store is not None and not node.is_paused and node.store.fenced is None and self._draw.chance(0.6):
                with contextlib.suppress(StoreError):
                    while self._draw.chance(0.8) and node.store.delete_oldest_segment():
                        self._judge.counts["expired segments"] += 1

    async def clock_jump(self, lasts_s: float) -> None:
        """Set a wall clock forward or back, for good, and perhaps cut its machine off."""
        node = self._node()
        if node is not None:
            node.machine.jump(self._draw.below(20_000) - 10_000)
            if self._draw.chance(0.3):
                await self._isolate(node.machine.address, lasts_s)

    # --- the coordinator

    async def coordinator_away(self, lasts_s: float) -> None:
        self._server.is_up = False
        await asyncio.sleep(lasts_s * 2)
        self._server.is_up = True

    async def lost_answers(self, lasts_s: float) -> None:
        self._server.lost_answers = 0.5
        await asyncio.sleep(lasts_s)
        self._server.lost_answers = 0.0

    async def compaction(self, lasts_s: float) -> None:
        """Break the watches and forget the history that they would need."""
        self._server.break_watches()
        self._server.compact()
