"""A group of three replicas and the coordination store where it agrees: the real roots on simulated machines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aerobee.app.broker import BrokerNode
from aerobee.coordination.embedded import EmbeddedCoordination
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.group import GroupCoordinator
from aerobee.errors import StoreError
from aerobee.replication.values import ReplicaStatus
from aerobee.store.config import BrokerRole
from aerobee.testing.simulation.cluster import BrokerHost, SimulatedCluster
from aerobee.testing.simulation.story import KeptOffset, Story
from aerobee.testing.simulation.world import ROOT, World

GROUP: Final = "broker-a"
REPLICAS: Final = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
COORDINATOR: Final = "10.0.8.1"
_PORT: Final = 2379
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLevel:
    """What the group promises."""

    # Every write of every replica is synced before it counts.
    sync_flush: bool
    # A send waits for the replicas (SYNC_MASTER).
    sync_master: bool
    min_in_sync: int

    @classmethod
    def drawn(cls, world: World) -> GroupLevel:
        chance = world.entropy.chance
        return cls(sync_flush=chance(0.5), sync_master=chance(0.8), min_in_sync=2 if chance(0.6) else 1)


class CoordinatorHost:
    """The machine of the coordination store."""

    def __init__(self, world: World) -> None:
        self.machine = world.machine(COORDINATOR)
        self._stop = asyncio.Event()

    def start(self) -> None:
        self._stop = asyncio.Event()
        self.machine.launch(self._serve(self._stop))

    async def _serve(self, stop: asyncio.Event) -> None:
        machine = self.machine
        server = EmbeddedCoordination(
            machine.net, machine.disk, f"{ROOT}/coordination", machine.clock, machine.entropy.fork()
        )
        await server.start(machine.address, _PORT, insecure=True)
        await stop.wait()
        await server.stop()


class ReplicaHost(BrokerHost):
    """The machine of one replica."""

    def __init__(self, world: World, address: str, story: Story, level: GroupLevel) -> None:
        super().__init__(world, GROUP, address, story, sync_flush=level.sync_flush)
        self.level = level
        # Whether the process ended by itself, because its replica could not go on.
        self.has_given_up = False
        self.store_config = replace(
            self.store_config,
            broker_role=BrokerRole.SYNC_MASTER if level.sync_master else BrokerRole.ASYNC_MASTER,
            min_in_sync_replicas=level.min_in_sync,
            total_replicas=len(REPLICAS),
            slave_timeout_ms=1_000,
        )

    def start(self) -> None:
        self.has_given_up = False
        super().start()

    async def _serve(self, stop: asyncio.Event) -> None:
        machine = self.machine
        settings = EtcdSettings(endpoints=parse_endpoints(f"{COORDINATOR}:{_PORT}"))
        store = EtcdClient(settings, machine.net, machine.clock)
        self.node = node = self._make_node(
            GroupCoordinator(store, self._config.cluster_name, self._config.broker_name, machine.clock)
        )
        assert node.group is not None
        node.group.on_lead = self._leads
        await node.start()
        self.up.set()
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, node.failed)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        gave_up = node.failed.is_set() and not stop.is_set()
        if gave_up:
            # The broker has said why it stops. Its operator starts it again.
            self._note_end(is_power_cut=False)
            self._story.trace.note("gave up", machine.process)
        with contextlib.suppress(StoreError):
            await node.stop()
        self.has_given_up = gave_up

    def _leads(self, epoch: int) -> None:
        self._story.trace.note("leads", self.machine.process, epoch)
        self._story.leads.append((epoch, self.machine.address, self._story.now_s()))
        self._story.led_offsets.append({(one.group, one.place): one.offset for one in self._kept_offsets()})

    def observe(self, note: Callable[[KeptOffset], None]) -> None:
        super().observe(note)
        status = self.status
        if status is None or self.node is None:
            return
        store = self.node.state.store
        # A group that takes no messages takes no offsets either.
        if store.withheld is None and store.fenced is None and status.confirmed == status.log_end:
            self._story.settled_s.append(self._story.now_s())

    @property
    def status(self) -> ReplicaStatus | None:
        """Return what the replica says of itself, None where it does not run."""
        if not self.is_up or self.node is None or self.node.group is None or self.node.group.replica is None:
            return None
        return self.node.group.replica.status()

    @property
    def is_master(self) -> bool:
        return _leads(self.node) if self.is_up and not self.machine.is_stopped else False


def _leads(node: BrokerNode | None) -> bool:
    return node is not None and node.group is not None and node.group.has_authority() and not node.broker.is_following


class GroupCluster(SimulatedCluster):
    """Two name servers, the coordination store, and a group of three replicas."""

    def __init__(self, world: World, story: Story, level: GroupLevel) -> None:
        self.replicas = [ReplicaHost(world, address, story, level) for address in REPLICAS]
        super().__init__(world, self.replicas)
        self.level = level
        self.coordinator = CoordinatorHost(world)
        # The highest epoch whose master each process of a name server has named.
        self._named: dict[str, int] = {}

    async def start(self) -> None:
        self.coordinator.start()
        await super().start()

    def serving(self) -> Sequence[BrokerHost]:
        return [one for one in self.replicas if one.is_master]

    def master(self) -> ReplicaHost | None:
        return next((one for one in self.replicas if one.is_master), None)

    async def ready(self) -> None:
        """Wait until the group has a master and all replicas are in sync."""
        while not self._is_whole(len(REPLICAS)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)

    def watch_routes(self, problems: list[str]) -> None:
        """Tell of a name server that takes an older master than the one that it had named."""
        for namesrv in self.namesrvs:
            if namesrv.machine.down or namesrv.node is None:
                continue
            epoch = namesrv.node.names.state.routes.epoch_of_master(GROUP)
            key = namesrv.machine.process
            if epoch is not None:
                if epoch < self._named.get(key, 0):
                    problems.append(f"{key} names a master of epoch {epoch} after one of epoch {self._named[key]}")
                self._named[key] = max(epoch, self._named.get(key, 0))

    async def mended(self) -> None:
        """Wait until the group serves, and every replica has what the master had confirmed when it began to."""
        while not self._is_whole(self.level.min_in_sync):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)
        master = self.master()
        assert master is not None
        assert master.status is not None
        confirmed = master.status.confirmed
        while not self._has_everywhere(confirmed):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)

    def _has_everywhere(self, confirmed: int) -> bool:
        return all(one.status is not None and one.status.confirmed >= confirmed for one in self.replicas)

    def _is_whole(self, size: int) -> bool:
        master = self.master()
        status = master.status if master is not None else None
        return status is not None and len(status.state.in_sync) >= size
