"""A broker's handlers for tests: real frames in and out over connections in memory, on virtual time.

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        answer = await client.call(request(...))

    run_broker(main)

Time moves by `kit.pass_time`, which ticks what a broker's root would tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aerobee.broker.clientside import ClientTables, build_client_side
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay.levels import DelayLevels
from aerobee.broker.flowcontrol import FlowControl
from aerobee.broker.log.arrivals import Arrivals
from aerobee.broker.log.longpoll import LongPolls
from aerobee.broker.log.putcounts import PutCounts
from aerobee.broker.log.puts import Puts
from aerobee.broker.log.sendrules import largest_body
from aerobee.broker.log.tail import learn_marks
from aerobee.broker.membership.assignment import own_queues
from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.filters import ConsumerFilters
from aerobee.broker.membership.locks import QueueLocks
from aerobee.broker.offsets.rules import ConsumerOffsets
from aerobee.broker.send.handler import SendAnswers, SendHandler, SendSettings
from aerobee.broker.state import BrokerState
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics.catalog import Catalog
from aerobee.model.topic import PERM_WRITE
from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, encode_command, response
from aerobee.protocol.connection import Connection
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.config import StoreConfig
from aerobee.store.dispatch import Sink
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import ConsumerFilterTable, MessageRequestModeTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import run_virtual
from aerobee.testing.storekit import HOST, ROOT, small_config

# Turns of the loop in which everything that can happen without time passing has happened.
_TURNS = 20


class _Wire(asyncio.Transport):
    """The far end of a connection: keeps what is written to it."""

    def __init__(self, port: int) -> None:
        super().__init__({"peername": ("10.0.0.9", port)})
        self.written = bytearray()
        self.is_closed = False
        self.channel: Channel | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever held back."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self.channel is not None
            asyncio.get_running_loop().call_soon(self.channel.connection_lost, None)


class KitClient:
    """One client's connection."""

    def __init__(self, kit: BrokerKit, port: int) -> None:
        self._wire = _Wire(port)
        self.channel = Channel(kit.server)
        self._wire.channel = self.channel
        self._machine = Connection()
        self._unread: list[Command] = []
        self.channel.connection_made(self._wire)

    @property
    def is_closed(self) -> bool:
        return self._wire.is_closed

    def send(self, command: Command) -> None:
        """Bytes go in; answers come out when the loop has turned."""
        self.channel.data_received(encode_command(command))

    async def call(self, command: Command) -> Command:
        """Send and wait for the answer; pushes that come meanwhile stay for `pushes`."""
        self.send(command)
        await settle()
        self._receive()
        for place, one in enumerate(self._unread):
            if one.is_response and one.opaque == command.opaque:
                return self._unread.pop(place)
        raise AssertionError(f"no answer to request {command.code}")

    async def pushes(self) -> list[Command]:
        """What the broker sent of its own accord."""
        await settle()
        self._receive()
        pushed = [one for one in self._unread if not one.is_response]
        self._unread = [one for one in self._unread if one.is_response]
        return pushed

    async def answers(self) -> list[Command]:
        """Answers not yet taken."""
        await settle()
        self._receive()
        answered = [one for one in self._unread if one.is_response]
        self._unread = [one for one in self._unread if not one.is_response]
        return answered

    def answer(self, push: Command, code: int = 0) -> None:
        """Answer a push."""
        self.send(response(push, code))

    def close(self) -> None:
        self._wire.abort()

    def _receive(self) -> None:
        data, self._wire.written = bytes(self._wire.written), bytearray()
        self._unread += self._machine.receive_data(data)


class BrokerKit:
    """A broker without a network: store, tables, handlers."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: BrokerConfig | None = None,
        store_config: StoreConfig | None = None,
        *,
        root: str = ROOT,
        seed: int = 1,
    ) -> None:
        config = config or BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")
        store_config = store_config or small_config(segment=1 << 20)
        self.clock, self._ports = clock, 40_000
        channels: dict[int, Channel] = {}
        polls: LongPolls[Any] = LongPolls()
        # Wakes held pulls where a test serves pulls and sets its `wake`.
        self.arrivals = Arrivals(polls)
        index: Sink = MessageIndex(disk, root, store_config)
        store = MessageStore(root, store_config, disk, clock, [index, self.arrivals])
        flow = FlowControl(config.flow_limits(), clock.monotonic())
        stats = BrokerStats(config.cluster_name)
        settings = _send_settings(config, store_config)
        catalog = Catalog(
            TopicTable(disk, root),
            GroupTable(disk, root),
            config.topic_rules(config.broker_name),
            config.group_rules(),
            clock,
        )
        self.counts = PutCounts(stats, catalog.topic_rules.is_system)
        answers = SendAnswers(settings)
        self.tables = ClientTables(
            ConsumerOffsetTable(disk, root), DelayOffsetTable(disk, root), MessageRequestModeTable(disk, root)
        )
        self.state = BrokerState(
            config=config,
            name=config.broker_name,
            address="127.0.0.1:10911",
            store_host=HOST,
            store=store,
            catalog=catalog,
            clients=Clients(),
            offsets=ConsumerOffsets(self.tables.offsets.table),
            filters=ConsumerFilters(ConsumerFilterTable(disk, root), clock),
            locks=QueueLocks(),
            polls=polls,
            stats=stats,
            flow=flow,
            levels=DelayLevels.parse(store_config.message_delay_level),
            puts=Puts(store, answers, flow, clock, timeout_s=5.0, stored=self.counts.stored, arrivals=self.arrivals),
            clock=clock,
            entropy=SeededEntropy(seed),
            channel=channels.get,
            unique_id=lambda: "7F0000010000000000000000" + "0" * 8,
        )
        store.open()
        catalog.load()
        self.tables.offsets.load()
        self.tables.modes.load()
        queues = own_queues(catalog, self.state.name)
        self.side = build_client_side(self.state, settings, self.tables, self.counts, queues)
        self.spared = self.side.open()
        send = SendHandler(
            settings, catalog, self.state.puts, answers, self.side.special, flow, clock, self.state.entropy,
            self.state.unique_id,
        )  # fmt: skip
        learn_marks(store, send.dedup, config.broker_name, clock)
        fast = dict.fromkeys((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2), send.on_frame)
        self.server = Server("kit", self.side.handlers, clock=clock, fast=fast, observer=self.side.effects)
        self.server.channels = channels  # by id; the state was built before the server

    @property
    def store(self) -> MessageStore:
        return self.state.store

    def connect(self) -> KitClient:
        self._ports += 1
        return KitClient(self, self._ports)

    def tick(self) -> None:
        self.state.flow.loop.beat(self.clock.monotonic())
        self.store.tick()
        self.state.catalog.tick()
        self.side.tick(self.clock.now_ms())

    async def pass_time(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass, ticking at every step and at the end."""
        while seconds > 0:
            step = min(step_s, seconds)
            await asyncio.sleep(step)
            self.tick()
            await settle()
            seconds -= step

    def close(self) -> None:
        self.state.puts.flush()
        self.state.catalog.save_now()
        for close in self.side.closers(self.store.close):
            close()


def _send_settings(config: BrokerConfig, store: StoreConfig) -> SendSettings:
    body_size_max = largest_body(store.max_message_size, store.mapped_file_size_commit_log)
    writable = config.broker_permission & PERM_WRITE != 0
    return SendSettings(config.cluster_name, config.region_id, config.trace_on, HOST, body_size_max, writable=writable)


async def settle() -> None:
    """Let the loop turn until nothing is left that needs no time."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def run_broker(
    main: Callable[[BrokerKit], Awaitable[None]],
    *,
    disk: Disk | None = None,
    config: BrokerConfig | None = None,
    store_config: StoreConfig | None = None,
    wall_ms: int = 1_700_000_000_000,
    close: bool = True,
) -> BrokerKit:
    """Run a test against a new broker. Without `close` it ends as by kill -9: what was written stays."""

    async def run(loop: asyncio.AbstractEventLoop) -> BrokerKit:
        clock = VirtualClock(loop.time, wall_ms=wall_ms)
        kit = BrokerKit(disk or RecordingDisk(seed=1), clock, config, store_config)
        await main(kit)
        if close:
            kit.close()
        return kit

    return run_virtual(run)
