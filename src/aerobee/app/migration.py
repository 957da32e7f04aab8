"""The steps of a migration from Apache's broker: compare, take over, give back. Never do two brokers write.

Each step says what it does through `say`, and refuses with a MigrationRefusedError before it changes anything that it
cannot undo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.migration import (
    MasterFacts,
    MigrationRefusedError,
    answers,
    log_end_of,
    replication_of,
    take_messages,
)
from aerobee.app.following import Following
from aerobee.app.takeover import TakeOver, TakeOverNote, give_state_back
from aerobee.broker.admin import forget_kept
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.log.units import decode_units
from aerobee.model.dialect import loads_object
from aerobee.model.numbers import int_or
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.offset import GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader
from aerobee.replication.classic.incoming import IncomingRecords
from aerobee.runtime.process import ask_to_end, is_running
from aerobee.runtime.seams import Clock, Disk, Entropy
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.store.segment import LogReader, PieceKind, scan

_POLL_S: Final = 0.1
# The master's log must not move this long before it counts as still.
_STILL_S: Final = 1.0
# So many requests are on their way to the master at once.
_AT_ONCE: Final = 32
# A broker that was told to take no messages takes some again after this time, whatever happens to this process.
_PAUSE_MAX_MS: Final = 10 * 60 * 1000
_CHUNK: Final = 1 << 20
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a topic."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyVerdict:
    """What a comparison found."""

    queues: int
    messages: int
    records: int
    groups: int
    problems: tuple[str, ...]


class Comparison:
    """Compares a directory that follows with its master."""

    def __init__(self, following: Following, admin: AdminConnection, entropy: Entropy) -> None:
        self._following = following
        self._store = following.store
        self._admin = admin
        self._entropy = entropy
        self._master = following.facts.address
        self._problems: list[str] = []

    async def run(self, sample: int, *, exact: bool) -> CopyVerdict:
        """Compare the ends of every queue, the offsets of every group, and `sample` records byte by byte.

        With `exact` nothing may differ: the master takes no messages any more. Without it the master may be ahead.
        """
        queues = list(self._queues())
        messages = 0
        for first in range(0, len(queues), _AT_ONCE):
            ends = await asyncio.gather(*(self._ends(queue, exact) for queue in queues[first : first + _AT_ONCE]))
            messages += sum(ends)
        records = await self._records([queue for queue in queues if self._held(queue)], sample)
        groups = await self._groups()
        return CopyVerdict(
            queues=len(queues), messages=messages, records=records, groups=groups, problems=tuple(self._problems)
        )

    def _queues(self) -> Iterator[Queue]:
        for name, config in sorted(self._following.catalog.topic_table.topics.items()):
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
                if self._store.queues.find(name.encode(), queue_id) is not None:
                    yield Queue(name, queue_id)

    def _held(self, queue: Queue) -> int:
        name = queue.topic.encode()
        return self._store.max_offset(name, queue.queue_id) - self._store.min_offset(name, queue.queue_id)

    async def _ends(self, queue: Queue, exact: bool) -> int:
        name = queue.topic.encode()
        low, high = self._store.min_offset(name, queue.queue_id), self._store.max_offset(name, queue.queue_id)
        theirs = await self._offset(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        )
        if high > theirs or (exact and high != theirs):
            self._problems.append(f"queue {queue.queue_id} of {queue.topic} ends at {high}, at the master at {theirs}")
        theirs = await self._offset(
            RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        )
        if exact and low > theirs:
            self._problems.append(f"queue {queue.queue_id} of {queue.topic} begins at {low}, at the master at {theirs}")
        return high - low

    async def _offset(self, code: int, header: GetMaxOffsetRequestHeader | GetMinOffsetRequestHeader) -> int:
        answer = await self._admin.ask(self._master, code, header)
        return int_or(answer.ext.get("offset", ""), -1)

    async def _records(self, queues: list[Queue], sample: int) -> int:
        """Compare records that are drawn by chance from queues that are drawn by chance."""
        peek = self._following.peek
        compared = 0
        for _ in range(sample if queues else 0):
            queue = queues[self._entropy.below(len(queues))]
            found = self._store.queues.find(queue.topic.encode(), queue.queue_id)
            assert found is not None
            low = self._store.min_offset(queue.topic.encode(), queue.queue_id)
            units = decode_units(found.units(low + self._entropy.below(self._held(queue)), 1))
            if not units:
                continue
            place, size, _ = units[0]
            theirs = await peek.record_at(place)
            if theirs != self._store.read_log(place, size):
                self._problems.append(f"the record at {place} of {queue.topic} is another one than the master's")
            compared += 1
        return compared

    async def _groups(self) -> int:
        # Consumers go on while this is asked, so the offsets themselves move.
        answer = await self._admin.ask(self._master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        theirs = loads_object(answer.body).get("offsetTable", {})
        ours = self._following.tables.offsets.table
        self._problems += [f"the offsets of {key} are missing" for key in theirs if key not in ours]
        return len(theirs)


class Switch:
    """Takes over from the master that a directory follows."""

    def __init__(
        self, following: Following, admin: AdminConnection, disk: Disk, clock: Clock, entropy: Entropy, say: Say
    ) -> None:
        self._following = following
        self._admin = admin
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._told = say
        self._facts: MasterFacts = following.facts
        # When the master took its last message; 0 while it takes some.
        self.paused_s = 0.0

    def _say(self, text: str) -> None:
        """Tell a step, with the seconds for which no message was taken so far."""
        since = f" ({self._clock.monotonic() - self.paused_s:.1f} s)" if self.paused_s else ""
        self._told(text + since)

    async def run(self, *, pid: int | None, their_store: str | None, patience_s: float, sample: int) -> None:
        """Stop the master and leave a directory that is the same. On an error before the stop it takes messages again.

        The directory is closed afterwards, and a broker can open it.
        """
        self._say("waiting until the copy is nearly level")
        if not await self._following.level(patience_s, within_bytes=_CHUNK):
            raise MigrationRefusedError(f"the copy is not level after {patience_s:.0f} s: nothing was changed")
        self._say(f"{self._facts.name} takes no more messages from now on")
        await take_messages(self._admin, self._facts.address, until_ms=self._clock.now_ms() + _PAUSE_MAX_MS)
        self.paused_s = self._clock.monotonic()
        try:
            await self._compared(their_store, sample, patience_s)
            await self._stopped(pid, patience_s)
        except BaseException:
            self._say(f"{self._facts.name} takes messages again")
            await take_messages(self._admin, self._facts.address)
            raise
        if their_store is not None:
            self._copy_rest(their_store)
            self._following.take_saved(their_store)
        root = self._following.store.root
        await self._following.close()
        TakeOverNote(self._disk, root).save(TakeOver(master=self._facts.address, at_ms=self._clock.now_ms()))
        self._say(f"{self._facts.name} has stopped, and the copy ends where its log ends")

    async def _still(self, patience_s: float) -> bool:
        """Wait until the master's log does not move and the copy is level."""
        until_s = self._clock.monotonic() + patience_s
        end, since_s = -1, self._clock.monotonic()
        while self._clock.monotonic() < until_s:
            now = await log_end_of(self._admin, self._facts.address)
            if now != end or now != self._following.store.log_end:
                end, since_s = now, self._clock.monotonic()
            elif self._clock.monotonic() - since_s >= _STILL_S:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _compared(self, their_store: str | None, sample: int, patience_s: float) -> None:
        """Copy the tables and compare everything while the master's log stands still.

        The services of the master may write at any time: delayed and timed messages, questions about transactions. If
        its directory can be read, what they write is read there after its stop, and the copy may be behind until then.
        """
        until_s = self._clock.monotonic() + patience_s
        while True:
            is_still = await self._still(_STILL_S * 3)
            before = await log_end_of(self._admin, self._facts.address)
            if not await self._following.copy_tables():
                raise MigrationRefusedError("topics, groups and offsets could not be copied")
            exact = is_still and their_store is None
            verdict = await Comparison(self._following, self._admin, self._entropy).run(sample, exact=exact)
            moved = not is_still or await log_end_of(self._admin, self._facts.address) != before
            if not verdict.problems and (not moved or their_store is not None):
                break
            if verdict.problems and not moved:
                raise MigrationRefusedError("the copy is not the same: " + "; ".join(verdict.problems[:5]))
            if self._clock.monotonic() > until_s:
                raise MigrationRefusedError(
                    f"the log of {self._facts.name} still grows after {patience_s:.0f} s: delayed or timed messages "
                    "are delivered all the time. Give --their-store, so that the rest can be read after its stop"
                )
        self._say(
            f"{verdict.queues} queues, {verdict.groups} offsets of groups and {verdict.records} records are equal"
        )

    async def _stopped(self, pid: int | None, patience_s: float) -> None:
        if pid is None:
            self._say(f"stop the broker at {self._facts.address} now (SIGTERM, never SIGKILL)")
        else:
            self._say(f"stopping process {pid}")
            try:
                ask_to_end(pid)
            except OSError as error:
                raise MigrationRefusedError(f"process {pid} cannot be stopped: {error}") from error
        until_s = self._clock.monotonic() + patience_s
        while self._clock.monotonic() < until_s:
            gone = pid is None or not is_running(pid)
            if gone and not await answers(self._admin, self._facts.address):
                return
            await asyncio.sleep(_POLL_S)
        raise MigrationRefusedError(
            f"the broker at {self._facts.address} still runs after {patience_s:.0f} s: two brokers would write"
        )

    def _copy_rest(self, their_store: str) -> None:
        """Read what the master wrote after the copy was level, from its own directory."""
        reader = LogReader(self._disk, f"{their_store}/commitlog")
        store = self._following.store
        incoming = IncomingRecords(store.log_end, self._facts.segment_size)
        end = log_end(reader, store.log_end)
        while store.log_end < end:
            at = store.log_end
            data = reader.read(incoming.arrived, min(_CHUNK, end - incoming.arrived))
            if not data:
                raise StoreError(f"{their_store}/commitlog cannot be read at {incoming.arrived}")
            records = incoming.feed(incoming.arrived, data)
            if records:
                store.append_raw(at, records)
        self._say(f"the log of {their_store} ends at {end}, and so does the copy")


def log_end(reader: LogReader, start: int) -> int:
    """Return where the records of a log end, looking from `start` on, where one begins or the log ends."""
    end = start
    for piece in scan(reader, start, reader.segments[-1].end if reader.segments else start):
        if piece.kind in (PieceKind.END, PieceKind.DAMAGE):
            break
        end = piece.end
    return end


class Rollback:
    """Gives the name of a broker back to Apache's, which followed it as a slave."""

    def __init__(self, admin: AdminConnection, disk: Disk, clock: Clock, say: Say) -> None:
        self._admin = admin
        self._disk = disk
        self._clock = clock
        self._say = say

    async def run(
        self, address: str, store_config: StoreConfig, their_store: str, *, pid: int, their_pid: int, patience_s: float
    ) -> None:
        """Stop both brokers at the same end of the log, and give the state to Apache's directory."""
        self._say(f"the broker at {address} takes no more messages from now on")
        await take_messages(self._admin, address, until_ms=self._clock.now_ms() + _PAUSE_MAX_MS)
        try:
            if not await self._level(address, patience_s):
                raise MigrationRefusedError(f"no slave is level after {patience_s:.0f} s: nothing was changed")
            await self._end(pid, patience_s)
        except AerobeeError:
            if is_running(pid):
                self._say(f"the broker at {address} takes messages again")
                await take_messages(self._admin, address)
            raise
        # What the broker wrote while it stopped is with the slave a moment later.
        await asyncio.sleep(_STILL_S)
        await self._end(their_pid, patience_s)
        self._give_back(store_config, their_store)

    async def _level(self, address: str, patience_s: float) -> bool:
        until_s = self._clock.monotonic() + patience_s
        while self._clock.monotonic() < until_s:
            status = await replication_of(self._admin, address)
            ends = [one.slave_ack_offset for one in status.ha_connection_info]
            if ends and max(ends) >= status.master_commit_log_max_offset:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _end(self, pid: int, patience_s: float) -> None:
        self._say(f"stopping process {pid}")
        try:
            ask_to_end(pid)
        except OSError as error:
            raise MigrationRefusedError(f"process {pid} cannot be stopped: {error}") from error
        until_s = self._clock.monotonic() + patience_s
        while is_running(pid):
            if self._clock.monotonic() > until_s:
                raise MigrationRefusedError(f"process {pid} still runs after {patience_s:.0f} s")
            await asyncio.sleep(_POLL_S)

    def _give_back(self, store_config: StoreConfig, their_store: str) -> None:
        root = store_config.store_path_root_dir
        store = MessageStore(root, store_config, self._disk, self._clock)
        store.open()
        try:
            reader = LogReader(self._disk, f"{their_store}/commitlog")
            size = store_config.mapped_file_size_commit_log
            last = max(store.log_start, store.log_end - store.log_end % size)
            theirs = log_end(reader, last)
            if theirs != store.log_end or reader.read(last, theirs - last) != store.read_log(last, theirs - last):
                raise MigrationRefusedError(
                    f"our log ends at {store.log_end} and Apache's at {theirs}, or they differ: start this broker "
                    "again, it is the one that has everything"
                )
        finally:
            store.close()
        # That no more messages were taken was for this move only.
        forget_kept(self._disk, root, "brokerPermission")
        written = give_state_back(self._disk, root, their_store)
        TakeOverNote(self._disk, root).remove()
        self._say(f"both logs end at {theirs}; {', '.join(written)} were given to {their_store}")
