"""A store directory that follows a master, without a broker: the log by HA, the tables by requests.

The directory is one that Apache's broker could have written. So a broker that opens it afterwards goes on as it does
with any store of Apache's: delays, timed messages and transactions too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from aerobee.admin.migration import MasterFacts
from aerobee.app.takeover import raise_to, saved_offsets, saved_timers
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay import TimerCheckpoint
from aerobee.broker.offsets import OffsetTables
from aerobee.broker.slave import SlaveSync
from aerobee.broker.topics import Catalog, group_rules, topic_rules
from aerobee.errors import BrokerError, LogDisagreementError
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.replication.classic.frames import ClassicWords, LearnerWords, MasterWords
from aerobee.replication.classic.peek import RemoteMaster
from aerobee.replication.classic.slave import ClassicSlave, MasterPlace, slave_settings
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Clock, Disk, Net
from aerobee.runtime.tasks import Tasks
from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import MessageRequestModeTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.telemetry.stdlog import get_log

_TICK_S: Final = 0.02
_TABLES_INTERVAL_S: Final = 2.0
# A learner is never counted, so its number only shows in the master's log.
_LEARNER_ID: Final = 1_000_000
_SETTLE_S: Final = 10.0
_log = get_log("migrate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a directory is behind its master."""

    behind_bytes: int
    log_end: int
    master_end: int
    is_connected: bool
    tables_copied: int
    # Why the directory follows no longer.
    problem: str


class Following:
    """One directory. `open`, then `start`; at the end `close`."""

    def __init__(
        self, facts: MasterFacts, config: StoreConfig, disk: Disk, clock: Clock, net: Net, client: RemotingClient
    ) -> None:
        # The master counts what is acknowledged as stored on a second machine, so it is synced first.
        config = replace(
            config, flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log=facts.segment_size
        )
        root = config.store_path_root_dir
        self.facts = facts
        self.disk = disk
        self._client = client
        self._clock = clock
        sinks = [MessageIndex(disk, root, config)] if config.message_index_enable else []
        self.store = MessageStore(root, config, disk, clock, sinks)
        self.tables = OffsetTables(
            ConsumerOffsetTable(disk, root), DelayOffsetTable(disk, root), MessageRequestModeTable(disk, root)
        )
        broker = BrokerConfig(broker_name=facts.name, cluster_name=facts.cluster)
        self.catalog = Catalog(
            TopicTable(disk, root), GroupTable(disk, root), topic_rules(broker), group_rules(broker), clock
        )
        self.peek = RemoteMaster(client, facts.address)
        place = MasterPlace(facts.ha_address, self.peek)
        self.slave = ClassicSlave(self.store, net, clock, slave_settings(config), lambda: place, words=self._words)
        self._sync = SlaveSync(
            self.catalog, self.tables, client, clock, lambda: facts.address, interval_s=_TABLES_INTERVAL_S
        )
        self._tasks = Tasks()
        self._timers = TimerCheckpoint()

    def _words(self) -> MasterWords:
        return LearnerWords(_LEARNER_ID) if self.facts.controlled else ClassicWords()

    def open(self) -> None:
        """Take the directory. Raise StoreLockedError where another process has it."""
        self.store.open()
        now_ms = self._clock.now_ms()
        self.catalog.topic_table.load(now_ms)
        self.catalog.group_table.load(now_ms)
        self.tables.offsets.load(now_ms)

    def start(self) -> None:
        """Follow from now on."""
        self._tasks.start(self._tick(), name="tick")
        self._tasks.start(self.slave.run(), name="follow")
        self._tasks.start(self._sync.run(), name="tables")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.store.tick()
            self.catalog.tick()

    async def lag(self) -> Lag:
        """Ask the master where its log ends, and compare."""
        bounds = await self.peek.bounds()
        return Lag(
            behind_bytes=max(0, bounds.end - self.store.log_end),
            log_end=self.store.log_end,
            master_end=bounds.end,
            is_connected=self.slave.status().is_connected,
            tables_copied=self._sync.rounds,
            problem=self.slave.problem,
        )

    async def level(self, patience_s: float, within_bytes: int = 0) -> bool:
        """Wait until the directory is level with the master. Return False where that took too long.

        Raise LogDisagreementError where it never will be.
        """
        until_s = self._clock.monotonic() + patience_s
        while self._clock.monotonic() < until_s:
            lag = await self.lag()
            if lag.problem:
                raise LogDisagreementError(lag.problem)
            if lag.is_connected and lag.behind_bytes <= within_bytes:
                return True
            await asyncio.sleep(0.1)
        return False

    async def copy_tables(self) -> bool:
        """Copy topics, groups, offsets and the progress of delays and timed messages now. Return whether it went well.

        The progress of timed messages comes last: what was delivered meanwhile is at most repeated, never lost.
        """
        if not await self._sync.once():
            return False
        command = request(RequestCode.GET_TIMER_CHECK_POINT, opaque=self._client.next_opaque())
        try:
            answer = await self._client.ask(self.facts.address, command)
        except BrokerError:
            return True  # timed messages are off there
        self.save_timers(TimerCheckpoint.decode(answer.body))
        return True

    def take_saved(self, theirs: str) -> None:
        """Take the offsets and the progress that the master saved in its directory, where they are newer.

        The master has stopped: consumers went on and delays were delivered after the tables were copied.
        """
        for key, queues in saved_offsets(self.disk, theirs, "consumerOffset.json").items():
            raise_to(self.tables.offsets.table.setdefault(key, {}), queues)
        for levels in saved_offsets(self.disk, theirs, "delayOffset.json").values():
            raise_to(self.tables.delays.table, levels)
        timers = saved_timers(self.disk, theirs)
        if timers is not None and timers.read_ms >= self._timers.read_ms:
            self.save_timers(timers)

    def save_timers(self, checkpoint: TimerCheckpoint) -> None:
        """Write `config/timercheck` as Apache's broker does."""
        self._timers = checkpoint
        path = join(self.store.root, "config", "timercheck")
        file = self.disk.open(path, create=True)
        try:
            file.write(0, checkpoint.encode())
            file.sync()
        finally:
            file.close()

    async def close(self) -> None:
        """Stop following, and leave the directory as a broker that was stopped leaves it."""
        await self._tasks.close()
        until_s = self._clock.monotonic() + _SETTLE_S
        while self.store.is_busy and self._clock.monotonic() < until_s:
            self.store.tick()
            await asyncio.sleep(_TICK_S)
        self.catalog.save_now()
        self.tables.offsets.save()
        self.tables.delays.save()
        self.tables.modes.save()
        self.store.close()
