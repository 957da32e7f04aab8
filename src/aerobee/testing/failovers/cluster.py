"""A group of three broker processes behind links that can be cut, a name server, and etcd or the embedded store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.group import GroupCoordinator
from aerobee.errors import AerobeeError
from aerobee.model.route import MASTER_ID
from aerobee.replication.values import GroupView
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet
from aerobee.runtime.tasks import Tasks
from aerobee.testing.apache import free_ports
from aerobee.testing.etcd import EtcdServer, etcd_unavailable
from aerobee.testing.failovers.linkproxy import LinkProxy
from aerobee.testing.processes import HOST, SMALL_STORE, ServerProcess

CLUSTER: Final = "Failovers"
GROUP: Final = "broker-a"
REPLICAS: Final = 3
WHOLE_S: Final = 120.0
_LOOK_S: Final = 0.05
_WATCH_S: Final = 0.005


class Store:
    """The coordination store: a real etcd where it is built, else the embedded one."""

    def __init__(self, directory: Path) -> None:
        self._etcd: EtcdServer | None = None
        self._embedded: ServerProcess | None = None
        if etcd_unavailable() is None:
            self._etcd = EtcdServer(directory / "etcd")
        else:
            file = {"file": str(directory / "coordination.json")}
            self._embedded = ServerProcess("coordination", file, directory / "coordination.log")

    @property
    def kind(self) -> str:
        return "etcd" if self._etcd is not None else "the embedded store"

    @property
    def port(self) -> int:
        if self._etcd is not None:
            return self._etcd.port
        assert self._embedded is not None
        return self._embedded.port

    async def start(self) -> None:
        if self._etcd is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._etcd.start)
        elif self._embedded is not None:
            await self._embedded.start()

    async def kill(self) -> None:
        if self._etcd is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._etcd.kill)
        elif self._embedded is not None:
            await self._embedded.kill()


class FailoverCluster:
    """The processes of a run. Each broker is reached through a link of its own, and reaches the servers through it."""

    def __init__(self, directory: Path, *, sync_flush: bool) -> None:
        self._directory = directory
        self._sync_flush = sync_flush
        self.namesrv = ServerProcess("namesrv", {"kvConfigPath": str(directory / "kv.json")}, directory / "namesrv.log")
        self.store = Store(directory)
        self.brokers: list[ServerProcess] = []
        self.links: list[LinkProxy] = []
        self._hosts: list[str] = []
        self._agreed: GroupCoordinator | None = None
        self._tasks = Tasks()
        self._watching: dict[int, asyncio.Task[None]] = {}

    async def start(self) -> None:
        await self.namesrv.start()
        await self.store.start()
        for number in range(1, REPLICAS + 1):
            self._add(number)
        await asyncio.gather(*(self.start_broker(place) for place in range(REPLICAS)))
        clock = SystemClock()
        client = EtcdClient(EtcdSettings(endpoints=parse_endpoints(f"{HOST}:{self.store.port}")), RealNet(), clock)
        self._agreed = GroupCoordinator(client, CLUSTER, GROUP, clock)
        await self.whole()

    def _add(self, number: int) -> None:
        told, link = f"127.0.0.{10 + number}", LinkProxy()
        port = free_ports(-2, 1)
        for one in (port, port - 2, port + 1):
            link.forward((told, one), (HOST, one))
        for one in (self.namesrv.port, self.store.port):
            link.forward((told, one), (HOST, one))
        root = self._directory / f"replica-{number}"
        settings = {
            **SMALL_STORE,
            "brokerClusterName": CLUSTER,
            "brokerName": GROUP,
            "brokerIP1": told,
            "brokerIP2": told,
            "haListenPort": str(port + 1),
            "namesrvAddr": f"{told}:{self.namesrv.port}",
            "coordinatorAddr": f"http://{told}:{self.store.port}",
            "storePathRootDir": str(root),
            "brokerRole": "SYNC_MASTER",
            "totalReplicas": str(REPLICAS),
            "minInSyncReplicas": "2",
            "flushDiskType": "SYNC_FLUSH" if self._sync_flush else "ASYNC_FLUSH",
        }
        broker = ServerProcess("failing-broker", settings, root.with_suffix(".log"))
        broker.port = port
        self.brokers.append(broker)
        self.links.append(link)
        self._hosts.append(told)

    async def start_broker(self, place: int) -> None:
        """Start a broker, and the link that leads to it."""
        watching = self._watching.pop(place, None)
        if watching is not None:
            await watching
        await self.links[place].listen()
        await self.brokers[place].start()
        self._watching[place] = self._tasks.start(self._watch(place), name="watch")

    async def _watch(self, place: int) -> None:
        """Refuse connections at the end of a process, as the system does where no proxy is between."""
        while self.brokers[place].is_running:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_WATCH_S)
        self.links[place].refuse()

    async def view(self) -> GroupView:
        assert self._agreed is not None
        return await self._agreed.view()

    async def whole(self) -> None:
        """Wait until the group has a master and all replicas are in sync."""
        async with asyncio.timeout(WHOLE_S):
            while True:
                try:
                    state = (await self.view()).state
                    if state.master is not None and len(state.in_sync) == REPLICAS:
                        return
                except AerobeeError:
                    pass
                await asyncio.sleep(_LOOK_S)

    async def master(self) -> int:
        """Return the place of the master among the brokers, as the name server tells. Wait until there is one."""
        async with asyncio.timeout(WHOLE_S), AdminConnection(self.namesrv.address) as admin:
            while True:
                for broker in await admin.brokers():
                    if (broker.name, broker.broker_id) == (GROUP, MASTER_ID):
                        return self._hosts.index(broker.address.rpartition(":")[0])
                await asyncio.sleep(_LOOK_S)

    def address(self, place: int) -> str:
        return f"{HOST}:{self.brokers[place].port}"

    async def close(self) -> None:
        await self._tasks.close()
        if self._agreed is not None:
            await self._agreed.close()
        await asyncio.gather(*(server.kill() for server in (self.namesrv, *self.brokers)))
        await self.store.kill()
        for link in self.links:
            await link.close()
