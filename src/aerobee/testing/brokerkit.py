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
from dataclasses import replace
from typing import Any

from aerobee.access.brokertable import BROKER_ROWS
from aerobee.access.config import AccessConfig
from aerobee.app.access import AccessRoot
from aerobee.broker.assembly import Broker, Seams
from aerobee.broker.config import BrokerConfig
from aerobee.broker.roles import Authority
from aerobee.broker.state import BrokerState
from aerobee.net.channel import Channel
from aerobee.net.server import FastHandler, Handler, Server
from aerobee.protocol.command import Command, encode_command, response
from aerobee.protocol.connection import Connection
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.telemetry.config import MetricsConfig
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import run_virtual
from aerobee.testing.storekit import ROOT, small_config

# After so many turns of the loop everything has happened that needs no time.
_TURNS = 20


class _Wire(asyncio.Transport):
    """The far end of a connection, which keeps what is written to it."""

    def __init__(self, port: int) -> None:
        super().__init__({"peername": ("10.0.0.9", port)})
        self.written = bytearray()
        self.is_closed = False
        self.channel: Channel | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: nothing is ever held back."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Do nothing: what a test sends arrives, as bytes that were on their way."""

    def resume_reading(self) -> None:
        """Do nothing."""

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
        """Send a command. Answers come when the loop has turned."""
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
        """Return the requests that the broker sent."""
        await settle()
        self._receive()
        pushed = [one for one in self._unread if not one.is_response]
        self._unread = [one for one in self._unread if one.is_response]
        return pushed

    async def answers(self) -> list[Command]:
        """Return the answers that were not taken yet."""
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
    """A broker without a network: the same `Broker` as in a process, its server, and clients in memory."""

    def __init__(  # noqa: PLR0913 - what a root is handed
        self,
        disk: Disk,
        clock: Clock,
        config: BrokerConfig | None = None,
        store_config: StoreConfig | None = None,
        *,
        root: str = ROOT,
        seed: int = 1,
        authority: Authority | None = None,
        following: bool = False,
        confirm_limit: int | None = None,
        metrics: MetricsConfig | None = None,
        access: AccessConfig | None = None,
    ) -> None:
        """With `authority` the broker is a replica: it leads at once, or follows until `lead`. With `access` requests
        are checked as those settings say."""
        config = config or BrokerConfig(broker_name="broker-a")
        config = replace(config, broker_ip1=config.broker_ip1 or "127.0.0.1")
        store_config = replace(store_config or small_config(segment=1 << 20), store_path_root_dir=root)
        self.clock, self._ports = clock, 40_000
        # The hour of the local day, for retention.
        self.hour = 12
        seams = Seams(
            disk=disk,
            clock=clock,
            entropy=SeededEntropy(seed),
            unique_id=lambda: "7F0000010000000000000000" + "0" * 8,
            channel=lambda channel_id: self.server.channels.get(channel_id),
            local_hour=lambda now_ms: self.hour,
            disk_space=lambda path: (1 << 40, 1 << 39),
            authority=authority,
            metrics=metrics,
        )
        self.broker = broker = Broker(config, store_config, seams, port=10911)
        self.spared = broker.open(following=following, confirm_limit=confirm_limit)
        self._handlers: dict[int, Handler] = {}
        self._fast: dict[int, FastHandler] = {}
        # Users and rights; None where everybody may do everything.
        self.access: AccessRoot | None = None
        if access is not None:
            self.access = AccessRoot(access, disk, clock, f"{root}/config", config.cluster_name, BROKER_ROWS)
            self.access.open()
            self.access.access.on_changed.append(lambda: broker.pulls.wake(broker.state.polls.drain()))
            self.access.access.on_changed.append(broker.pop.waits.drain)
            broker.transactions.may_see = self.access.guard(broker.world).may_publish
            self._handlers = self.access.table()
        self._serve()
        self.server = Server("kit", self._handlers, clock=clock, fast=self._fast, observer=broker.effects)

    @property
    def state(self) -> BrokerState:
        return self.broker.state

    @property
    def store(self) -> MessageStore:
        return self.state.store

    def lead(self) -> None:
        """Let a follower take over, as the root does."""
        self.broker.lead()
        self._serve()

    def _serve(self) -> None:
        served = self.broker.served()
        handlers, fast = served.handlers, served.fast
        if self.access is not None:
            handlers, fast = self.access.guarded(self.broker.world, handlers, fast)
        self._handlers.update(handlers)
        self._fast.update(fast)

    def connect(self) -> KitClient:
        self._ports += 1
        return KitClient(self, self._ports)

    def tick(self) -> None:
        """Tick as a broker's root does, but let a failure of any part out."""
        if self.access is not None:
            self.access.tick(self.clock.monotonic())
        now_s, now_ms = self.clock.monotonic(), self.clock.now_ms()
        self.state.flow.loop.beat(now_s)
        for part in self.broker.supervisor.due(now_s):
            part.work(now_s, now_ms)

    async def pass_time(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass, ticking at every step and at the end."""
        while seconds > 0:
            step = min(step_s, seconds)
            await asyncio.sleep(step)
            self.tick()
            await settle()
            seconds -= step

    def follow(self, master: BrokerKit) -> None:
        """Store what the master has confirmed and this broker lacks, as replication does it, and confirm that."""
        store, end = self.store, master.store.confirmed_offset
        while (at := store.log_end if not store.log.segments.is_empty else master.store.log_start) < end:
            store.append_raw(at, master.store.read_log(at, end - at))
        store.set_confirm_limit(end)
        self.tick()

    def close(self) -> None:
        self.broker.release()
        self.broker.close()


async def settle() -> None:
    """Let the loop turn until nothing is left that needs no time."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def run_broker(  # noqa: PLR0913 - what a root is handed
    main: Callable[[BrokerKit], Awaitable[None]],
    *,
    disk: Disk | None = None,
    config: BrokerConfig | None = None,
    store_config: StoreConfig | None = None,
    wall_ms: int = 1_700_000_000_000,
    close: bool = True,
    authority: Authority | None = None,
    following: bool = False,
    confirm_limit: int | None = None,
    metrics: MetricsConfig | None = None,
    access: AccessConfig | None = None,
) -> BrokerKit:
    """Run a test against a new broker. Without `close` it ends as by kill -9: what was written stays."""

    async def run(loop: asyncio.AbstractEventLoop) -> BrokerKit:
        clock = VirtualClock(loop.time, wall_ms=wall_ms)
        kit = BrokerKit(
            disk or RecordingDisk(seed=1), clock, config, store_config,
            authority=authority, following=following, confirm_limit=confirm_limit, metrics=metrics,
            access=access,
        )  # fmt: skip
        await main(kit)
        if close:
            kit.close()
        return kit

    return run_virtual(run)
