"""What goes wrong with a group of replicas: everything that goes wrong with a cluster, and what only a group has.

A level covers some faults only. Without SYNC_FLUSH a power cut takes the tail of a log, so it hits one replica at a
time, and only while all others are in sync: the promise speaks of the loss of a minority.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aerobee.errors import AerobeeError
from aerobee.testing.crash import CrashMode
from aerobee.testing.simulation.faults import Faults
from aerobee.testing.simulation.group import REPLICAS, GroupCluster, ReplicaHost
from aerobee.testing.simulation.load import ClientHost
from aerobee.testing.simulation.story import Story
from aerobee.testing.simulation.world import World

_OPERATOR_S: Final = 0.5


class GroupFaults(Faults):
    """Injects faults into a group until `end_s`, then mends everything that is left."""

    def __init__(self, world: World, story: Story, cluster: GroupCluster, clients: list[ClientHost]) -> None:
        super().__init__(world, story, cluster, clients)
        self._group = cluster
        self.kinds = {
            "partition": (3, self.partition),
            "one-way cut": (2, self.one_way_cut),
            "delays": (2, self.delays),
            "small chunks": (1, self.small_chunks),
            "resets": (2, self.resets),
            "refused connections": (1, self.refusals),
            "replica power cut": (3, self.replica_power_cut),
            "replica kill -9": (4, self.replica_kill),
            "replica restart": (2, self.replica_restart),
            "replica pause": (3, self.replica_pause),
            "switchover": (2, self.switchover),
            "coordinator kill -9": (1, self.coordinator_kill),
            "coordinator pause": (1, self.coordinator_pause),
            "name server kill -9": (1, self.namesrv_kill),
            "client kill -9": (1, self.client_kill),
            "client restart": (1, self.client_restart),
            "slow disk": (2, self.slow_disk),
            "failed sync": (1, self.failed_sync),
            "clock jump": (2, self.clock_jump),
        }

    async def run(self, end_s: float) -> None:
        await super().run(end_s)
        for replica in self._group.replicas:
            replica.machine.go_on()

    async def operate(self) -> None:
        """Start replicas again that gave up, until the end of the run."""
        while True:
            await asyncio.sleep(_OPERATOR_S)
            for replica in self._group.replicas:
                if replica.has_given_up:
                    replica.machine.disk.heal()
                    replica.start()

    # --- whom a fault hits

    def _hit(self) -> ReplicaHost | None:
        """Return a replica that runs: the master more often than another."""
        running = [one for one in self._group.replicas if one.is_up and not one.machine.is_stopped]
        masters = [one for one in running if one.is_master]
        return self._draw.choose(masters if masters and self._draw.chance(0.5) else running or [None])

    def _may_lose_a_tail(self) -> bool:
        """Tell whether the promise covers the loss of one replica's tail now."""
        status = [one.status for one in self._group.replicas]
        master = self._group.master()
        state = master.status.state if master is not None and master.status is not None else None
        return state is not None and len(state.in_sync) == len(REPLICAS) and all(one is not None for one in status)

    # --- replicas

    async def replica_power_cut(self, lasts_s: float) -> None:
        replica = self._hit()
        if replica is not None and (self._group.level.sync_flush or self._may_lose_a_tail()):
            replica.cut_power(self._draw.choose(list(CrashMode)))
            await self._back(replica, lasts_s)

    async def replica_kill(self, lasts_s: float) -> None:
        replica = self._hit()
        if replica is not None:
            replica.kill()
            await self._back(replica, lasts_s)

    async def replica_restart(self, lasts_s: float) -> None:
        """Stop in an orderly way, and start again."""
        replica = self._hit()
        if replica is not None:
            await replica.stop()
            await self._back(replica, lasts_s / 2)

    async def replica_pause(self, lasts_s: float) -> None:
        """Stop the process for longer than a lease lives, or shorter (SIGSTOP)."""
        replica = self._hit()
        if replica is not None:
            replica.machine.stop()
            await asyncio.sleep(lasts_s * 2.5)
            replica.machine.go_on()

    async def switchover(self, lasts_s: float) -> None:
        master = self._group.master()
        status = master.status if master is not None else None
        if master is None or status is None or master.node is None or master.node.group is None:
            return
        replica = master.node.group.replica
        others = sorted(number for number in status.state.in_sync if number != status.id)
        if replica is not None and others:
            try:
                await replica.switch_to(self._draw.choose(others))
            except AerobeeError as error:
                self._world.trace.note("not switched", type(error).__name__)

    async def failed_sync(self, lasts_s: float) -> None:
        """Let a sync of a log fail. The replica gives its role up, and its operator starts it again."""
        replica = self._hit()
        if replica is not None and self._may_lose_a_tail():
            self._world.expected_errors.update(("sync", "the broker stops", "cannot go on"))
            replica.machine.disk.fail(1, "sync", path="commitlog")
            await asyncio.sleep(lasts_s)
            replica.machine.disk.heal()

    # --- the coordination store

    async def coordinator_kill(self, lasts_s: float) -> None:
        host = self._group.coordinator
        if not host.machine.down and not host.machine.is_stopped:
            host.machine.kill()
            await asyncio.sleep(lasts_s * 2)
            host.start()

    async def coordinator_pause(self, lasts_s: float) -> None:
        machine = self._group.coordinator.machine
        if not machine.down and not machine.is_stopped:
            machine.stop()
            await asyncio.sleep(lasts_s * 2)
            machine.go_on()
