"""The replicas of a run: a real Replica and a real MessageStore on a simulated machine, with a writer that appends
while the replica leads."""

from __future__ import annotations

import asyncio
from typing import Final
from zlib import crc32

from aerobee.coordination.group import GroupCoordinator
from aerobee.errors import DiskFullError, StoreError
from aerobee.hot.log.record import Draft
from aerobee.replication.identity import prepare
from aerobee.replication.port import HaPort
from aerobee.replication.replica import Replica, ReplicaSettings
from aerobee.replication.values import ReplicaMember
from aerobee.runtime.tasks import Tasks
from aerobee.store.dispatch import Sink
from aerobee.store.messagestore import MessageStore
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.simulation.replicas.coordination import CoordinationServer
from aerobee.testing.simulation.replicas.judge import ReplicaJudge
from aerobee.testing.simulation.world import ROOT, Machine, World
from aerobee.testing.storekit import draft, small_config

CLUSTER: Final = "c"
GROUP: Final = "g"
MAIN_PORT: Final = 10911
HA_PORT: Final = 10912
SEGMENT_BYTES: Final = 8 * 1024
_TICK_S: Final = 0.02


class LogReaderSink(Sink):
    """A reader of everything that the store shows. It reads again from the start after each start."""

    name = "seen"

    def __init__(self, judge: ReplicaJudge, node: int) -> None:
        self._judge = judge
        self._node = node
        self._position = -1

    def recover(self, log_start: int, log_end: int) -> None:
        self._position = -1

    def position(self) -> int:
        return self._position

    def dispatch(self, drafts: list[Draft]) -> None:
        for one in drafts:
            self._judge.saw(self._node, one.physical_offset, (one.size, one.queue_id, one.queue_offset, one.uniq_key))


class Node:
    """One machine with a replica."""

    def __init__(
        self,
        world: World,
        number: int,
        judge: ReplicaJudge,
        server: CoordinationServer,
        *,
        sync_flush: bool,
        min_in_sync: int,
        learner: bool,
    ) -> None:
        self.number = number
        self.machine: Machine = world.machine(f"10.0.1.{number}")
        self.sync_flush = sync_flush
        self.learner = learner
        # Set while a fault has its hands on this node, so that no other does.
        self.is_busy = False
        self.stopped = ""
        self.replica: Replica | None = None
        self.store: MessageStore | None = None
        # What a stop or a kill left: how far the log was stored, under which incarnation.
        self.last: tuple[str, int] = ("", 0)
        self._replica_id = 0
        # When its store was seen to have failed, 0 if it has not.
        self.fenced_s = 0.0
        # Set by the duty while the replica leads.
        self.leading_epoch = 0
        self._world = world
        self._judge = judge
        self._server = server
        self._min_in_sync = min_in_sync
        self._boots = 1
        self._stop = asyncio.Event()
        self._draw: SeededEntropy = world.entropy.fork()
        self._sent = 0
        # Records of one size lie where other records lay before a cut.
        self._is_even = world.seed % 4 < 2
        self.is_quiet = False

    # ---- life

    @property
    def is_up(self) -> bool:
        return not self.machine.down and self.replica is not None

    @property
    def replica_id(self) -> int:
        if self.replica is not None and self.replica.machine.id:
            self._replica_id = self.replica.machine.id
        return self._replica_id

    def start(self) -> None:
        self._stop = asyncio.Event()
        self.stopped = ""
        self.machine.launch(self._serve(self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await self.machine.stopped()
        self._gone()
        self.machine.down = "stopped"

    def kill(self) -> None:
        self._gone()
        self.machine.kill()

    def cut_power(self, mode: CrashMode) -> None:
        self._gone()
        self._boots += 1
        self.machine.cut_power(mode)

    def wipe(self) -> None:
        """Put an empty disk into a machine that is down."""
        self.last = ("", 0)
        self.machine.disk = RecordingDisk(seed=self._draw.below(1 << 30), existing=(ROOT,))
        self.machine._equip()

    @property
    def words(self) -> str:
        return f"replica {self.replica_id} on node {self.number}"

    @property
    def is_paused(self) -> bool:
        return self.machine.is_stopped

    @property
    def has(self) -> tuple[str, int]:
        """Return the incarnation, and how far the log is stored under it."""
        if self.replica is None or self.store is None:
            return self.last
        return self.replica.machine.incarnation, self.store.flusher.confirmed

    def _gone(self) -> None:
        self.last = self.has
        self.replica = self.store = None
        self.fenced_s = 0.0
        self.leading_epoch = 0

    # ---- what runs

    async def _serve(self, stop: asyncio.Event) -> None:
        machine = self.machine
        config = small_config(sync=self.sync_flush, segment=SEGMENT_BYTES)
        boot_id = f"boot-{self.number}-{self._boots}"
        entropy = machine.entropy.fork()
        hot_bytes = self._draw.choose([1 << 30, 2048])
        store = MessageStore(
            ROOT, config, machine.disk, machine.clock, (LogReaderSink(self._judge, self.number),), hot_bytes=hot_bytes
        )
        try:
            prepared = prepare(machine.disk, ROOT, config, entropy, cluster=CLUSTER, group=GROUP, boot_id=boot_id)
            store.open(prepared.confirm_limit)
        except DiskFullError:
            self.stopped = "there is no space to start"
            return
        settings = ReplicaSettings(
            cluster=CLUSTER,
            group=GROUP,
            address=f"{machine.address}:{MAIN_PORT}",
            ha_address=f"{machine.address}:{HA_PORT}",
            boot_id=boot_id,
            min_in_sync=self._min_in_sync,
            learner=self.learner,
            frame_bytes=1024,
            secret=b"secret",
        )
        port = HaPort(machine.net, machine.address, HA_PORT)
        coordinator = GroupCoordinator(self._server.client(machine.address), CLUSTER, GROUP, machine.clock)
        replica = Replica(
            settings, prepared, store, coordinator, machine.disk, machine.clock, entropy, machine.net,
            duty=NodeDuty(self, self._judge, store), port=port,
        )  # fmt: skip
        async with Tasks() as tasks:
            try:
                await replica.start(tasks)
            except DiskFullError:
                self.stopped = "there is no space to start"
                store.abandon()
                return
            self.replica, self.store = replica, store
            await port.start()
            main = await machine.net.listen(machine.address, MAIN_PORT, asyncio.Protocol)
            tasks.start(self._tick(store), name="store ticks")
            tasks.start(self._write(store, replica), name="writer")
            await stop.wait()
            await replica.stop()
            await port.close()
            main.close()
        self._gone()
        while store.is_busy:  # noqa: ASYNC110 - a disk tells nobody
            await asyncio.sleep(_TICK_S)
        store.close()

    async def _tick(self, store: MessageStore) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            store.tick()

    async def _write(self, store: MessageStore, replica: Replica) -> None:
        while True:
            await asyncio.sleep(self._draw.between(0.01, 0.12))
            if self.leading_epoch and not self.is_quiet:
                for _ in range(self._draw.below(3) + 1):
                    self._append(store, replica)

    def _append(self, store: MessageStore, replica: Replica) -> None:
        self._sent += 1
        name = f"{self.machine.process}-{self._sent:05d}"
        body = name.encode() + b"x" * (0 if self._is_even else self._draw.below(60))
        epoch = self.leading_epoch
        queue_id = self._draw.below(2)
        message = draft(body, queue_id=queue_id, uniq_key=name)
        self._judge.sent += 1
        try:
            end = store.append([message])
        except StoreError as error:
            self._judge.refused(type(error).__name__, str(error))
            return
        offset, size = message.physical_offset, message.size
        record = store.read_log(offset, size)
        process = self.machine.process

        def safe(error: StoreError | None) -> None:
            if error is None and replica.has_authority():
                self._judge.acked(self, process, epoch, offset, end, crc32(record))

        store.on_safe(end, safe)


class NodeDuty:
    """The broker of a node: it only remembers what it is told."""

    def __init__(self, node: Node, judge: ReplicaJudge, store: MessageStore) -> None:
        self._node = node
        self._judge = judge
        # It may be elected before its start has ended.
        self._store = store

    def lead(self, epoch: int) -> None:
        self._judge.leads(self._node, self._store, epoch)
        self._node.leading_epoch = epoch

    def follow(self, epoch: int, master: ReplicaMember | None) -> bool:
        self._node.leading_epoch = 0
        return True

    def stop(self, reason: str) -> None:
        self._node.stopped = reason
