"""The message store: one facade over log, queues and sinks. It is synchronous and knows nothing of requests.

This module owns the order of events: a record is written, synced, confirmed and dispatched, then its sender is told.
The driver calls `tick` often (every 20 ms is fine) and brings the disk's answers to the owner's thread. RocketMQ:
DefaultMessageStore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from aerobee.errors import (
    AerobeeError,
    DiskFullError,
    InvalidArgumentError,
    StoreClosedError,
    StoreError,
    StoreFencedError,
    WithheldError,
)
from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.hot.log.record import NEED_MORE, Draft
from aerobee.runtime.seams import Clock, Disk
from aerobee.runtime.shortage import is_passing
from aerobee.store import deleting, opening
from aerobee.store.checkpoint import Checkpoint, CheckpointFile
from aerobee.store.commitlog import CommitLog, Segments
from aerobee.store.config import StoreConfig
from aerobee.store.counters import StoreCounters
from aerobee.store.deletions import Deletions
from aerobee.store.dispatch import Dispatcher, Sink
from aerobee.store.durablemark import DurableMark
from aerobee.store.flush import FlushMachine, Safe, Waiter, Waiters, policy_of
from aerobee.store.index import MessageIndex
from aerobee.store.lookup import Boundary, earliest_time, message_at, offset_by_time, store_time_of
from aerobee.store.queues import ConsumeQueue, ConsumeQueues
from aerobee.store.reads import HOT_BYTES, PULL_BYTES_MAX, GetMessageStatus, GetResult, Reads, TagFilter
from aerobee.store.recovery import RecoveryReport
from aerobee.store.rounds import SinkRounds
from aerobee.store.segment import Damage, PieceKind, scan
from aerobee.store.setaside import SetAsides
from aerobee.store.sieve import PropertyFilter
from aerobee.store.statefile import StateFile
from aerobee.store.steps import Rest, Steps, run_cold, run_now
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

T = TypeVar("T")
_log = get_log("store")


class MessageStore:
    """The store as its owner sees it. Every method belongs to one thread."""

    def __init__(
        self,
        root: str,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        sinks: Sequence[Sink] = (),
        *,
        hot_bytes: int = HOT_BYTES,
    ) -> None:
        self.root = root.rstrip("/")
        self.config = config
        self.disk = disk
        self._clock = clock
        segments = Segments(
            disk,
            config.store_path_commit_log or f"{self.root}/commitlog",
            config.mapped_file_size_commit_log,
            zero_ahead=config.sync_flush,
        )
        self.log = CommitLog(segments, clock, config)
        # The records that background readers of the log cannot use.
        self.asides = SetAsides(disk, self.root, clock)
        self.deletions = Deletions(disk, self.root)
        units = config.mapped_file_size_consume_queue // UNIT_SIZE
        self.queues = ConsumeQueues(disk, self.root, units, self.deletions, self.asides)
        self.sinks: list[Sink] = [self.queues, *sinks]
        self.index = next((sink for sink in sinks if isinstance(sink, MessageIndex)), None)
        self.dispatcher = Dispatcher(segments, self.sinks, self.deletions, config.delay_levels_ms, self.report_damage)
        self.flusher = FlushMachine(policy_of(config))
        self.waiters = Waiters()
        self.reads = Reads(self.log, self.queues, disk, config, self.report_damage, hot_bytes)
        self.mark = DurableMark(disk, f"{self.root}/config")
        self.checkpoint = CheckpointFile(disk, f"{self.root}/checkpoint")
        self.pending_truncation = StateFile(disk, f"{self.root}/truncate", keep_backup=False)
        self.counters = StoreCounters()
        self.warn = RateLimitedLog(_log, clock)
        self.damages: dict[int, Damage] = {}
        self._limit: int | None = None
        self._numbered_to = 0
        self._opened: opening.Opened | None = None
        self._fenced: StoreFencedError | None = None
        self.generation = 0
        self.rounds = SinkRounds(self)
        # Why messages are refused: for lack of space, or by the group of replicas. `append` looks at one flag for both.
        self.full: str | None = None
        self.withheld: WithheldError | None = None
        self._refuses = False
        # Told how far this machine has stored the log, whenever that may have changed; returns the confirm limit.
        self.confirmer: Callable[[int], int] | None = None

    # ---- life ----

    def open(self, confirm_limit: int | None = None) -> RecoveryReport:
        """Take the directory, recover, and dispatch what is confirmed. On an error everything taken is given back."""
        self._limit = confirm_limit
        self.asides.load()
        opened = opening.open_store(self)
        self._opened = opened
        self._numbered_to = self.dispatcher.position
        self.rounds.flushed_to = self.dispatcher.position
        return opened.report

    def reconfigure(self, config: StoreConfig) -> None:
        """Take other values of the settings that may change while the store is open."""
        self.config = config
        self.flusher.policy = policy_of(config)
        self.log.reconfigure(config)
        self.reads.reconfigure(config)
        if self.index is not None:
            self.index.reconfigure(config)

    def start_flusher(self, end: int) -> None:
        """Begin flushing at the place where the log was found to end. All of it is synced."""
        self.flusher = FlushMachine(policy_of(self.config), end)

    def close(self) -> None:
        """Stop. `abort` goes only if all is flushed and dispatched and no sync is under way or has failed.

        A replica stops with records that its group has not confirmed. They are dispatched after its next start.
        """
        if self._opened is None:
            return
        opened, self._opened = self._opened, None
        busy = self.is_busy
        clean = False
        try:
            if self._fenced is None:
                clean = self._settle() and not busy
                self.asides.close()
        finally:
            self.waiters.fail(StoreClosedError("the store was closed"))
            opening.close_store(self, opened, clean)

    def abandon(self) -> None:
        """Let go as a killed process does: flush nothing, leave `abort`. For tests of what a start then finds."""
        if self._opened is None:
            return
        opened, self._opened = self._opened, None
        opening.close_store(self, opened, clean=False)

    def _settle(self) -> bool:
        """Write everything to disk, blocking. Return whether a start may find it as it is."""
        try:
            self.log.repair()
            self.sync_now()
            self.advance()
            opening.settle(self)
        except (AerobeeError, OSError):
            return False  # the next start recovers, as after a crash
        may_be_seen = self.log.end if self._limit is None else min(self._limit, self.log.end)
        return self.dispatcher.position >= may_be_seen

    @property
    def is_busy(self) -> bool:
        """Tell whether a sync is under way: closing now would leave `abort`, and the next start would recover."""
        return self.flusher.syncing is not None or self.rounds.is_busy

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def require_writable(self) -> None:
        """Raise StoreError where the store is closed, or fenced."""
        if self._opened is None:
            raise StoreClosedError("the store is not open")
        if self._fenced is not None:
            raise StoreFencedError(self._fenced.message, hint="restart the broker: it recovers from the log")

    def fence(self, error: Exception) -> None:
        """Refuse all acknowledgements until a new start, after the first failed sync. It is never tried again."""
        if self._fenced is None:
            reason = error.message if isinstance(error, AerobeeError) else str(error)
            self._fenced = StoreFencedError(f"a sync failed, so nothing is acknowledged any more: {reason}")
            _log.error(
                "the store is fenced: a sync or a write of its log or state failed, and every send is refused from now"
                " on. Check the disk (kernel log, cabling, quota), then restart the broker: it recovers from the log",
                store=self.root,
                reason=reason,
            )
            self.waiters.fail(self._fenced)

    @property
    def fenced(self) -> StoreFencedError | None:
        return self._fenced

    # ---- where things stand ----

    @property
    def log_start(self) -> int:
        return self.log.start

    @property
    def log_end(self) -> int:
        return self.log.end

    @property
    def flushed_offset(self) -> int:
        return self.flusher.flushed

    @property
    def confirmed_offset(self) -> int:
        """Return how far the log is stored as promised: written (ASYNC_FLUSH) or synced (SYNC_FLUSH), and within the
        confirm limit.
        """
        local = self.flusher.confirmed
        return local if self._limit is None else min(local, self._limit)

    @property
    def settled_offset(self) -> int:
        """Return how far the log is flushed and confirmed. Neither a power cut nor another master takes that back."""
        return min(self.flusher.flushed, self.confirmed_offset)

    @property
    def dispatched_offset(self) -> int:
        return self.dispatcher.position

    # ---- writing ----

    def append(self, drafts: list[Draft]) -> int:
        """Store drafts. Return the log's new end, to be given to `on_safe`. On an error nothing has happened."""
        self.require_writable()
        if self._refuses:
            raise self._refusal()
        self._catch_up()
        start = self.log.end
        self.queues.assign(drafts)
        try:
            end = self.log.append(drafts)
        except BaseException as error:
            self.queues.unassign(drafts)
            if isinstance(error, StoreFencedError):
                self.fence(error)
            elif isinstance(error, DiskFullError):
                self.counters.refused_full += 1
            raise
        self._numbered_to = end
        self.counters.appended += len(drafts)
        self.counters.appended_bytes += end - start
        self.dispatcher.offer(start, end, drafts)
        self._wrote(end)
        return end

    def _refusal(self) -> StoreError:
        if self.withheld is not None:
            return WithheldError(self.withheld.message, code=self.withheld.code, hint=self.withheld.hint)
        self.counters.refused_full += 1
        return DiskFullError(self.full or "")

    def refuse_full(self, why: str | None) -> None:
        """Refuse messages for lack of space, or accept them again. The watcher of the disk does this."""
        self.full = why
        self._refuses = why is not None or self.withheld is not None

    def withhold(self, why: WithheldError | None) -> None:
        """Refuse messages because the group of replicas does not allow them, or accept them again."""
        self.withheld = why
        self._refuses = why is not None or self.full is not None

    def append_raw(self, physical_offset: int, data: bytes | memoryview, sealed: bool = False) -> int:
        """Store bytes of a master's log at our end, for a replica. Return the new end.

        `sealed` says that every record in them carries the whole-record checksum.
        """
        self.require_writable()
        try:
            self.mark.note_foreign(physical_offset, self.flusher.flushed, sealed)
            self.log.append_raw(physical_offset, data)
            self.dispatcher.offer_raw(physical_offset, bytes(data))
        except StoreFencedError as error:
            self.fence(error)
            raise
        finally:
            if self._fenced is None:
                if self.log.segments.is_empty or self.dispatcher.position < self.log.start:
                    self.dispatcher.restart(self.log.start)
                    self._numbered_to = self.log.start
                self._wrote(self.log.end)
        return self.log.end

    def _wrote(self, end: int) -> None:
        target = self.flusher.wrote(end)
        if target is not None:
            self._sync_log(target)
        self.advance()

    def _catch_up(self) -> None:
        """Take the numbers that undispatched records of another writer hold, before we give any away."""
        end = self.log.end
        if self._numbered_to >= end:
            return
        if self.queues.last is not None:
            self.log.store_timestamp = max(self.log.store_timestamp, self.queues.last[2])
        start = max(self._numbered_to, self.dispatcher.position)
        for piece in scan(self.log.segments, start, end):
            if piece.drafts:
                self.queues.count_in(self.deletions.without(piece.drafts))
                self.log.store_timestamp = max(self.log.store_timestamp, piece.drafts[-1].store_timestamp)
            elif piece.kind is PieceKind.END and piece.reason == NEED_MORE:
                raise StoreError(f"the log ends inside a record at {piece.start}: truncate it first")
        self._numbered_to = end

    def count_again_from(self, place: int) -> None:
        """Take the numbers of records behind a place anew, before the next are given away: queues were deleted."""
        self._numbered_to = min(self._numbered_to, place)

    def truncate(self, physical_offset: int) -> None:
        """Make the log end here.

        This is durable and crash-safe: once noted, a start after a power cut does it again.
        """
        self.require_writable()
        if not self.log.start <= physical_offset <= self.log.end:
            raise InvalidArgumentError(
                f"cannot cut at {physical_offset}: the log holds {self.log.start} to {self.log.end}"
            )
        if physical_offset == self.log.end:
            return
        noted = False
        try:
            # A start that does the cut again cannot believe a table that speaks of the tail. But it must know from
            # the table how far the queues have expired.
            self.sync_now()
            self.queues.flusher.save()
            noted = True
            self.pending_truncation.save(str(physical_offset).encode())
            self.generation += 1
            self.waiters.fail(StoreError(f"the log was cut at {physical_offset}"), beyond=physical_offset)
            self.log.cut(physical_offset)
            self.flusher.truncated(physical_offset)
            self.mark.truncated(physical_offset)
            self.sync_now()
            self.dispatcher.restart(min(self.dispatcher.position, physical_offset))
            self._numbered_to = self.dispatcher.position
            for sink in self.sinks:
                sink.truncate(physical_offset)
            self.damages = {at: d for at, d in self.damages.items() if d.end <= physical_offset}
            opening.save_checkpoint(self)
            self.deletions.cut(physical_offset)
            self.dispatcher.topics_deleted()
            opening.forget_truncation(self)
        except OSError as error:
            if noted or not is_passing(error):
                self.fence(error)
            raise StoreError(f"the log cannot be cut: {error}") from error
        except AerobeeError as error:
            if noted or not is_passing(error):
                self.fence(error)
            raise

    # ---- confirming ----

    def on_safe(self, end_offset: int, callback: Safe) -> Waiter | None:
        """Call back once the log is stored as promised up to `end_offset`.

        The callback gets None, or the error that means it never will be. It is called at once where that is known
        already. The caller decides how long to wait (`cancel`).
        """
        if self._fenced is not None:
            callback(self._fenced)
        elif self._opened is None:
            callback(StoreClosedError("the store is not open"))
        elif end_offset <= self.confirmed_offset:
            callback(None)
        else:
            return self.waiters.add(end_offset, callback)
        return None

    def set_confirm_limit(self, offset: int | None) -> None:
        """Set what replication allows to be seen; None: this machine decides alone. This never undoes what was seen."""
        self._limit = offset
        if self._opened is not None and self._fenced is None:
            self.advance()

    def advance(self) -> None:
        """Dispatch first, then tell the waiters: whoever hears SEND_OK can read the message."""
        confirmed = self.flusher.confirmed
        if self._limit is not None:
            if self.confirmer is not None:
                self._limit = self.confirmer(confirmed)
            confirmed = min(confirmed, self._limit)
        if confirmed > self.dispatcher.position:
            try:
                self.dispatcher.advance(confirmed)
            except StoreFencedError as error:
                self.fence(error)
                return
            except (OSError, DiskFullError) as failure:
                # The log is safe; a sink that cannot take it now is given it again by a later tick.
                self.counters.dispatch_failures += 1
                self.warn.warning(
                    "dispatch",
                    "messages cannot be dispatched to the queues now; the store tries again soon",
                    reason=failure,
                )
        self.waiters.advance(confirmed)

    # ---- flushing ----

    def tick(self) -> None:
        """Sync the log and flush the sinks where that is due: time has passed."""
        if self._opened is None or self._fenced is not None:
            return
        now_ms = int(self._clock.monotonic() * 1000)
        target = self.flusher.tick(now_ms)
        if target is not None:
            self._sync_log(target)
        if self.dispatcher.position < self.confirmed_offset:
            self.advance()
        self.rounds.tick(now_ms)
        self.asides.tick(now_ms)

    def _sync_log(self, target: int) -> None:
        files = self.log.segments.files_between(self.flusher.flushed, target)
        self.counters.syncs += 1
        self.disk.sync(files, self._log_synced)

    def _log_synced(self, error: OSError | None) -> None:
        if self._opened is None or self._fenced is not None:
            return
        if error is not None:
            self.fence(error)
            return
        again = self.flusher.synced()
        with contextlib.suppress(OSError, DiskFullError):
            self.mark.write(self.flusher.flushed)  # a mark that is lost is only less exact
        if again is not None:
            self._sync_log(again)
        if self._fenced is None:
            self.advance()

    def sync_now(self) -> None:
        """Sync the log, blocking. It comes first: no table may speak of records that a power cut could still take."""
        self.log.segments.sync(self.flusher.flushed, self.log.end)
        self.flusher.flushed_to(self.log.end)

    def flush_sinks(self) -> None:
        """Write and sync what the sinks hold in memory, off this thread; then write the checkpoint."""
        if self._opened is not None and self._fenced is None:
            self.rounds.begin()

    def checkpoint_value(self) -> Checkpoint:
        """Return the checkpoint that may be claimed now."""
        last = self.queues.flusher.durable_last
        stored = self.log.store_timestamp
        return Checkpoint(
            physic_msg_timestamp=stored,
            logics_msg_timestamp=max(last[2], 0) if last is not None else 0,
            index_msg_timestamp=self.index.end_timestamp if self.index is not None else 0,
            master_flushed_offset=self.checkpoint.value.master_flushed_offset,
            confirm_phy_offset=min(self.flusher.flushed, self.confirmed_offset),
            # Apache dispatches the records that begin above this offset.
            logics_physical_offset=last[0] if last is not None else 0,
        )

    # ---- reading ----

    def get_messages(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        count_max: int = 32,
        bytes_max: int = PULL_BYTES_MAX,
        tags: TagFilter = None,
        accept: PropertyFilter | None = None,
        bulk: bool = False,
    ) -> GetResult:
        """Return messages of a queue.

        A result of status COLD needs `fetch` (or `fetch_now`) before it can be used. `accept` is asked about each
        record's property block, in place of `tags`. With `bulk` only these bounds count, not those that the
        configuration sets for consumers.
        """
        if self._opened is None:
            raise StoreClosedError("the store is not open")
        try:
            result = self.reads.get(topic, queue_id, offset, count_max, bytes_max, tags, accept, bulk)
        except OSError as error:
            raise StoreError(f"queue {queue_id} of {topic!r} cannot be read: {error}") from error
        if result.status is not GetMessageStatus.COLD:
            self._count_read(result)
        return result

    def _count_read(self, result: GetResult) -> None:
        if result.status is GetMessageStatus.FOUND:
            self.counters.get_found += 1
            self.counters.transferred += result.count
            self.counters.transferred_bytes += result.size
        else:
            self.counters.get_miss += 1

    def fetch(self, result: GetResult, done: Callable[[GetResult | StoreError], None]) -> None:
        """Complete a COLD result through the reader thread, then call `done` on this thread."""
        self.counters.cold_reads += 1

        def fetched(outcome: GetResult | StoreError) -> None:
            if isinstance(outcome, GetResult):
                self._count_read(outcome)
            done(outcome)

        self.reads.fetch(result, fetched)

    def fetch_now(self, result: GetResult) -> GetResult:
        """Complete a COLD result on this thread: for tools and tests."""
        self.counters.cold_reads += 1
        fetched = self.reads.fetch_now(result)
        self._count_read(fetched)
        return fetched

    def read_log(self, physical_offset: int, size: int) -> bytes:
        """Return raw bytes for a replica: of one segment, at most up to the log's end."""
        size = min(size, self.log.end - physical_offset)
        if physical_offset < self.log.start or size <= 0:
            return b""
        last = self.log.last(physical_offset, size)
        if last is not None:
            return last
        try:
            return self.log.segments.read(physical_offset, size)
        except OSError as error:
            raise StoreError(f"the log cannot be read at {physical_offset}: {error}") from error

    def run(
        self, steps: Steps[T], done: Callable[[T | StoreError], None] | None = None, rest: Rest | None = None
    ) -> T | None:
        """Run a lookup: now without `done`, else through the reader thread. `rest` is as `run_cold` takes it."""
        if done is None:
            return run_now(steps, self.log.segments)
        run_cold(steps, self.log.segments, self.disk, done, rest)
        return None

    def message_at(self, physical_offset: int) -> Steps[bytes | None]:
        """Return steps to the record there, if it is whole, may be seen and was not deleted with its topic."""
        return message_at(physical_offset, self.dispatcher.position, self.deletions)

    def offset_by_time(
        self, topic: bytes, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> Steps[int]:
        return offset_by_time(self.queues.find(topic, queue_id), timestamp, boundary, self.log.start)

    def store_time(self, topic: bytes, queue_id: int, offset: int) -> Steps[int]:
        return store_time_of(self.queues.find(topic, queue_id), offset, self.log.start)

    def earliest_time(self, topic: bytes, queue_id: int) -> Steps[int]:
        return earliest_time(self.queues.find(topic, queue_id), self.log.start)

    def min_offset(self, topic: bytes, queue_id: int) -> int:
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_for(self.log.start)

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        """Return the offset the next dispatched message gets."""
        queue: ConsumeQueue | None = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    # ---- deleting ----

    def delete_oldest_segment(self) -> bool:
        """Delete the first segment, once everything in it is dispatched and every queue's numbering is saved.

        Return False where it must stay.
        """
        self.require_writable()
        return deleting.delete_oldest_segment(self)

    def delete_topics(self, topics: Collection[bytes]) -> None:
        """Delete topics with everything the log holds of them.

        The records stay in the log until they expire, but after the return nothing is built from them again. After an
        error the topics exist, with or without their messages. The durable note of the deletion decides: it names a
        place in the log. A power cut can bring back queues, and tables that name them. What they hold of the log lies
        below that place, so a start knows that it was deleted.
        """
        self.require_writable()
        if topics:
            deleting.delete_topics(self, topics)

    def report_damage(self, damage: Damage) -> None:
        """Keep a damaged stretch for the operator, each one once."""
        self.damages.setdefault(damage.start, damage)
