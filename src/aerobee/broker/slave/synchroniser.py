"""Brings a master's tables into the tables of its slave: at the start, and every 10 s. RocketMQ: SlaveSynchronize."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from aerobee.broker.offsets import OffsetTables
from aerobee.broker.slave.copying import MasterTables, read_master
from aerobee.broker.topics import Catalog
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.net.client import RemotingClient
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_INTERVAL_S: Final = 10.0
# How soon it is tried again after an error, and how often a slave looks whether its master is known.
_RETRY_S: Final = 1.0
_log = get_log("broker.slave")


class SlaveSync:
    """Copies the tables of the broker that `master` names. It decides nothing about the log."""

    def __init__(
        self,
        catalog: Catalog,
        tables: OffsetTables,
        client: RemotingClient,
        clock: Clock,
        master: Callable[[], str],
        *,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._catalog = catalog
        self._tables = tables
        self._client = client
        self._clock = clock
        self._master = master
        self._interval_s = interval_s
        self._warn = RateLimitedLog(_log, clock)
        self._woken = asyncio.Event()
        # How many times everything was copied.
        self.rounds = 0

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            done = await self.once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s if done else _RETRY_S):
                    await self._woken.wait()
            self._woken.clear()

    def wake(self) -> None:
        """Copy at once: the master is another one, or is there again."""
        self._woken.set()

    async def once(self) -> bool:
        """Copy everything now. Return whether that was possible."""
        address = self._master()
        if not address:
            return False
        try:
            self.apply(await read_master(self._client, address))
        except AerobeeError as error:
            self._warn.warning(
                address, "topics, groups and offsets cannot be copied from the master now", master=address, reason=error
            )
            return False
        self.rounds += 1
        return True

    def apply(self, master: MasterTables) -> None:
        """Make the tables of this broker those of its master."""
        self._apply_topics(master)
        self._apply_groups(master)
        offsets, delays, modes = self._tables.offsets, self._tables.delays, self._tables.modes
        # Offsets of groups that the master does not have stay, as at Apache's slave: it may have saved none yet.
        kept = dict(offsets.table)
        offsets.decode(master.offsets)
        for key, queues in kept.items():
            offsets.table.setdefault(key, queues)
        delays.decode(master.delays)
        delays.submit(self._saved)
        modes.decode(master.modes)
        modes.submit(self._saved)

    def _apply_topics(self, master: MasterTables) -> None:
        table, now_ms = self._catalog.topic_table, self._clock.now_ms()
        if table.version == master.topics_version:
            return
        own = {config.topic_name for config in self._catalog.topic_rules.system_topics()}
        for name in [name for name in table.topics if name not in master.topics and name not in own]:
            self._catalog.delete_topic(name)
        changed = []
        for name, config in master.topics.items():
            with self._skipping(name):
                if table.put(config, now_ms):
                    changed.append(config)
        table.version = master.topics_version
        self._catalog.touch()
        self._catalog.on_topics_changed(changed)

    def _apply_groups(self, master: MasterTables) -> None:
        table, now_ms = self._catalog.group_table, self._clock.now_ms()
        if table.version == master.groups_version:
            return
        for name in [name for name in table.groups if name not in master.groups]:
            table.delete(name, now_ms)
        for name, config in master.groups.items():
            with self._skipping(name):
                table.put(config, now_ms)
        for name in {*table.forbidden, *master.forbidden}:
            with self._skipping(name):
                table.put_forbidden(name, master.forbidden.get(name, {}), now_ms)
        table.version = master.groups_version
        self._catalog.touch()

    @contextlib.contextmanager
    def _skipping(self, name: str) -> Iterator[None]:
        """Pass over an entry that cannot be used here. It must not keep the others away."""
        try:
            yield
        except InvalidArgumentError as error:
            self._warn.warning(name[:100], "an entry of the master cannot be used", name=name[:100], reason=error)

    def _saved(self, error: AerobeeError | OSError | None) -> None:
        if error is not None:
            self._warn.warning("save", "what was copied from the master cannot be saved now", reason=error)
