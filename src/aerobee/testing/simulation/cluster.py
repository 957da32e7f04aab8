"""The servers of a run: two name servers and two broker groups, the real roots on simulated machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aerobee.app.broker import BrokerNode
from aerobee.app.namesrv import NamesrvNode
from aerobee.broker.config import BrokerConfig
from aerobee.hot.log.record import Record
from aerobee.model.uniqueids import UniqueIds
from aerobee.namesrv.config import NamesrvConfig
from aerobee.replication.coordinator import Coordinator
from aerobee.replication.settings import ProcessStart
from aerobee.store.config import StoreConfig
from aerobee.testing.crash import CrashMode
from aerobee.testing.simulation.story import KeptOffset, Outage, Story
from aerobee.testing.simulation.world import ROOT, Machine, World
from aerobee.testing.storekit import make_store, read_queue, small_config
from aerobee.testing.workload import RawClient

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
NAMESRVS: Final = ("10.0.0.1", "10.0.0.2")
BROKERS: Final = {"broker-a": "10.0.1.1", "broker-b": "10.0.1.2"}
NAMESRV_ADDR: Final = ";".join(f"{address}:{NAMESRV_PORT}" for address in NAMESRVS)
# Queues of each topic on each broker.
TOPICS: Final = {"plain": 2, "ordered": 2, "later": 1, "tx": 1}
# Levels from 3 on are those of retries.
DELAY_LEVELS_S: Final = (1, 2, 1, 1, 2, 2, 3)
_SEGMENT_BYTES: Final = 32 * 1024


def unique_ids(address: str, token: bytes) -> UniqueIds:
    """Return a maker of ids that depends on nothing but the seed."""
    return UniqueIds(address, 1, token, lambda now_ms: (0, 1 << 62))


class NameServerHost:
    """A name server's machine."""

    def __init__(self, world: World, address: str) -> None:
        self.machine = world.machine(address)
        self.node: NamesrvNode | None = None
        self._stop = asyncio.Event()

    @property
    def address(self) -> str:
        return f"{self.machine.address}:{NAMESRV_PORT}"

    def start(self) -> None:
        self._stop = asyncio.Event()
        self.machine.launch(self._serve(self._stop))

    async def stop(self) -> None:
        """Stop in an orderly way."""
        self._stop.set()
        await self.machine.stopped()
        self.machine.down = "stopped"

    async def _serve(self, stop: asyncio.Event) -> None:
        machine = self.machine
        config = NamesrvConfig(listen_port=NAMESRV_PORT, kv_config_path=f"{ROOT}/kvConfig.json")
        self.node = node = NamesrvNode(config, machine.disk, machine.clock, host=machine.address, net=machine.net)
        await node.start()
        await stop.wait()
        await node.stop()


class BrokerHost:
    """A broker's machine."""

    def __init__(self, world: World, name: str, address: str, story: Story, *, sync_flush: bool) -> None:
        self.name = name
        self.machine: Machine = world.machine(address)
        self.sync_flush = sync_flush
        self.node: BrokerNode | None = None
        # Set while the node serves.
        self.up = asyncio.Event()
        self._story = story
        self._stop = asyncio.Event()
        self._config = BrokerConfig(
            broker_name=name,
            broker_ip1=address,
            listen_port=BROKER_PORT,
            namesrv_addr=NAMESRV_ADDR,
            register_interval_ms=10_000,
            register_timeout_ms=1_000,
            flush_consumer_offset_interval_ms=2_000,
            transaction_timeout_ms=1_000,
            transaction_check_interval_ms=1_000,
            auto_create_topic_enable=False,
        )
        self.store_config: StoreConfig = small_config(
            sync=sync_flush,
            segment=_SEGMENT_BYTES,
            mapped_file_size_consume_queue=64 * 20,
            message_delay_level=" ".join(f"{seconds}s" for seconds in DELAY_LEVELS_S),
            timer_precision_ms=100,
            store_path_root_dir=ROOT,
        )

    @property
    def is_up(self) -> bool:
        return self.up.is_set()

    @property
    def address(self) -> str:
        return f"{self.machine.address}:{BROKER_PORT}"

    def start(self) -> None:
        self._stop = asyncio.Event()
        self._story.launches.append((self.name, self._story.now_s()))
        self.machine.launch(self._serve(self._stop))

    async def stop(self) -> None:
        """Stop in an orderly way."""
        self._note_end(is_power_cut=False)
        self._stop.set()
        await self.machine.stopped()
        self.machine.down = "stopped"

    def kill(self) -> None:
        self._note_end(is_power_cut=False)
        self.machine.kill()

    def cut_power(self, mode: CrashMode) -> None:
        self._note_end(is_power_cut=True)
        self.machine.cut_power(mode)

    def _note_end(self, *, is_power_cut: bool) -> None:
        flushed = self.node.state.store.flushed_offset if self.is_up and self.node is not None else 0
        self.up.clear()
        self._story.outages.append(Outage(self.name, self._story.now_s(), is_power_cut, flushed))

    def _make_node(self, coordinator: Coordinator | None = None) -> BrokerNode:
        machine = self.machine
        ids = unique_ids(machine.address, machine.entropy.token(4))
        return BrokerNode(
            self._config, self.store_config, machine.disk, machine.clock, machine.entropy.fork(),
            host=machine.address, unique_id=lambda: ids.next(machine.clock.now_ms()), net=machine.net,
            coordinator=coordinator, start=ProcessStart(boot_id=str(machine.boots)),
        )  # fmt: skip

    async def _serve(self, stop: asyncio.Event) -> None:
        self.node = node = self._make_node()
        await node.start()
        self.up.set()
        await stop.wait()
        await node.stop()

    def observe(self, note: Callable[[KeptOffset], None]) -> None:
        """Tell the offsets that the broker keeps for its groups now."""
        if self.is_up:
            for kept in self._kept_offsets():
                note(kept)

    def _kept_offsets(self) -> Iterator[KeptOffset]:
        assert self.node is not None
        now_s = self._story.now_s()
        for key, queues in self.node.state.offsets.table.items():
            topic, _, group = key.partition("@")
            if topic in TOPICS:
                for queue_id, offset in queues.items():
                    yield KeptOffset(now_s, group, (topic, self.name, queue_id), offset)

    def stored(self) -> dict[tuple[str, int], list[Record]]:
        """Return everything that the broker serves, by topic and queue."""
        assert self.node is not None
        store = self.node.state.store
        return {
            (topic, queue_id): read_queue(store, topic.encode(), queue_id)
            for topic, count in TOPICS.items()
            for queue_id in range(count)
        }

    def survivors(self, mode: CrashMode, seed: int) -> tuple[int, list[Record]]:
        """Return how far the log was called safe, and the records that a start after a power cut now would serve."""
        assert self.node is not None
        flushed = self.node.state.store.flushed_offset
        store = make_store(self.machine.disk.crash(mode, seed), self.store_config)
        store.open()
        places = [(queue.topic, queue.queue_id) for queue in store.queues]
        return flushed, [record for topic, queue_id in places for record in read_queue(store, topic, queue_id)]


class SimulatedCluster:
    """All servers, and a host from which they are administered."""

    def __init__(self, world: World, brokers: Sequence[BrokerHost]) -> None:
        self.namesrvs = [NameServerHost(world, address) for address in NAMESRVS]
        self.brokers = brokers
        self._net = world.net.host("10.0.9.9")

    async def start(self) -> None:
        """Start every server and make the topics."""
        for namesrv in self.namesrvs:
            namesrv.start()
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            await broker.up.wait()
        await self.ready()
        for broker in self.serving():
            admin = RawClient(broker.address, self._net)
            for topic, queues in TOPICS.items():
                await admin.create_topic(topic, queues)
            await admin.close()

    async def ready(self) -> None:
        """Wait until every group has a master."""

    def watch_routes(self, problems: list[str]) -> None:
        """Tell what is wrong with the masters that name servers name."""

    def serving(self) -> Sequence[BrokerHost]:
        """Return the brokers that serve clients now: the master of each group."""
        return self.brokers


def plain_cluster(world: World, story: Story) -> SimulatedCluster:
    """Return two groups of one broker each, with the flush that the seed chooses."""
    sync_flush = {name: world.entropy.chance(0.6) for name in BROKERS}
    brokers = [BrokerHost(world, name, at, story, sync_flush=sync_flush[name]) for name, at in BROKERS.items()]
    return SimulatedCluster(world, brokers)
