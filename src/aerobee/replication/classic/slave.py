"""The slave's side of RocketMQ's HA protocol: a driver that keeps a log the same as its master's.

It works behind a master of ours and behind Apache's. Apache's master gives an empty slave its last segment only, so an
empty slave first asks for the master's first offset and begins there. Bytes that are not the continuation of this log
are never stored: the slave stops and says so, because only an operator knows which of two logs is the right one.
RocketMQ: DefaultHAClient.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from aerobee.errors import AerobeeError, LogDisagreementError, StoreClosedError, StoreFencedError, TransportError
from aerobee.hot.log.record import VERIFY_RECORD, check_record
from aerobee.model.numbers import parse_int
from aerobee.replication.classic.frames import ClassicWords, MasterWords
from aerobee.replication.classic.incoming import IncomingRecords
from aerobee.replication.classic.peek import MasterPeek
from aerobee.runtime.seams import Clock, Net
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("replication.classic")
_CONNECT_S: Final = 5.0
# How often the timers of a connection are looked at.
_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveSettings:
    """What a slave needs of the settings."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    retry_s: float = 1.0


def slave_settings(config: StoreConfig) -> SlaveSettings:
    """Return the part of the settings that a slave needs."""
    return SlaveSettings(
        heartbeat_s=config.ha_send_heartbeat_interval_ms / 1000,
        housekeeping_s=config.ha_housekeeping_interval_ms / 1000,
    )


@dataclass(frozen=True, slots=True)
class MasterPlace:
    """Where a master is: its HA address, and the one that is asked about its log."""

    ha_address: str
    peek: MasterPeek


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowStatus:
    """How a slave follows its master."""

    master: str
    is_connected: bool
    log_end: int
    bytes_per_s: int
    last_read_ms: int
    last_write_ms: int
    # Why the slave does not follow any more, empty while it does.
    problem: str


class ClassicSlave:
    """Follows one master at a time. `find` tells where it is now, None while nobody knows."""

    def __init__(
        self,
        store: MessageStore,
        net: Net,
        clock: Clock,
        settings: SlaveSettings,
        find: Callable[[], MasterPlace | None],
        *,
        words: Callable[[], MasterWords] = ClassicWords,
    ) -> None:
        """`words` makes the words of one connection: those of a slave, or of a learner."""
        self.store = store
        self._net = net
        self.clock = clock
        self.settings = settings
        self._find = find
        self._words = words
        self._warn = RateLimitedLog(_log, clock)
        self._line: _Line | None = None
        self._master = ""
        self.last_read_ms = self.last_write_ms = 0
        self.transferred = self._second_bytes = 0
        # Called after bytes of the master were stored: whoever follows this log in turn is told.
        self.on_stored: Callable[[], None] = lambda: None
        # Called after a connection ended or could not be made: the master may have moved.
        self.on_lost: Callable[[], None] = lambda: None
        # Why the slave has stopped for good.
        self.problem = ""
        self._second_s = clock.monotonic()

    async def run(self) -> None:
        """Follow the master until cancelled, or until the logs disagree."""
        while not self.problem:
            place = self._find()
            if place is not None:
                self._master = place.ha_address
                try:
                    await self._follow(place)
                except (LogDisagreementError, StoreFencedError, StoreClosedError) as error:
                    self.problem = str(error)
                    _log.error(
                        "the slave follows its master no longer. Compare the logs (aerobee store inspect DIR). If the "
                        "master's is right, move this store away and start with an empty directory",
                        master=place.ha_address,
                        reason=self.problem,
                    )
                    return
                except (AerobeeError, OSError, TimeoutError) as error:
                    self._warn.warning(
                        place.ha_address,
                        "the slave cannot follow its master now",
                        master=place.ha_address,
                        reason=error,
                    )
                    self.on_lost()
            await asyncio.sleep(self.settings.retry_s)

    def tick(self, now_s: float) -> None:
        """Count the bytes of the last second."""
        if now_s - self._second_s >= 1:
            self._second_bytes = int(self.transferred / (now_s - self._second_s))
            self._second_s, self.transferred = now_s, 0

    def status(self) -> FollowStatus:
        """Return how far the slave is."""
        return FollowStatus(
            master=self._master,
            is_connected=self._line is not None,
            log_end=self.store.log_end,
            bytes_per_s=self._second_bytes,
            last_read_ms=self.last_read_ms,
            last_write_ms=self.last_write_ms,
            problem=self.problem,
        )

    # -- one connection

    async def _follow(self, place: MasterPlace) -> None:
        start = await self._begin(place.peek)
        host, _, port = place.ha_address.rpartition(":")
        incoming = IncomingRecords(start, self.store.config.mapped_file_size_commit_log)
        async with asyncio.timeout(_CONNECT_S):
            transport, line = await self._net.connect(
                host, parse_int(port), lambda: _Line(self, incoming, self._words())
            )
        self._line = line
        try:
            _log.info("the slave follows its master", master=place.ha_address, begins=start)
            await line.served()
        finally:
            self._line = None
            transport.abort()

    async def _begin(self, peek: MasterPeek) -> int:
        """Return where to go on. Raise LogDisagreementError where the master's log cannot be the same as this one."""
        store = self.store
        bounds = await peek.bounds()
        if store.log.segments.is_empty and store.log_end == 0:
            if bounds.start or not bounds.end:
                return bounds.start
            first = await peek.record_at(0)
            if first is None:
                raise TransportError("the master does not show the first record of its log")
            if check_record(first, 0, 0, VERIFY_RECORD) != len(first):
                raise LogDisagreementError("the master's first record is not one that begins a log")
            return store.append_raw(0, first)
        end = store.log_end
        if not bounds.start <= end <= bounds.end:
            raise LogDisagreementError(
                f"this log ends at {end}, and the master's holds {bounds.start} to {bounds.end}: this one "
                + ("has records that the master does not have" if end > bounds.end else "is too far behind")
            )
        await self._require_same_record(peek)
        return end

    async def _require_same_record(self, peek: MasterPeek) -> None:
        """Compare the last record of this log with the master's."""
        store = self.store
        last = store.queues.last
        if last is None or not store.log_start <= last[0] < store.log_end:
            return
        ours = store.read_log(last[0], last[1])
        theirs = await peek.record_at(last[0])
        if theirs is not None and theirs != ours:
            raise LogDisagreementError(f"the record at offset {last[0]} is another one than the master's")


class _Line(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, slave: ClassicSlave, incoming: IncomingRecords, words: MasterWords) -> None:
        self._slave = slave
        self._incoming = incoming
        self._words = words
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._read_s = self._written_s = slave.clock.monotonic()
        self._reported = -1
        self._is_waiting = False

    async def served(self) -> None:
        """Report in time until the connection ends. Raise what ended it."""
        clock, settings = self._slave.clock, self._slave.settings
        while self._error is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._ended.wait()
                    break
            now_s = clock.monotonic()
            if now_s - self._read_s > settings.housekeeping_s:
                raise TransportError(f"the master has said nothing for {settings.housekeeping_s:.0f} s")
            if now_s - self._written_s > settings.heartbeat_s and self._words.is_greeted:
                self._report(max(self._reported, 0))
        raise self._error or TransportError("the connection has ended")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        greeting = self._words.greeting()
        if greeting:
            self._transport.write(greeting)
        if self._words.is_greeted:
            self._report(self._incoming.position)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(exc if isinstance(exc, OSError) else TransportError("the master closed the connection"))

    def data_received(self, data: bytes) -> None:
        slave, store = self._slave, self._slave.store
        self._read_s = slave.clock.monotonic()
        slave.last_read_ms = slave.clock.now_ms()
        slave.transferred += len(data)
        if self._error is not None:
            return
        was_greeted = self._words.is_greeted
        try:
            for transfer in self._words.feed(data):
                at = self._incoming.position
                records = self._incoming.feed(transfer.offset, transfer.data)
                if records:
                    store.append_raw(at, records)
            if not was_greeted and self._words.is_greeted:
                self._report(self._incoming.position)
        except (AerobeeError, OSError) as error:
            self._end(error)
            return
        slave.on_stored()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Report what is stored as this broker's settings promise: written, or synced."""
        store = self._slave.store
        end = min(store.log_end, self._incoming.position)
        safe = min(store.confirmed_offset, end)
        if safe > self._reported:
            self._report(safe)
        if safe < end and not self._is_waiting:
            self._is_waiting = True
            store.on_safe(end, self._stored)

    def _stored(self, error: AerobeeError | None) -> None:
        self._is_waiting = False
        if error is not None:
            self._end(error)
        elif self._error is None:
            self._acknowledge()

    def _report(self, offset: int) -> None:
        if self._transport is not None:
            self._transport.write(self._words.report(offset))
            self._reported = max(self._reported, offset)
            self._written_s = self._slave.clock.monotonic()
            self._slave.last_write_ms = self._slave.clock.now_ms()

    def _end(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._ended.set()
