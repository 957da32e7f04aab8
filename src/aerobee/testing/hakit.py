"""A master and its slaves for tests: stores on simulated disks, HA connections over the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aerobee.replication.classic.frames import ClassicWords, MasterWords
from aerobee.replication.classic.master import ClassicMaster, MasterSettings
from aerobee.replication.classic.peek import LogBounds
from aerobee.replication.classic.slave import ClassicSlave, MasterPlace, SlaveSettings
from aerobee.runtime.seams import Listener
from aerobee.runtime.tasks import Tasks
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.loop import run_virtual
from aerobee.testing.net import SimNet
from aerobee.testing.storekit import make_store, small_config

HA_PORT = 10912
_TICK_S = 0.05


class StorePeek:
    """A master's store, asked as a slave asks its master."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def bounds(self) -> LogBounds:
        return LogBounds(self._store.log_start, self._store.log_end)

    async def record_at(self, offset: int) -> bytes | None:
        return self._store.run(self._store.message_at(offset))


@dataclass
class HaMember:
    """One host with its store."""

    host: str
    disk: RecordingDisk
    store: MessageStore


class HaKit:
    """Hosts that replicate. Every store is ticked while time passes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: StoreConfig) -> None:
        self.net = SimNet(loop)
        self.clock = VirtualClock(loop.time)
        self._config = config
        self._stores: list[MessageStore] = []
        self._masters: list[ClassicMaster] = []
        self.tasks = Tasks()

    def member(self, host: str, disk: RecordingDisk | None = None, config: StoreConfig | None = None) -> HaMember:
        """Open a store on a host."""
        disk = disk or RecordingDisk(seed=1)
        store = make_store(disk, config or self._config, clock=self.clock)
        store.open()
        self._stores.append(store)
        return HaMember(host, disk, store)

    async def master(self, member: HaMember, settings: MasterSettings | None = None) -> tuple[ClassicMaster, Listener]:
        """Let a member serve slaves."""
        master = ClassicMaster(member.store, self.clock, settings or MasterSettings())
        listener = await self.net.host(member.host).listen("0.0.0.0", HA_PORT, master.connection)
        self._masters.append(master)
        return master, listener

    def slave(
        self, member: HaMember, master: HaMember, words: Callable[[], MasterWords] = ClassicWords
    ) -> ClassicSlave:
        """Let a member follow another."""
        place = MasterPlace(f"{master.host}:{HA_PORT}", StorePeek(master.store))
        slave = ClassicSlave(
            member.store, self.net.host(member.host), self.clock, SlaveSettings(), lambda: place, words=words
        )
        self.tasks.start(slave.run(), name=f"slave {member.host}")
        return slave

    async def pass_time(self, seconds: float) -> None:
        """Let time pass and tick everything."""
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until_s:
            await asyncio.sleep(_TICK_S)
            for store in self._stores:
                if store.is_open:
                    store.tick()
            for master in self._masters:
                master.tick(self.clock.monotonic())


def run_ha(main: Callable[[HaKit], Awaitable[None]], config: StoreConfig | None = None) -> None:
    """Run a test on virtual time."""

    async def run(loop: asyncio.AbstractEventLoop) -> None:
        kit = HaKit(loop, config or small_config(sync=False))
        try:
            await main(kit)
        finally:
            await kit.tasks.close()

    run_virtual(run)


def log_bytes(store: MessageStore) -> bytes:
    """Return the whole log from its first offset to its end."""
    parts: list[bytes] = []
    offset = store.log_start
    while offset < store.log_end:
        data = store.read_log(offset, store.log_end - offset)
        parts.append(data)
        offset += len(data)
    return b"".join(parts)
