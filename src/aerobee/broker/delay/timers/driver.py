"""The driver of timers: it reads the timer topic into the index, and stores what is due under its own topic.

One round is under way at a time. It takes entries in the order of their time, reads their records (cold ones through
the reader thread), and stores their copies in one write. A crash neither loses nor repeats a delivery: progress is
saved every few seconds, once everything it names is on disk, and deliveries after that are found by their marks
(docs/formats/timers.md). A record that would outlive retention is stored again in the timer topic, as Apache does.
RocketMQ: TimerMessageStore.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from aerobee.broker.delay.timers.copies import delivered, rolled
from aerobee.broker.delay.timers.entries import CANCEL, SKIP, TimerEntry, TimerRules, entry_of, skipped
from aerobee.broker.delay.timers.index import RUN_SIZE, Run, TimerIndex
from aerobee.broker.delay.timers.ledger import TimerLedger, TimerProgress, marked_offset, timer_mark
from aerobee.broker.log import STORED, Mark, Puts, read_soon, record_bytes, scan_marks
from aerobee.broker.topics import deleted_topic_of
from aerobee.errors import CorruptLogError, DiskFullError, StoreError
from aerobee.hot.log.layout import UNIT_FILL_SIZE
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import VERIFY_NONE, VERIFY_RECORD, Draft, Record, decode_record
from aerobee.hot.log.units import decode_units
from aerobee.model.names import TIMER_TOPIC
from aerobee.model.sysproperties import REAL_TOPIC, TIMER_DEL_UNIQKEY, UNIQ_KEY
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Clock
from aerobee.runtime.shortage import is_passing
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.store.setaside import UNUSABLE
from aerobee.store.statefile import StateFile
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_TOPIC: Final = TIMER_TOPIC.encode()
_READER: Final = "timers"
_ROUND_MAX: Final = 512
_ROUND_BYTES_MAX: Final = 4 << 20
# Entries read into the index in one tick.
_ENTER_MAX: Final = 2_000
# Entries found to be done that one round passes over, and open ones that those who follow are told of.
_PASSED_MAX: Final = 20_000
_TOLD_MAX: Final = 10_000
_RETRY_MS: Final = 100
_FLUSH_INTERVAL_S: Final = 1.0
_SAVE_INTERVAL_S: Final = 5.0
_RESCAN_BYTES_MAX: Final = 64 << 20
_HOUR_MS: Final = 3_600_000

_log = get_log("broker.timer")


def timer_rules(config: StoreConfig) -> TimerRules:
    """Return the rules. A record is stored again after timerRollWindowSlot, but well before its retention ends."""
    window_ms = config.timer_roll_window_slots * config.timer_precision_ms
    kept_ms = max(1, config.file_reserved_time_hours) * _HOUR_MS * 2 // 3
    return TimerRules(config.timer_precision_ms, min(window_ms, kept_ms))


class TimerService:
    """One broker's timed messages. `open` after the store is open, `close` after it is closed."""

    def __init__(self, store: MessageStore, puts: Puts, clock: Clock, *, run_size: int = RUN_SIZE) -> None:
        self.index = TimerIndex(store.disk, join(store.root, "timers"), run_size=run_size)
        self.ledger = TimerLedger()
        # Entries that wait, with cancellations; until the first round after a start also some that are done.
        self.pending = 0
        self.delivered = 0
        # How often the index was made from the log, because its files were missing or damaged.
        self.rebuilds = 0
        self._store = store
        self._puts = puts
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._state = StateFile(store.disk, join(store.root, "timers", "progress"))
        self._saved = TimerProgress()
        # Entries that were taken out of the index and are tried (again) when their key comes.
        self._held: list[TimerEntry] = []
        self._round_from: int | None = None
        self._one_by_one = False
        self._retry_ms = 0
        self._deliver_from = 0
        self._progress: tuple[TimerProgress, int] | None = None
        self._dropping: list[int] = []
        self._saved_at = (0, 0)
        # Why the index must be made again, once no round is under way.
        self._damage = ""
        self._next_flush_s = 0.0
        self._next_save_s = 0.0
        self._following = False
        # Deliveries that the saved progress does not know: queue offset of the timed message, and place of its copy.
        self._marked: dict[int, int] = {}
        # The progress that those who follow this broker were told last, and what it was of.
        self._told: TimerProgress | None = None
        self._told_at = (0, 0)

    # -- start and stop

    def open(self, *, following: bool = False) -> int:
        """Take up what waits; how many deliveries the marks of the log's tail kept from being repeated.

        With `following` nothing is delivered before `lead`.
        """
        store = self._store
        self._following = following
        try:
            saved = self._state.load(TimerProgress.decode)
        except StoreError as error:
            _log.error("the progress of timed messages cannot be read, the whole log is searched", reason=error.message)
            saved = None
        end = store.max_offset(_TOPIC, 0)
        known = saved is not None and self.index.load(saved.journal_start, list(saved.runs), end)
        if saved is None:
            saved = self._apache_progress() or TimerProgress(rescan_from=store.log_start)
            # From now on there is a file, and no start must search the whole log again.
            low = store.min_offset(_TOPIC, 0)
            place = saved.rescan_from if end > low else store.dispatched_offset
            saved = replace(saved, rescan_from=place, journal_start=low)
            self._state.save(saved.encode())
        return self._resume(saved, known=known)

    def _resume(self, saved: TimerProgress, *, known: bool) -> int:
        store = self._store
        low, end = store.min_offset(_TOPIC, 0), store.max_offset(_TOPIC, 0)
        self._saved = saved
        self.pending = 0
        try:
            if known:
                self.pending = self.index.begin(saved.resume_key - saved.rules.precision_ms, saved.queue_offset)
        except StoreError as error:
            _log.error("the index of timed messages is damaged", reason=error.message)
            known = False
        if not known:
            if end > low:
                self.rebuilds += 1
                _log.warning("the index of timed messages is made from the log", messages=end - low)
            self.index.clear(low)
        self._marked = {}
        if end > low:
            self._note_marks(scan_marks(store, saved.rescan_from, store.dispatched_offset))
        self.ledger = TimerLedger(saved, self._marked)
        # A message may be cancelled by one that is not in the index yet.
        self._deliver_from = end
        self._saved_at = (self.delivered, self.index.next_offset)
        return len(self._marked)

    def _note_marks(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            offset = marked_offset(mark.value)
            if offset is not None:
                self._marked[offset] = mark.physical_offset

    # -- following a master

    def follow(self, marks: Iterable[Mark]) -> None:
        """Take up timed messages and deliveries that the master stored. Call it often while following.

        What is done, by the master's progress or by a mark, leaves the index. What the master's time has passed and
        nothing says is done stands ready for `lead`.
        """
        if not self._store.is_open:
            return
        self._note_marks(marks)
        self._keep_index()
        try:
            self._drop_done()
        except (StoreError, OSError) as error:
            self._damage = str(error)
        if self._damage:
            self._start_again()
        self._save(self._clock.monotonic())

    def _drop_done(self) -> None:
        for _ in range(_ENTER_MAX):
            found = self.index.take(self._saved.frontier_ms)
            if found is None:
                break
            if self._is_done(found):
                self.ledger.finished(found.queue_offset)
                self.pending -= 1
            else:
                heapq.heappush(self._held, found)

    def _is_done(self, entry: TimerEntry) -> bool:
        """Tell, while following, whether the master has dealt with an entry."""
        if entry.queue_offset in self._marked and not entry.flags & CANCEL:
            return True
        return self._saved.is_done(entry)

    def learn_progress(self, progress: TimerProgress) -> None:
        """Take up the progress that the master has told. Its lists of files are the master's own and do not count."""
        before = self._saved
        if progress.rescan_from < before.rescan_from or not self._following:
            return
        self._saved = replace(progress, journal_start=before.journal_start, runs=before.runs)
        self._marked = {offset: at for offset, at in self._marked.items() if at >= progress.rescan_from}
        self.ledger = TimerLedger(self._saved, self._marked)
        count = len(self._held)
        self._held = [entry for entry in self._held if not self._is_done(entry)]
        heapq.heapify(self._held)
        self.pending -= count - len(self._held)

    @property
    def progress(self) -> TimerProgress | None:
        """The progress for those who follow this broker; None where it is not known yet."""
        return self._snapshot() if self.ledger.is_settled and len(self.ledger.open) <= _TOLD_MAX else None

    @property
    def last_progress(self) -> TimerProgress | None:
        """The progress when a timed message last came or went. It changes only when there is something to tell."""
        at = (self.delivered, self.index.next_offset)
        grown = 0 if self._told is None else self._store.log_end - self._told.rescan_from
        is_news = at != self._told_at or grown >= _RESCAN_BYTES_MAX
        found = self.progress if is_news and any(at) else None
        if found is not None:
            self._told, self._told_at = found, at
        return self._told

    def lead(self) -> None:
        """Deliver from now on. Everything that the log holds was shown to `follow`."""
        self._following = False
        self.ledger = TimerLedger(self._saved, self._marked)
        for entry in self._held:
            self.ledger.taken(entry)
        # A message may be cancelled by one that is not in the index yet.
        self._deliver_from = self._store.max_offset(_TOPIC, 0)

    def _apache_progress(self) -> TimerProgress | None:
        """Return where Apache stopped: the first long of `config/timercheck` is the time up to which it delivered, the
        third how much of the timer queue it had taken in. RocketMQ: TimerCheckpoint."""
        path = join(self._store.root, "config", "timercheck")
        if not self._store.disk.exists(path):
            return None
        file = self._store.disk.open(path, write=False)
        try:
            head = file.read(0, 24)
        finally:
            file.close()
        read_ms, taken = int.from_bytes(head[:8], "big"), int.from_bytes(head[16:24], "big")
        rules = timer_rules(self._store.config)
        return TimerProgress(read_ms, taken, {}, self._store.dispatched_offset, rules=rules) if read_ms else None

    def close(self) -> None:
        """Save everything, if the store got all to disk; else the marks speak for it."""
        store = self._store
        if store.settled_offset >= self._place and (self._following or self.ledger.is_settled):
            try:
                while self.index.is_full:
                    self.index.flush(store.flushed_offset, self.ledger.frontier_ms)
                self.index.flush(store.flushed_offset, self.ledger.frontier_ms)
            except (OSError, DiskFullError) as error:
                _log.warning("the journal of timed messages was not written", reason=error)
            self._state.save(self._snapshot().encode())
        self.index.close()

    # -- time

    def tick(self, now_ms: int) -> None:
        """Take in what was stored, deliver what is due, keep the progress. Call every 100 ms or more often."""
        if not self._store.is_open:
            return
        assert not self._following, "a broker that follows delivers nothing"
        self._keep_index()
        if self.index.next_offset >= self._deliver_from and now_ms >= self._retry_ms:
            self._deliver(now_ms)
        if self._damage and self._round_from is None:
            try:
                self._start_again()
            except OSError as error:  # too few descriptors: later
                self._warn.warning("again", "the index of timed messages cannot be made now", reason=error)
                self._damage = str(error)
        self._save(self._clock.monotonic())

    def _keep_index(self) -> None:
        """Take in what was stored since, and write what is due to be written."""
        now_s = self._clock.monotonic()
        try:
            self._take_in()
            if now_s >= self._next_flush_s or self.index.is_full:
                self._next_flush_s = now_s + _FLUSH_INTERVAL_S
                self.index.flush(self._store.flushed_offset, self.ledger.frontier_ms)
        except (StoreError, OSError) as error:
            if is_passing(error):
                self._warn.warning("full", "the index of timed messages cannot be written now", reason=error)
            else:
                self._damage = str(error)

    def _start_again(self) -> None:
        """Make a damaged index again from the log, which has everything."""
        _log.error("the index of timed messages is damaged and made again", reason=self._damage)
        self._damage = ""
        self._held.clear()
        settled = self.ledger.is_settled and not self._following
        self._resume(self._snapshot() if settled else self._saved, known=False)

    def is_behind(self, now_ms: int) -> bool:
        """Tell whether something that is due is not known to be delivered. What the log refused waits a while."""
        if now_ms < self._retry_ms:
            return False
        next_ms = min(self.index.next_key(), self._held[0].key) if self._held else self.index.next_key()
        is_known = self.index.next_offset >= self._store.max_offset(_TOPIC, 0)
        return not is_known or self._round_from is not None or next_ms <= now_ms

    # -- in

    def _take_in(self) -> None:
        """Take in the records that were dispatched since."""
        queue = self._store.queues.find(_TOPIC, 0)
        if queue is None or self.index.next_offset >= queue.next_offset:
            return
        low = queue.min_for(self._store.log_start)
        if self.index.is_empty and self.index.next_offset < low:
            # The log was copied from a place where earlier timed messages had expired.
            self.index.clear(low)
        offset = self.index.next_offset
        rules = timer_rules(self._store.config)
        end = min(queue.next_offset, offset + _ENTER_MAX)
        while offset < end:
            units = decode_units(queue.units(offset, end - offset))
            if offset < low or not units:
                self._enter(skipped(offset))
                offset += 1
                continue
            for physical_offset, size, _ in units:
                # Under other rules a message may have been stored again already.
                own = rules if offset >= self._saved.queue_offset else self._saved.rules
                self._enter(self._entry(offset, physical_offset, size, own))
                offset += 1

    def _entry(self, offset: int, physical_offset: int, size: int, rules: TimerRules) -> TimerEntry:
        if size == UNIT_FILL_SIZE:
            return skipped(offset)
        try:
            record = decode_record(self._store.log.segments.read(physical_offset, size), 0, VERIFY_NONE)
            return entry_of(offset, physical_offset, size, record.store_timestamp, record.properties, rules)
        except UNUSABLE as error:
            self._store.asides.add_place(_READER, error, _TOPIC, 0, offset, physical_offset)
            return skipped(offset)

    def _enter(self, entry: TimerEntry) -> None:
        self.index.add(entry)
        self.ledger.entered(entry)
        self.pending += not entry.flags & SKIP

    # -- out

    def _deliver(self, now_ms: int) -> None:
        """Begin a round, if none is under way and something is due."""
        if self._round_from is not None or self._damage:
            return
        try:
            entries = self._due(now_ms)
        except (StoreError, OSError) as error:
            self._damage = str(error)
            return
        if entries:
            self._round_from = self._store.log_end
            self._read(entries)

    def _due(self, now_ms: int) -> list[TimerEntry]:
        """Return entries for one round, in the order of their time."""
        entries: list[TimerEntry] = []
        size = passed = 0
        until_ms = max(now_ms, self.ledger.frontier_ms)
        held, index, ledger = self._held, self.index, self.ledger
        while len(entries) < _ROUND_MAX and size < _ROUND_BYTES_MAX and passed < _PASSED_MAX:
            if held and held[0].key <= now_ms and held[0].key <= index.next_key():
                entry = heapq.heappop(held)
            else:
                found = index.take(until_ms)
                if found is None:
                    ledger.passed(now_ms)
                    break
                if ledger.is_done(found):
                    passed += 1
                    ledger.finished(found.queue_offset)
                    self.pending -= 1
                    continue
                ledger.taken(found)
                if found.is_roll and found.due_ms <= now_ms:
                    heapq.heappush(held, found._replace(key=found.due_ms))  # too late to store it again
                    continue
                if found.key > now_ms:
                    heapq.heappush(held, found)  # the clock was set back
                    continue
                entry = found
            entries.append(entry)
            size += entry.size
        return entries

    def _read(self, entries: Sequence[TimerEntry]) -> None:
        lowest = min(entry.physical_offset for entry in entries)
        steps = record_bytes((entry.physical_offset, entry.size) for entry in entries)
        read_soon(self._store, lowest, steps, partial(self._act, entries))

    def _act(self, entries: Sequence[TimerEntry], records: list[bytes | None] | StoreError) -> None:
        if isinstance(records, StoreError):
            self._warn.warning("read", "timed messages cannot be read", reason=records.message)
            self._again(entries)
            self._finished(failed=True)
            return
        try:
            drafts = self._drafts(entries, records, self._clock.now_ms())
        except BaseException:
            # Nobody foresaw this failure. Nothing of the round is done, and it must not stay under way for ever.
            self._again(entries)
            self._finished(failed=True)
            raise
        copies: list[tuple[TimerEntry, Draft]] = []
        for entry, draft in zip(entries, drafts, strict=True):
            if draft is not None:
                copies.append((entry, draft))
            else:
                self._done(entry)
        groups = [[copy] for copy in copies] if self._one_by_one else [copies] if copies else []
        left, failed = len(groups), False
        if not groups:
            self._finished(failed=False)

        def stored(group: list[tuple[TimerEntry, Draft]], code: int, remark: str) -> None:
            nonlocal left, failed
            failed = not self._stored(group, code, remark) or failed
            left -= 1
            if not left:
                self._finished(failed=failed)

        for group in groups:
            self._puts.put([draft for _, draft in group], partial(stored, group))

    def _drafts(self, entries: Sequence[TimerEntry], records: list[bytes | None], now_ms: int) -> list[Draft | None]:
        """Return what is stored for each entry; None for nothing."""
        drafts: list[Draft | None] = []
        for entry, data in zip(entries, records, strict=True):
            draft = None
            try:
                draft = self._copy(entry, _sound(data, entry), now_ms)
            except UNUSABLE as error:
                self._set_aside(entry, error)
            drafts.append(draft)
        return drafts

    def _copy(self, entry: TimerEntry, record: Record, now_ms: int) -> Draft | None:
        """Return what is stored for an entry; None for nothing."""
        if deleted_topic_of(record, self._store.deletions) is not None:
            return None
        mark = timer_mark(entry.queue_offset)
        if entry.is_roll:
            return rolled(record, mark, now_ms)
        properties = decode_properties(record.properties)
        if entry.flags & CANCEL:
            topic = properties.get(REAL_TOPIC, "")
            self.ledger.cancel(topic, properties.get(TIMER_DEL_UNIQKEY, ""), entry.due_ms)
            return None
        if self.ledger.is_cancelled(properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")):
            return None
        return delivered(record, mark, now_ms)

    def _set_aside(self, entry: TimerEntry, reason: object) -> None:
        self._store.asides.add_place(_READER, reason, _TOPIC, 0, entry.queue_offset, entry.physical_offset)

    def _stored(self, group: list[tuple[TimerEntry, Draft]], code: int, remark: str) -> bool:
        """Report copies that were put together; return False where they must be tried again."""
        if code in STORED:
            for entry, _ in group:
                self._done(entry)
            self.delivered += len(group)
            return True
        illegal = code == ResponseCode.MESSAGE_ILLEGAL
        if illegal and len(group) == 1:
            # What the log refuses for what it is, it refuses for ever.
            self._set_aside(group[0][0], f"its delivery cannot be stored: {remark}")
            self._done(group[0][0])
            return True
        self._one_by_one = self._one_by_one or illegal
        self._warn.warning("store", "timed messages were not stored and wait", reason=remark)
        self._again([entry for entry, _ in group])
        return False

    def _done(self, entry: TimerEntry) -> None:
        self.ledger.finished(entry.queue_offset)
        self.pending -= 1

    def _again(self, entries: Sequence[TimerEntry]) -> None:
        for entry in entries:
            heapq.heappush(self._held, entry)

    def _finished(self, *, failed: bool) -> None:
        """End a round. What failed is tried again a little later; else the next round follows at once."""
        self._round_from = None
        now_ms = self._clock.now_ms()
        if failed:
            self._retry_ms = now_ms + _RETRY_MS
            return
        self._one_by_one = False
        if self._store.is_open:
            self._deliver(now_ms)

    # -- progress

    @property
    def _place(self) -> int:
        """Where the log must be settled before the progress of this moment may be saved."""
        return self._store.dispatched_offset if self._following else self._store.log_end

    def _snapshot(self) -> TimerProgress:
        if self._following:
            start, runs = self.index.manifest([run for run in self.index.finished() if run.start in self._dropping])
            return replace(self._saved, journal_start=start, runs=tuple(runs))
        end = self._store.log_end
        rescan_from = end if self._round_from is None else self._round_from
        gone = [run for run in self.index.finished() if run.start in self._dropping]
        return self.ledger.progress(
            self.index.next_offset, rescan_from, self.index.manifest(gone), timer_rules(self._store.config)
        )

    def _save(self, now_s: float) -> None:
        store = self._store
        if self._progress is None:
            if now_s < self._next_save_s or not (self.ledger.is_settled or self._following):
                return
            self._next_save_s = now_s + _SAVE_INTERVAL_S
            self.ledger.forget(timer_rules(store.config).precision_ms)
            at = (self._saved.rescan_from if self._following else self.delivered, self.index.next_offset)
            if at == self._saved_at and (
                self._following or store.log_end - self._saved.rescan_from < _RESCAN_BYTES_MAX
            ):
                return
            self._saved_at = at
            # Two steps: a run of which all is done is left out of what is saved, and its file goes after that.
            self._dropping = [run.start for run in self.index.finished() if not self._is_needed(run)]
            self._progress = (self._snapshot(), self._place)
        progress, settled_at = self._progress
        # The progress must not name copies or entries that a power cut or another master could still take.
        if store.settled_offset < settled_at:
            return
        self._progress = None
        dropping, self._dropping = self._dropping, []

        def saved(error: Exception | None) -> None:
            if error is not None:
                self._warn.warning("save", "the progress of timed messages was not saved", reason=error)
                self._saved_at = (-1, -1)
                return
            if progress.rescan_from >= self._saved.rescan_from:
                self._saved = progress
            self.index.drop([run for run in self.index.finished() if run.start in dropping])

        self._state.submit(progress.encode(), saved)

    def _is_needed(self, run: Run) -> bool:
        """Tell whether a restart would have to find an entry of the run."""
        needed: Iterable[int] = (entry.queue_offset for entry in self._held) if self._following else self.ledger.open
        return any(run.start <= offset < run.end for offset in needed)


def _sound(data: bytes | None, entry: TimerEntry) -> Record:
    """Return the record; raise CorruptLogError where it is not the one its entry means."""
    if data is None:
        raise CorruptLogError("record", entry.physical_offset, "the log ends within it")
    record = decode_record(data, 0, VERIFY_RECORD)
    if record.topic != _TOPIC or record.queue_offset != entry.queue_offset:
        raise CorruptLogError("record", entry.physical_offset, "another record stands there")
    return record
