"""LocalCluster: name servers and brokers in this process, for tests of applications and of Aerobee itself.

    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        ...  # clients connect to cluster.namesrv
        cluster.kill(0); cluster.restart(0); cluster.advance(hours=2)

    with LocalCluster(replicas=3) as cluster:
        cluster.kill(0, cluster.master(0))
        cluster.master(0)  # waits until another replica leads

The servers run on an event loop in a thread of their own; replicas have a thread each. The methods block and can be
called from anywhere, also from inside a test's own event loop. A cluster uses only free loopback ports and a temporary
directory.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from aerobee.access.config import AccessConfig
from aerobee.app.broker import BrokerNode
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.ports import FAST_PORT_DISTANCE
from aerobee.broker.config import BrokerConfig
from aerobee.client.core import ClientOptions
from aerobee.config.loader import Source, load, override_source
from aerobee.coordination.embedded import EmbeddedCoordination
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.group import GroupCoordinator
from aerobee.errors import AerobeeError, InvalidArgumentError, StoreError
from aerobee.model.ids import unique_message_id
from aerobee.model.message import Message
from aerobee.model.topic import TopicConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.replication.settings import ProcessStart
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.loopthread import LoopThread
from aerobee.runtime.machine import boot_id, directory_number
from aerobee.runtime.net import RealNet
from aerobee.store.config import StoreConfig
from aerobee.telemetry.config import MetricsConfig
from aerobee.testing import clusterparts as parts
from aerobee.testing.clustersecurity import ClusterSecurity
from aerobee.testing.secrets import require_no_leaks
from aerobee.testing.shifting import ShiftedClock, pass_time, stay_connected
from aerobee.testing.stoppable import StoppableThread

T = TypeVar("T")

_HOST = "127.0.0.1"
_ADVANCE_MAX_S = 100 * 366 * 86_400.0
_LOOK_S = 0.001
# The time that `advance` waits for sends under way, and for its effect.
_SENDS_S = 1.0
_EFFECT_S = 60.0


def void(result: object) -> None:
    """Drop a result that nobody needs."""


class LocalCluster:
    """A cluster of `brokers` broker groups and `namesrvs` name servers, which do not know each other.

    With `replicas` above 1, each group has so many replicas and elects a master. Replicas count from 1, in the order in
    which they joined. `settings` are RocketMQ's keys for every broker. Those of TLS hold for the name servers too. With
    `secure` the servers take only TLS and users: `client_options` are an administrator's, `add_user` makes others.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        replicas: int = 1,
        namesrvs: int = 1,
        data: str | Path | None = None,
        settings: dict[str, str] | None = None,
        cluster: str = "LocalCluster",
        secure: bool = False,
    ) -> None:
        if brokers < 1 or namesrvs < 1 or replicas < 1:
            raise InvalidArgumentError("a cluster needs at least one broker, one replica and one name server")
        self.clock = ShiftedClock()
        self.namesrv = ""
        self._count = brokers
        self._replicas = replicas
        self._namesrv_count = namesrvs
        self._data = Path(data) if data is not None else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        # The files are small: a test's store should not reserve gigabytes.
        self._settings = {
            "mappedFileSizeCommitLog": str(64 << 20),
            "maxHashSlotNum": "10000",
            "maxIndexNum": "40000",
            "registerNameServerPeriod": "10000",
            **(settings or {}),
        }
        self._cluster = cluster
        self._is_secure = secure
        # What `secure` made: files, credentials, TLS. None before the start, and without `secure`.
        self.security: ClusterSecurity | None = None
        self._thread: LoopThread | None = None
        self._names: dict[int, tuple[NamesrvNode, RealDisk]] = {}
        self._names_ports: dict[int, int] = {}
        # By place: the number of the broker or, with replicas, of the process among all of the cluster.
        self._disks: dict[int, RealDisk] = {}
        self._nodes: dict[int, BrokerNode] = {}
        self._ports: dict[int, int] = {}
        # Each replica has a thread of its own, so that it can be paused whole.
        self._threads: dict[int, StoppableThread] = {}
        self._coordination: EmbeddedCoordination | None = None
        self._coordination_disk: RealDisk | None = None
        self._coordination_port = 0
        self._last_id = 0

    # -- life

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> LocalCluster:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all servers; return when every broker is registered and every group has a master."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="aerobee-")
            self._data = Path(self._temporary.name)
        if self._is_secure:
            self.security = ClusterSecurity(self._data, _HOST)
        self._thread = LoopThread("aerobee-cluster")
        try:
            for index in range(self._namesrv_count):
                self.restart_namesrv(index)
            self.namesrv = ";".join(self.namesrv_address(index) for index in range(self._namesrv_count))
            if self._replicas > 1:
                self.restart_coordination()
            for broker in range(self._count):
                self._start_group(broker)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            for place in list(self._nodes):
                self._stop_place(place, thread)
            thread.run(self._stop_all())
        finally:
            for own in self._threads.values():
                own.resume()
                own.stop()
            self._threads.clear()
            thread.stop()
            if self._temporary is not None:
                # Its files are searched before they go.
                with self._temporary as directory:
                    self._temporary, self._data = None, None
                    require_no_leaks(Path(directory))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of all servers, which runs on a thread of its own."""
        if self._thread is None:
            raise InvalidArgumentError("the cluster is not started")
        return self._thread.loop

    @property
    def loop_thread_id(self) -> int:
        if self._thread is None:
            raise InvalidArgumentError("the cluster is not started")
        return self._thread.thread_id

    # -- faults

    def kill(self, broker: int, replica: int | None = None) -> None:
        """Kill a broker as `kill -9` does: connections are reset, nothing is flushed, nobody is told. Without `replica`
        it is the master, where there are several."""
        place = self._place(broker, replica)
        node = self._nodes.pop(place)
        self._run_at(place, self._kill(place, node))

    def restart(self, broker: int, replica: int | None = None) -> None:
        """Start the broker again on its port and its data; stop it first if it runs. Without `replica` all replicas of
        the group are stopped and started."""
        if replica is not None or self._replicas == 1:
            place = self._place(broker, replica)
            self._run_at(place, self._restart(place))
            return
        for number in range(1, self._replicas + 1):
            self._stop_place(self._place(broker, number))
        self._start_group(broker)

    def pause(self, broker: int, replica: int | None = None) -> None:
        """Pause a broker as SIGSTOP does: connections stay open, nothing is read or answered. Without `replica` it is
        the master, where there are several."""
        place = self._place(broker, replica)
        if place in self._threads:
            self._threads[place].pause()
        else:
            self._run(self._freeze(place, stop=True))

    def resume(self, broker: int, replica: int | None = None) -> None:
        """Let a paused broker go on. Without `replica` all paused replicas of the group do."""
        numbers = range(1, self._replicas + 1) if replica is None else (replica,)
        for place in (self._place(broker, number) for number in numbers):
            if place in self._threads:
                self._threads[place].resume()
            else:
                self._run(self._freeze(place, stop=False))

    def master(self, broker: int = 0, within_s: float = 60.0) -> int:
        """Return which replica leads a group, waiting until one does. Raise AerobeeError if none does in time."""
        return self._run(self._find_master(broker, within_s))

    def stop_coordination(self) -> None:
        """Stop the place where replicas agree. Traffic goes on, and no other replica takes over."""
        self._run(self._stop_coordination())

    def restart_coordination(self) -> None:
        """Start the place where replicas agree (again) on its port."""
        self._run(self._restart_coordination())

    def stop_namesrv(self, index: int) -> None:
        """Stop a name server. It keeps only its key-value table."""
        self._run(self._stop_namesrv(index))

    def restart_namesrv(self, index: int) -> None:
        """Start a name server (again) on its port. The brokers register with it within seconds."""
        self._run(self._restart_namesrv(index))

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the servers' clocks at once; return when everything that fell due has happened.

        Delayed messages and retries are then in their queues, producers were asked about open transactions, and expired
        segments are deleted. Connected clients stay connected, as if they had sent their heartbeats meanwhile; locks
        and registrations of others end. The advance is one jump: what would have been repeated in that time
        (check-backs) happens once. The time of clients does not move.
        """
        passed_s = hours * 3600 + minutes * 60 + seconds
        if not 0 <= passed_s < _ADVANCE_MAX_S:
            raise InvalidArgumentError(f"time cannot be advanced by {passed_s} seconds", hint="0 to a hundred years")
        self._run(self._advance(passed_s))

    # -- topics and messages

    def create_topic(self, topic: str, queues: int = 8) -> None:
        """Create a topic on every broker; return when the name servers know it."""
        self._run(self._create_topic(TopicConfig(topic, queues, queues)))

    def messages(self, topic: str) -> list[Message]:
        """Return all stored messages of a topic, ordered by broker, queue and offset."""
        return self._run(self._messages(topic))

    # -- users

    @property
    def client_options(self) -> ClientOptions:
        """Return the options of clients that may do everything: nothing unless the cluster is secure."""
        return {} if self.security is None else self.security.options_of(self.security.admin)

    def add_user(self, name: str, rights: dict[str, str] | None = None) -> ClientOptions:
        """Make a user with rights such as `{"Topic:orders": "Pub,Sub"}`. Return the options of a client."""
        if self.security is None:
            raise InvalidArgumentError("the cluster has no users", hint="LocalCluster(secure=True)")
        made = self.security.add_user(self.namesrv, name, rights or {}, len(self._nodes))
        return self.security.options_of(self._run(made))

    def namesrv_address(self, index: int) -> str:
        """Return the address of one name server. `namesrv` has all of them."""
        return f"{_HOST}:{self._names_ports[index]}"

    def broker_address(self, broker: int, replica: int | None = None) -> str:
        """Return the address of a broker. Without `replica` it is the master's, where there are several."""
        return f"{_HOST}:{self._ports[self._place(broker, replica)]}"

    def broker_fast_address(self, broker: int) -> str:
        """Return the address of the port for clients with a VIP channel."""
        return f"{_HOST}:{self._ports[self._place(broker)] - FAST_PORT_DISTANCE}"

    def metrics_address(self, broker: int) -> str:
        """Return where a broker serves its metrics, with the setting metricsExporterType=PROM."""
        return f"{_HOST}:{self._nodes[broker * self._replicas].monitoring.port}"

    def connections(self, broker: int) -> tuple[int, int]:
        """Return how many connections the broker's own port has, and how many its fast port."""
        return self._run(self._connections(self._place(broker)))

    def broker_name(self, broker: int) -> str:
        return f"broker-{chr(ord('a') + broker)}" if broker < 26 else f"broker-{broker}"

    # -- on the loop thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise InvalidArgumentError("the cluster is not started")
        return self._thread.run(work)

    def _new_disk(self) -> RealDisk:
        """Return a disk whose callbacks run on the running loop."""
        loop = asyncio.get_running_loop()
        return RealDisk(lambda call: void(loop.call_soon_threadsafe(call)))

    # -- replicas

    def _place(self, broker: int, replica: int | None = None) -> int:
        """Return the place of a broker. Without `replica` it is the master's, where there are several."""
        if self._replicas == 1:
            return broker
        number = self.master(broker) if replica is None else replica
        if not 1 <= number <= self._replicas:
            raise InvalidArgumentError(f"there is no replica {number}", hint=f"1 to {self._replicas}")
        return broker * self._replicas + number - 1

    def _run_at(self, place: int, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the thread of a broker. A broker that was paused goes on."""
        if self._replicas == 1:
            return self._run(work)
        thread = self._threads.get(place)
        if thread is None:
            thread = self._threads[place] = StoppableThread(f"aerobee-{self.broker_name(place // self._replicas)}")
        future = thread.submit(work)
        thread.resume()
        return thread.wait(future)

    async def _ask(self, place: int, question: Callable[[BrokerNode], Coroutine[Any, Any, T]]) -> T | None:
        """Ask a node on its own thread. Return None for one that does not run."""
        node, thread = self._nodes.get(place), self._threads.get(place)
        if node is None or (thread is not None and thread.is_paused):
            return None
        if thread is None:
            return await question(node)
        return await asyncio.wrap_future(thread.submit(question(node)))

    def _start_group(self, broker: int) -> None:
        """Start the replicas one after the other, so that they join in their order, and wait for a master."""
        for number in range(1, self._replicas + 1):
            place = broker * self._replicas + number - 1
            self._run_at(place, self._restart(place))
            if self._replicas > 1:
                self._run_at(place, self._joined(place))
        if self._replicas > 1:
            self.master(broker)

    async def _joined(self, place: int) -> None:
        """Wait until a replica has its id."""
        group = self._nodes[place].group
        assert group is not None
        if not await self._wait(lambda: group.replica is not None and group.replica.status().id > 0, _EFFECT_S):
            raise AerobeeError(f"a replica did not join its group within {_EFFECT_S:g} s", hint="see the brokers' log")

    async def _find_master(self, broker: int, within_s: float) -> int:
        if self._replicas == 1:
            return 1
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while loop.time() < until_s:
            for number in range(1, self._replicas + 1):
                if await self._ask(broker * self._replicas + number - 1, parts.is_leading):
                    return number
            await asyncio.sleep(_LOOK_S)
        raise AerobeeError(f"{self.broker_name(broker)} has no master within {within_s:g} s")

    async def _masters(self) -> list[int]:
        """Return the places of all masters; without replicas all places."""
        if self._replicas == 1:
            return sorted(self._nodes)
        found = []
        for broker in range(self._count):
            found.append(broker * self._replicas + await self._find_master(broker, _EFFECT_S) - 1)
        return found

    async def _restart_coordination(self) -> None:
        await self._stop_coordination()
        disk = self._coordination_disk = self._new_disk()
        path = f"{self._data}/coordination/state.json"
        store = EmbeddedCoordination(RealNet(), disk, path, SystemClock(), SystemEntropy())
        await store.start(_HOST, self._coordination_port)
        self._coordination = store
        self._coordination_port = parse_endpoints(store.address)[0].port

    async def _stop_coordination(self) -> None:
        store, self._coordination = self._coordination, None
        if store is not None:
            await store.stop()
        disk, self._coordination_disk = self._coordination_disk, None
        if disk is not None:
            disk.close()

    def _coordinator(self, group: str) -> GroupCoordinator | None:
        if self._replicas == 1:
            return None
        clock = SystemClock()
        settings = EtcdSettings(endpoints=parse_endpoints(f"{_HOST}:{self._coordination_port}"))
        return GroupCoordinator(EtcdClient(settings, RealNet(), clock), self._cluster, group, clock)

    async def _restart_namesrv(self, index: int) -> None:
        await self._stop_namesrv(index)
        disk = self._new_disk()
        # Users are kept. The table of a name server that has none is in memory only.
        path = f"{self._data}/namesrv-{index}/kvConfig.json" if self._is_secure else ""
        config = NamesrvConfig(listen_port=self._names_ports.get(index, 0), kv_config_path=path)
        loaded = load((TlsConfig, AccessConfig), Source("cluster", parts.shared_settings(self._all_settings)))
        tls, access = loaded.get(TlsConfig), loaded.get(AccessConfig)
        node = NamesrvNode(config, disk, self.clock, host=_HOST, tls=tls, access=access)
        self._names[index] = (node, disk)
        await node.start()
        self._names_ports[index] = node.port

    async def _stop_namesrv(self, index: int) -> None:
        if index in self._names:
            node, disk = self._names.pop(index)
            await node.stop()
            disk.close()

    async def _restart(self, place: int) -> None:
        await self._stop_broker(place)
        assert self._data is not None
        loaded = load(
            (BrokerConfig, StoreConfig, TlsConfig, MetricsConfig, AccessConfig),
            override_source([f"{key}={value}" for key, value in self._own_settings(place).items()]),
        )
        disk = self._disks[place] = self._new_disk()
        node = BrokerNode(
            loaded.get(BrokerConfig), loaded.get(StoreConfig), disk, self.clock, SystemEntropy(), host=_HOST,
            unique_id=self._unique_id, tls=loaded.get(TlsConfig), access=loaded.get(AccessConfig),
            start=ProcessStart(
                boot_id=boot_id(), start_id=SystemEntropy().token(16).hex(), number_of=directory_number
            ),
            group_clock=SystemClock(),
            coordinator=self._coordinator(loaded.get(BrokerConfig).broker_name), metrics=loaded.get(MetricsConfig),
        )  # fmt: skip
        await node.start()
        self._nodes[place] = node
        self._ports[place] = node.port

    def _own_settings(self, place: int) -> dict[str, str]:
        broker, number = divmod(place, self._replicas)
        return {
            **parts.defaults_of(_HOST, self._replicas),
            **self._all_settings,
            "brokerClusterName": self._cluster,
            "brokerName": self.broker_name(broker),
            "listenPort": str(self._ports.get(place, 0)),
            "namesrvAddr": self.namesrv,
            # The first replica has the directory of the group without replicas.
            "storePathRootDir": f"{self._data}/{self.broker_name(broker)}" + (f"-{number + 1}" if number else ""),
        }

    @property
    def _all_settings(self) -> dict[str, str]:
        return {**(self.security.settings if self.security is not None else {}), **self._settings}

    def _unique_id(self) -> str:
        self._last_id += 1
        return unique_message_id(bytes((127, 0, 0, 1)), 0, 0, 0, self.clock.now_ms() & 0x7FFFFFFF, self._last_id)

    def _stop_place(self, place: int, thread: LoopThread | None = None) -> None:
        """Stop a broker on its own thread."""
        if place in self._threads:
            self._run_at(place, self._stop_broker(place))
        else:
            (thread or self._thread or LoopThread()).run(self._stop_broker(place))

    async def _stop_broker(self, place: int) -> None:
        node = self._nodes.pop(place, None)
        if node is not None:
            await node.stop()
        disk = self._disks.pop(place, None)
        if disk is not None:
            disk.close()

    async def _kill(self, place: int, node: BrokerNode) -> None:
        await node.die()
        self._disks.pop(place).close()

    async def _freeze(self, place: int, *, stop: bool) -> None:
        node = self._nodes[place]
        node.server.freeze() if stop else node.server.thaw()

    async def _connections(self, place: int) -> tuple[int, int]:
        channels = self._nodes[place].server.channels.values()
        fast = sum(1 for channel in channels if channel.refused)
        return len(channels) - fast, fast

    async def _advance(self, passed_s: float) -> None:
        # A send that waits for its sync must not be answered "too late" because of the jump.
        await self._wait(lambda: not any(node.state.flow.sends.count for node in self._nodes.values()), _SENDS_S)
        running = [thread for thread in self._threads.values() if not thread.is_paused]
        # This is one step with the jump: nobody may look at the clock in between.
        for thread in running:
            thread.pause()
        try:
            before_s = self.clock.monotonic()
            self.clock.shift_s += passed_s
            for names, _ in self._names.values():
                stay_connected(names.server, self.clock.monotonic())
                names.names.state.routes.renew(names.names.state.now_ms())
            for node in self._nodes.values():
                pass_time(node, before_s, self.clock.monotonic())
            ends = {place: node.state.store.log_end for place, node in self._nodes.items()}
        finally:
            for thread in running:
                thread.resume()
        for place in list(self._nodes):
            # The broker would have registered with the name servers in the time that passed.
            await self._ask(place, parts.register)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _EFFECT_S
        while any([await self._ask(place, self._look(ends.get(place, 0))) for place in list(self._nodes)]):
            if loop.time() > until_s:
                raise AerobeeError(
                    f"what fell due has not happened within {_EFFECT_S:g} s", hint="see the brokers' log"
                )
            await asyncio.sleep(_LOOK_S)

    def _look(self, end: int) -> Callable[[BrokerNode], Coroutine[Any, Any, bool]]:
        async def look(node: BrokerNode) -> bool:
            return self._is_behind(node, end)

        return look

    def _is_behind(self, node: BrokerNode, end: int) -> bool:
        """Do the broker's timed work, as its own tick does; return whether some of it is under way.

        The log up to `end` would have been flushed in the time that passed: only flushed segments may expire.
        """
        now_s, now_ms, store = self.clock.monotonic(), self.clock.now_ms(), node.state.store
        begin = store.log_start
        node.broker.look_again()
        node.broker.tick(now_s, now_ms)
        is_flushed = store.flushed_offset >= end or store.fenced is not None
        is_behind = node.broker.is_behind(now_ms) and not node.broker.is_following
        return is_behind or store.log_start > begin or not is_flushed

    async def _wait(self, holds: Callable[[], bool], within_s: float) -> bool:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not holds():
            if loop.time() > until_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _stop_all(self) -> None:
        await self._stop_coordination()
        for index in list(self._names):
            await self._stop_namesrv(index)
        for disk in self._disks.values():
            disk.close()
        self._disks.clear()

    async def _create_topic(self, topic: TopicConfig) -> None:
        until_s = asyncio.get_running_loop().time() + _EFFECT_S
        while True:
            masters = await self._masters()
            try:
                for place in masters:
                    await self._ask(place, parts.topic_maker(topic))
                break
            except StoreError:
                # A group takes a change when enough replicas are in sync, which a busy machine may delay.
                if self._replicas == 1 or asyncio.get_running_loop().time() > until_s:
                    raise
            await asyncio.sleep(100 * _LOOK_S)
        for place in masters:
            await self._ask(place, parts.register)

    async def _messages(self, topic: str) -> list[Message]:
        found: list[Message] = []
        for place in await self._masters():
            question = parts.stored_messages(topic, self.broker_name(place // self._replicas))
            found += await self._ask(place, question) or []
        return found
