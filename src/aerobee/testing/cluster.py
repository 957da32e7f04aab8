"""LocalCluster: name servers and brokers in this process, for tests of applications and of Aerobee itself.

    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        ...  # clients connect to cluster.namesrv
        cluster.kill(0); cluster.restart(0); cluster.advance(hours=2)

The servers run on an event loop in a thread of their own. The methods block and can be called from anywhere, also from
inside a test's own event loop. A cluster uses only free loopback ports and a temporary directory.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from aerobee.app.broker import BrokerNode
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.ports import FAST_PORT_DISTANCE
from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import load, override_source
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.hot.log.record import decode_records
from aerobee.model.ids import unique_message_id
from aerobee.model.message import Message, from_record
from aerobee.model.topic import TopicConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.net.server import Server
from aerobee.runtime.bases import Clock
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.loopthread import LoopThread
from aerobee.store.config import StoreConfig
from aerobee.store.reads import GetMessageStatus

T = TypeVar("T")

_HOST = "127.0.0.1"
_ADVANCE_MAX_S = 100 * 366 * 86_400.0
_LOOK_S = 0.001
# The time that `advance` waits for sends under way, and for its effect.
_SENDS_S = 1.0
_EFFECT_S = 60.0


def void(result: object) -> None:
    """Drop a result that nobody needs."""


class ShiftedClock(Clock):
    """The system's clock, which a test moves forward."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self.shift_s = 0.0

    def now_ms(self) -> int:
        return self._real.now_ms() + int(self.shift_s * 1000)

    def monotonic(self) -> float:
        return self._real.monotonic() + self.shift_s


def _stay_connected(server: Server, now_s: float) -> None:
    """Make sure that no connection counts as idle or slow for the time that is skipped."""
    for channel in server.channels.values():
        channel.last_read_s = now_s
        channel.frame_began_s = now_s if channel.frame_began_s else 0.0
        channel.stalled_since_s = now_s if channel.stalled_since_s else 0.0


def _pass_time(node: BrokerNode, before_s: float, now_s: float) -> None:
    """Renew the heartbeats and locks of all connected clients."""
    state = node.state
    # The jump is no stall of the loop, so that nobody is answered busy for it.
    state.flow.loop.beat(now_s)
    _stay_connected(node.server, now_s)
    producers, consumers = state.clients.producers(), state.clients.groups()
    members = [*producers.values(), *(group.members for group in consumers.values())]
    alive = [member for table in members for member in table.values()]
    for member in alive:
        member.seen_s = now_s
    state.locks.renew({member.client.client_id for member in alive}, before_s, now_s)
    node.broker.look_again()


class LocalCluster:
    """A cluster of `brokers` broker groups and `namesrvs` name servers, which do not know each other.

    `settings` are RocketMQ's keys for every broker. Those of TLS hold for the name servers too.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        namesrvs: int = 1,
        data: str | Path | None = None,
        settings: dict[str, str] | None = None,
        cluster: str = "LocalCluster",
    ) -> None:
        if brokers < 1 or namesrvs < 1:
            raise InvalidArgumentError("a cluster needs at least one broker and one name server")
        self.clock = ShiftedClock()
        self.namesrv = ""
        self._count = brokers
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
        self._thread: LoopThread | None = None
        self._names: dict[int, tuple[NamesrvNode, RealDisk]] = {}
        self._names_ports: dict[int, int] = {}
        self._disks: dict[int, RealDisk] = {}
        self._nodes: dict[int, BrokerNode] = {}
        self._ports: dict[int, int] = {}
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
        """Start all servers; return when every broker is registered."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="aerobee-")
            self._data = Path(self._temporary.name)
        self._thread = LoopThread("aerobee-cluster")
        try:
            for index in range(self._namesrv_count):
                self.restart_namesrv(index)
            self.namesrv = ";".join(self.namesrv_address(index) for index in range(self._namesrv_count))
            for index in range(self._count):
                self.restart(index)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._stop_all())
        finally:
            thread.stop()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary, self._data = None, None

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

    def kill(self, broker: int) -> None:
        """Kill a broker as `kill -9` does: connections are reset, nothing is flushed, nobody is told."""
        node = self._nodes.pop(broker)
        self._run(self._kill(broker, node))

    def restart(self, broker: int) -> None:
        """Start the broker again on its port and its data; stop it first if it runs."""
        self._run(self._restart(broker))

    def pause(self, broker: int) -> None:
        """Pause a broker as SIGSTOP does: connections stay open, nothing is read or answered."""
        self._run(self._pause(broker, stop=True))

    def resume(self, broker: int) -> None:
        self._run(self._pause(broker, stop=False))

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

    def namesrv_address(self, index: int) -> str:
        """Return the address of one name server. `namesrv` has all of them."""
        return f"{_HOST}:{self._names_ports[index]}"

    def broker_address(self, broker: int) -> str:
        return f"{_HOST}:{self._ports[broker]}"

    def broker_fast_address(self, broker: int) -> str:
        """Return the address of the port for clients with a VIP channel."""
        return f"{_HOST}:{self._ports[broker] - FAST_PORT_DISTANCE}"

    def connections(self, broker: int) -> tuple[int, int]:
        """Return how many connections the broker's own port has, and how many its fast port."""
        return self._run(self._connections(broker))

    def broker_name(self, broker: int) -> str:
        return f"broker-{chr(ord('a') + broker)}" if broker < 26 else f"broker-{broker}"

    # -- on the loop thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise InvalidArgumentError("the cluster is not started")
        return self._thread.run(work)

    def _new_disk(self) -> RealDisk:
        assert self._thread is not None
        loop = self._thread.loop
        return RealDisk(lambda call: void(loop.call_soon_threadsafe(call)))

    async def _restart_namesrv(self, index: int) -> None:
        await self._stop_namesrv(index)
        disk = self._new_disk()
        config = NamesrvConfig(listen_port=self._names_ports.get(index, 0))
        tls = [f"{key}={value}" for key, value in self._settings.items() if key.startswith("tls.")]
        loaded = load((TlsConfig,), override_source(tls))
        node = NamesrvNode(config, disk, self.clock, host=_HOST, tls=loaded.get(TlsConfig))
        self._names[index] = (node, disk)
        await node.start()
        self._names_ports[index] = node.port

    async def _stop_namesrv(self, index: int) -> None:
        if index in self._names:
            node, disk = self._names.pop(index)
            await node.stop()
            disk.close()

    async def _restart(self, broker: int) -> None:
        await self._stop_broker(broker)
        assert self._data is not None
        loaded = load(
            (BrokerConfig, StoreConfig, TlsConfig),
            override_source([f"{key}={value}" for key, value in self._own_settings(broker).items()]),
        )
        disk = self._disks[broker] = self._new_disk()
        node = BrokerNode(
            loaded.get(BrokerConfig),
            loaded.get(StoreConfig),
            disk,
            self.clock,
            SystemEntropy(),
            host=_HOST,
            unique_id=self._unique_id,
            tls=loaded.get(TlsConfig),
        )
        await node.start()
        self._nodes[broker] = node
        self._ports[broker] = node.port

    def _own_settings(self, broker: int) -> dict[str, str]:
        return {
            "brokerIP1": _HOST,
            # A loaded machine must not lead to busy answers, except in tests of those.
            "brokerFastFailureEnable": "false",
            **self._settings,
            "brokerClusterName": self._cluster,
            "brokerName": self.broker_name(broker),
            "listenPort": str(self._ports.get(broker, 0)),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self._data) + f"/{self.broker_name(broker)}",
        }

    def _unique_id(self) -> str:
        self._last_id += 1
        return unique_message_id(bytes((127, 0, 0, 1)), 0, 0, 0, self.clock.now_ms() & 0x7FFFFFFF, self._last_id)

    async def _stop_broker(self, broker: int) -> None:
        node = self._nodes.pop(broker, None)
        if node is not None:
            await node.stop()
        disk = self._disks.pop(broker, None)
        if disk is not None:
            disk.close()

    async def _kill(self, broker: int, node: BrokerNode) -> None:
        await node.die()
        self._disks.pop(broker).close()

    async def _pause(self, broker: int, *, stop: bool) -> None:
        node = self._nodes[broker]
        node.server.freeze() if stop else node.server.thaw()

    async def _connections(self, broker: int) -> tuple[int, int]:
        channels = self._nodes[broker].server.channels.values()
        fast = sum(1 for channel in channels if channel.refused)
        return len(channels) - fast, fast

    async def _advance(self, passed_s: float) -> None:
        # A send that waits for its sync must not be answered "too late" because of the jump.
        await self._wait(lambda: not any(node.state.flow.sends.count for node in self._nodes.values()), _SENDS_S)
        before_s = self.clock.monotonic()
        self.clock.shift_s += passed_s
        # This is one step with the jump: nobody may look at the clock in between.
        for names, _ in self._names.values():
            _stay_connected(names.server, self.clock.monotonic())
            names.names.state.routes.renew(names.names.state.now_ms())
        for node in self._nodes.values():
            _pass_time(node, before_s, self.clock.monotonic())
        ends = {broker: node.state.store.log_end for broker, node in self._nodes.items()}
        for node in list(self._nodes.values()):
            # The broker would have registered with the name servers in the time that passed.
            await node.registrar.register_now()

        def happened() -> bool:
            return not any([self._is_behind(node, ends.get(broker, 0)) for broker, node in self._nodes.items()])

        if not await self._wait(happened, _EFFECT_S):
            raise AerobeeError(f"what fell due has not happened within {_EFFECT_S:g} s", hint="see the brokers' log")

    def _is_behind(self, node: BrokerNode, end: int) -> bool:
        """Do the broker's timed work, as its own tick does; return whether some of it is under way.

        The log up to `end` would have been flushed in the time that passed: only flushed segments may expire.
        """
        now_s, now_ms, store = self.clock.monotonic(), self.clock.now_ms(), node.state.store
        begin = store.log_start
        node.broker.look_again()
        node.broker.tick(now_s, now_ms)
        is_flushed = store.flushed_offset >= end or store.fenced is not None
        return node.broker.is_behind(now_ms) or store.log_start > begin or not is_flushed

    async def _wait(self, holds: Callable[[], bool], within_s: float) -> bool:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not holds():
            if loop.time() > until_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _stop_all(self) -> None:
        for broker in list(self._nodes):
            await self._stop_broker(broker)
        for index in list(self._names):
            await self._stop_namesrv(index)
        for disk in self._disks.values():
            disk.close()
        self._disks.clear()

    async def _create_topic(self, topic: TopicConfig) -> None:
        for node in self._nodes.values():
            node.state.catalog.put_topic(topic)
        for node in self._nodes.values():
            await node.registrar.register_now()

    async def _messages(self, topic: str) -> list[Message]:
        found: list[Message] = []
        for broker, node in sorted(self._nodes.items()):
            store, name = node.state.store, topic.encode()
            for queue in sorted((q for q in store.queues if q.topic == name), key=lambda q: q.queue_id):
                offset = store.min_offset(name, queue.queue_id)
                while True:
                    result = store.get_messages(name, queue.queue_id, offset, 1024)
                    if result.status is GetMessageStatus.COLD:
                        result = store.fetch_now(result)
                    if result.status is not GetMessageStatus.FOUND:
                        break
                    data = b"".join(bytes(buffer) for buffer in result.buffers)
                    found += [from_record(record, self.broker_name(broker)) for record in decode_records(data)]
                    offset = result.next_begin_offset
        return found
