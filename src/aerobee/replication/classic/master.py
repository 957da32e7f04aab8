"""The master's side of RocketMQ's HA protocol: a driver that sends the log to every slave that connects.

Each slave has its own connection and its own place in the log, so that a slow one delays nobody. Old bytes are read by
the reader thread. What waits to be sent is bounded for each connection, and so is the number of connections.
RocketMQ: DefaultHAService, DefaultHAConnection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from aerobee.errors import StoreError
from aerobee.replication.classic.acks import SlaveAcks
from aerobee.replication.classic.frames import TRANSFER_BYTES_MAX, Reports, encode_head
from aerobee.replication.classic.outgoing import whole_records
from aerobee.replication.classic.slavelink import PROBE_SIZE, SlaveLink, is_record_start
from aerobee.runtime.seams import Clock
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# Connections beyond this many are refused.
_SLAVES_MAX: Final = 32
# So many unsent bytes stop the reading of more for a connection.
_UNSENT_MAX: Final = 1024 * 1024
# So many transfers are made for a connection in one turn of the loop.
_TURN: Final = 16
_log = get_log("replication.classic")


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """What a master needs of the settings."""

    batch_bytes: int = 32 * 1024
    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    gap_max: int = 256 * 1024 * 1024
    # Slaves that must hold a record before its sender is told.
    needed: int = 0


def master_settings(config: StoreConfig, needed: int) -> MasterSettings:
    """Return the part of the settings that a master needs."""
    return MasterSettings(
        batch_bytes=config.ha_transfer_batch_size,
        heartbeat_s=config.ha_send_heartbeat_interval_ms / 1000,
        housekeeping_s=config.ha_housekeeping_interval_ms / 1000,
        gap_max=config.ha_max_gap_not_in_sync,
        needed=needed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStatus:
    """One slave as its master sees it."""

    address: str
    acked: int
    lag_bytes: int
    in_sync: bool
    bytes_per_s: int
    sent: int


class ClassicMaster:
    """Every slave of one master. The owner hands out `connection`s, calls `wrote` after appends, and ticks."""

    def __init__(self, store: MessageStore, clock: Clock, settings: MasterSettings) -> None:
        self.store = store
        store.log.keeps_last = True
        self.clock = clock
        self.settings = settings
        self.acks = SlaveAcks(settings.needed)
        self._links: dict[int, _SlaveConnection] = {}
        self._count = 0
        self.warn = RateLimitedLog(_log, clock)

    def connection(self) -> asyncio.Protocol:
        """Return the protocol of a connection that was just accepted."""
        self._count += 1
        return cast(asyncio.Protocol, _SlaveConnection(self, self._count))

    def wrote(self) -> None:
        """Send to every slave what was appended."""
        for link in list(self._links.values()):
            link.pump()

    def tick(self, now_s: float) -> None:
        """Send heartbeats that are due, cut silent slaves, and send what nobody told of."""
        for link in list(self._links.values()):
            link.tick(now_s)

    def status(self) -> tuple[SlaveStatus, ...]:
        """Return the slaves that were accepted."""
        return tuple(link.status() for link in self._links.values() if link.machine.sent is not None)

    def close(self) -> None:
        """Close every connection."""
        for link in list(self._links.values()):
            link.close("the master stops", told=_log.info)

    # -- what connections call

    def opened(self, link: _SlaveConnection) -> bool:
        """Note a connection. Return False where there are too many."""
        if len(self._links) >= _SLAVES_MAX:
            self.warn.warning("many", "a slave is refused: there are too many connections", slave=link.address)
            return False
        self._links[link.number] = link
        return True

    def lost(self, link: _SlaveConnection) -> None:
        """Forget a connection."""
        if self._links.pop(link.number, None) is not None:
            self.acks.lost(link.number)


class _SlaveConnection:
    """One connection of a slave. It has the methods of asyncio.Protocol, which a compiled class cannot inherit."""

    def __init__(self, master: ClassicMaster, number: int) -> None:
        self._master = master
        self.number = number
        self.address = ""
        self.machine = SlaveLink(master.clock.monotonic())
        self._reports = Reports()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_reading = False
        # Bytes that are still to be sent of a record that does not fit into a transfer.
        self._owed = 0
        self._transferred = self._second_bytes = 0
        self._second_s = self.machine.last_read_s

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{peer[0]}:{peer[1]}"
        self._transport.set_write_buffer_limits(high=_UNSENT_MAX)
        if not self._master.opened(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None and self.machine.sent is not None:
            _log.info("a slave has left", slave=self.address, acked=self.machine.acked)
        self._transport = None
        self._master.lost(self)

    def eof_received(self) -> None:
        """Let the connection be closed: the slave will report nothing more."""

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.pump()

    def data_received(self, data: bytes) -> None:
        machine, store = self.machine, self._master.store
        machine.last_read_s = self._master.clock.monotonic()
        for offset in self._reports.feed(data):
            if self._transport is None:
                return
            if machine.first is None:
                problem = machine.begin(offset, store.log_start, store.log_end)
                if not problem:
                    self._probe(offset)
            elif machine.sent is None and offset == machine.first:
                continue
            else:
                problem = machine.reported(offset)
                if not problem:
                    self._master.acks.acked(self.number, machine.acked)
            if problem:
                self.close(problem)
                return

    # -- the beginning

    def _probe(self, offset: int) -> None:
        """Look whether a record begins where the slave's log ends."""
        store = self._master.store
        if offset == 0 or offset in (store.log_start, store.log_end):
            self._begin(max(offset, store.log_start))
            return

        def found(data: bytes | None) -> None:
            segment_size = store.config.mapped_file_size_commit_log
            if data is None or not is_record_start(data, offset, segment_size):
                self.close(f"its log ends at {offset}, and no record begins there in this one")
            else:
                self._begin(offset)

        self._read(offset, PROBE_SIZE, found)

    def _begin(self, offset: int) -> None:
        self.machine.begin_at(offset)
        self._master.acks.acked(self.number, self.machine.acked)
        _log.info("a slave follows", slave=self.address, reported=self.machine.first, begins=offset)
        self.pump()

    # -- sending

    def pump(self) -> None:
        """Send what the log holds behind the slave's place, as far as the connection takes it."""
        machine, store = self.machine, self._master.store
        for _ in range(_TURN):
            if machine.sent is None or self._is_paused or self._is_reading or self._transport is None:
                return
            rest = store.log_end - machine.sent
            if rest <= 0 or not store.is_open:
                return
            if machine.sent < store.log_start:
                self.close(f"it needs the log from {machine.sent} on, which was deleted up to {store.log_start}")
                return
            self._next(min(rest, self._owed or self._master.settings.batch_bytes, TRANSFER_BYTES_MAX))
        asyncio.get_running_loop().call_soon(self.pump)

    def _next(self, size: int) -> None:
        assert self.machine.sent is not None
        self._read(self.machine.sent, size, self._got)

    def _got(self, data: bytes | None) -> None:
        if data is None or self._transport is None:
            self.close("the log cannot be read at its place")
            return
        if self._owed:
            self._send(data)
            self._owed -= len(data)
            return
        whole = whole_records(data)
        if whole > len(data):
            assert self.machine.sent is not None
            if whole > self._master.store.log_end - self.machine.sent:
                self.close("the log holds no whole record at its place")
                return
            if len(data) < TRANSFER_BYTES_MAX:
                self._next(min(whole, TRANSFER_BYTES_MAX))
                return
            self._owed, whole = whole - len(data), len(data)
        if not whole:
            self.close("the log holds no record at its place")
            return
        self._send(data[:whole])

    def _send(self, data: bytes) -> None:
        assert self.machine.sent is not None and self._transport is not None
        self._transport.writelines((encode_head(self.machine.sent, len(data)), data))
        self.machine.wrote(len(data), self._master.clock.monotonic())
        self._transferred += len(data)

    def _read(self, offset: int, size: int, done: Callable[[bytes | None], None]) -> None:
        """Read the log: now if it was written lately, else by the reader thread. None: it cannot be read."""
        store = self._master.store
        if offset >= store.log_end - store.reads.hot_bytes:
            try:
                done(store.read_log(offset, size) or None)
            except StoreError as error:
                _log.error("the log cannot be read for a slave", slave=self.address, offset=offset, reason=str(error))
                done(None)
            return
        place = store.log.segments.file_at(offset)
        if place is None:
            done(None)
            return
        file, at = place
        self._is_reading = True

        def read(outcome: bytes | OSError) -> None:
            self._is_reading = False
            if self._transport is None:
                return
            if isinstance(outcome, OSError):
                _log.error("the log cannot be read for a slave", slave=self.address, offset=offset, reason=str(outcome))
                done(None)
            else:
                done(outcome or None)
            self.pump()

        size = min(size, store.log.segments.segment_size - at)
        store.disk.read(file, at, size, read)

    # -- time

    def tick(self, now_s: float) -> None:
        """Close a silent connection; otherwise send what is there, or a heartbeat."""
        machine, settings = self.machine, self._master.settings
        if now_s - self._second_s >= 1:
            self._second_bytes = int(self._transferred / (now_s - self._second_s))
            self._second_s, self._transferred = now_s, 0
        if now_s - machine.last_read_s > settings.housekeeping_s:
            self.close(f"it has said nothing for {settings.housekeeping_s:.0f} s")
            return
        self.pump()
        if machine.sent is not None and now_s - machine.last_write_s > settings.heartbeat_s and not self._is_paused:
            self._send(b"")

    def status(self) -> SlaveStatus:
        """Return where the slave stands."""
        lag = max(0, self._master.store.log_end - self.machine.acked)
        return SlaveStatus(
            address=self.address,
            acked=self.machine.acked,
            lag_bytes=lag,
            in_sync=lag < self._master.settings.gap_max,
            bytes_per_s=self._second_bytes,
            sent=self.machine.sent or 0,
        )

    def close(self, reason: str, told: Callable[..., None] | None = None) -> None:
        """Close the connection and say why. It counts for nothing from now on."""
        transport, self._transport = self._transport, None
        self._master.lost(self)
        if transport is not None:
            if told is None:
                self._master.warn.warning(
                    f"closed {reason}", "the connection of a slave is closed", slave=self.address, reason=reason
                )
            else:
                told("the connection of a slave is closed", slave=self.address, reason=reason)
            transport.abort()
