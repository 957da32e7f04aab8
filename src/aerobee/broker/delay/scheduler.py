"""The driver of the delay levels: it delivers messages of the queues of SCHEDULE_TOPIC_XXXX.

For each level it reads the units that are due and their records (cold ones through the reader thread), stores the
records under their own topic, and reports. One round of a level is under way at a time, so a level delivers in order;
the next round follows at once while more is due. A level of which no message waits is looked at when the log has grown.

A crash neither loses nor repeats a delivery. Progress is saved every 10 s, once everything it names is on disk; what
was delivered after that is found again by its mark in the tail of the log (docs/formats/delay.md). RocketMQ:
ScheduleMessageService.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from aerobee.broker.delay.levels import DelayLevels, queue_of_level, time_up
from aerobee.broker.delay.schedule import POLL_INTERVAL_MS, DelayedUnit, DelaySchedule, delivery_mark
from aerobee.broker.log import STORED, Mark, Puts, read_soon, record_bytes, scan_marks
from aerobee.errors import CorruptLogError, StoreError
from aerobee.hot.log.layout import UNIT_FILL_SIZE
from aerobee.hot.log.record import VERIFY_RECORD, Draft, decode_record
from aerobee.hot.log.units import decode_units
from aerobee.model.names import SCHEDULE_TOPIC
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.offsets import DelayOffsetTable
from aerobee.store.setaside import UNUSABLE
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_TOPIC: Final = SCHEDULE_TOPIC.encode()
_READER: Final = "delay levels"
# One round of one level.
_ROUND_UNITS_MAX: Final = 512
_ROUND_BYTES_MAX: Final = 4 << 20
# The longest wait, so that a wall clock that was set is noticed.
_WAIT_MAX_MS: Final = 1_000
# Without deliveries the progress is saved again after so many bytes of the log, so that a start scans no more.
_RESCAN_BYTES_MAX: Final = 64 << 20

_log = get_log("broker.schedule")


@dataclass(slots=True)
class _Progress:
    """A state of the table that may be saved once the log is settled up to `settled_at`."""

    table: dict[int, int]
    rescan_from: int
    settled_at: int


class Scheduler:
    """One broker's delayed deliveries. `open` after the store is open, `close` after it is closed."""

    def __init__(
        self,
        store: MessageStore,
        table: DelayOffsetTable,
        levels: DelayLevels,
        puts: Puts,
        clock: Clock,
        *,
        save_interval_ms: int = 10_000,
    ) -> None:
        self.schedule = DelaySchedule(levels)
        self._store = store
        self._table = table
        self._levels = levels
        self._puts = puts
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._save_interval_s = save_interval_ms / 1000
        # When to look at each level, and at the first of them; levels of which no message waits.
        self._due_ms = dict.fromkeys(range(1, levels.max_level + 1), 0)
        self._next_ms = 0
        self._empty: set[int] = set()
        # How far the log was dispatched when the empty levels were looked at last, and when that was.
        self._seen = (-1, 0)
        # Levels with a round under way, and where the log ended when it began: its copies lie above.
        self._rounds: dict[int, int] = {}
        # Levels of which the log refused a message for what it is. Their next round stores each message by itself.
        self._one_by_one: set[int] = set()
        self._saved_version = 0
        self._next_save_s = 0.0
        self._progress: _Progress | None = None
        self._saving = False
        self._following = False

    # -- start and stop

    def open(self, *, following: bool = False) -> int:
        """Take up the progress; how many deliveries the marks of the log's tail kept from being repeated.

        With `following` nothing is delivered before `lead`.
        """
        self._following = following
        found = self._table.load(self._clock.now_ms())
        self.schedule = DelaySchedule(self._levels, self._table.table)
        for level in self._due_ms:
            self._correct(level)
        # A table without our field was kept by another broker; without a file nothing was ever saved.
        start = self._table.rescan_from if found else self._store.log_start
        end = self._store.dispatched_offset
        spared = 0
        if start is not None:
            marks = scan_marks(self._store, start, end)
            spared = self.schedule.seen((mark.value, mark.physical_offset) for mark in marks)
        self._saved_version = self.schedule.version
        self._take(self._snapshot())
        self._table.save()
        self._next_save_s = self._clock.monotonic() + self._save_interval_s
        return spared

    def close(self) -> None:
        """Save the progress, if the store got everything to disk; else the marks speak for it."""
        progress = self._snapshot()
        if self._store.settled_offset >= progress.settled_at:
            self._take(progress)
            self._table.save()

    # -- following a master

    def follow(self, marks: Iterable[Mark]) -> None:
        """Take up deliveries that the master stored, and keep the progress. Call it often while following."""
        self.schedule.seen((mark.value, mark.physical_offset) for mark in marks)
        self._save(self._clock.monotonic())

    def learn_progress(self, offsets: Mapping[int, int]) -> None:
        """Take up the progress that the master has told: of levels, the offset below which all is done."""
        self.schedule.learned(offsets)

    @property
    def progress(self) -> dict[int, int]:
        """The progress of each level, for those who follow this broker."""
        return self.schedule.offsets()

    def lead(self) -> None:
        """Deliver from now on. Everything that the log holds was shown to `follow`."""
        self._following = False
        for level in self._due_ms:
            self._correct(level)
        self.look_again()

    # -- time

    @property
    def next_due_ms(self) -> int:
        """When the next tick has something to do."""
        return min(self._due_ms.values())

    def tick(self, now_ms: int) -> None:
        """Deliver what is due and keep the progress. Call every 100 ms or more often."""
        assert not self._following, "a broker that follows delivers nothing"
        end, seen_ms = self._seen
        if self._store.dispatched_offset != end and not 0 <= now_ms - seen_ms < POLL_INTERVAL_MS:
            self._seen = (self._store.dispatched_offset, now_ms)
            self._next_ms = 0
            self._due_ms.update(dict.fromkeys(self._empty, 0))
        if not 0 < self._next_ms - now_ms <= _WAIT_MAX_MS:
            for level, due_ms in self._due_ms.items():
                if not 0 < due_ms - now_ms <= _WAIT_MAX_MS and level not in self._rounds:
                    self._run(level, now_ms)
            self._next_ms = self.next_due_ms
        self._save(self._clock.monotonic())

    def look_again(self) -> None:
        """Look at every level with the next tick: the clock was set."""
        self._due_ms = dict.fromkeys(self._due_ms, 0)
        self._next_ms = 0

    def is_behind(self, now_ms: int) -> bool:
        """Tell whether something that is due is not delivered, or not known to be."""
        return bool(self._rounds) or self.next_due_ms <= now_ms

    # -- one round of one level

    def _run(self, level: int, now_ms: int) -> None:
        queue_id = queue_of_level(level)
        end = self._store.max_offset(_TOPIC, queue_id)
        if self.schedule.next_offset(level) >= end and not self.schedule.in_flight(level):
            if self.schedule.next_offset(level) > end:
                self._correct(level)
            units: list[DelayedUnit] = []
        else:
            units = self._units(level, queue_id)
        plan = self.schedule.plan(level, units, now_ms, end)
        if units or plan.deliver:
            self._empty.discard(level)
            self._due_ms[level] = now_ms + min(plan.wait_ms, _WAIT_MAX_MS)
        else:
            self._empty.add(level)
            self._due_ms[level] = now_ms + _WAIT_MAX_MS
        if plan.deliver:
            self._rounds[level] = self._store.log_end
            self._read(level, plan.deliver)

    def _units(self, level: int, queue_id: int) -> list[DelayedUnit]:
        queue = self._store.queues.find(_TOPIC, queue_id)
        if queue is None:
            return []
        offset = self.schedule.next_offset(level)
        if offset < queue.min_for(self._store.log_start):
            self._correct(level)
            offset = self.schedule.next_offset(level)
        found: list[DelayedUnit] = []
        size_total = 0
        units = decode_units(queue.units(offset, _ROUND_UNITS_MAX))
        for number, (physical_offset, size, deliver_ms) in enumerate(units):
            size_total += 0 if size == UNIT_FILL_SIZE else size
            if found and size_total > _ROUND_BYTES_MAX:
                break
            found.append(DelayedUnit(offset + number, physical_offset, size, deliver_ms))
        return found

    def _correct(self, level: int) -> None:
        queue_id = queue_of_level(level)
        low, high = self._store.min_offset(_TOPIC, queue_id), self._store.max_offset(_TOPIC, queue_id)
        corrected = self.schedule.correct(level, low, high)
        if corrected is not None:
            _log.warning(
                "the progress of a delay level lay outside its queue",
                level=level,
                saved=corrected.saved,
                corrected=corrected.corrected,
            )

    def _read(self, level: int, units: Sequence[DelayedUnit]) -> None:
        lowest = min(unit.physical_offset for unit in units)
        steps = record_bytes((unit.physical_offset, unit.size) for unit in units)
        read_soon(self._store, lowest, steps, partial(self._deliver, level, units))

    def _deliver(self, level: int, units: Sequence[DelayedUnit], records: list[bytes | None] | StoreError) -> None:
        if isinstance(records, StoreError):
            self._warn.warning("read", "delayed messages cannot be read", level=level, reason=records.message)
            self._failed(level, units)
            return
        try:
            copies = [_copy(record, level, unit) for unit, record in zip(units, records, strict=True)]
        except BaseException:
            # Nobody foresaw this failure. Nothing of the round is done, and it must not stay under way for ever.
            self._failed(level, units)
            raise
        sent: list[DelayedUnit] = []
        drafts: list[Draft] = []
        for unit, copy in zip(units, copies, strict=True):
            if isinstance(copy, Draft) and self._store.deletions.covers(copy.topic, unit.physical_offset):
                # The message went with its topic, see topics/deleted.py.
                self.schedule.skipped(level, unit.queue_offset)
            elif isinstance(copy, Draft):
                drafts.append(copy)
                sent.append(unit)
            else:
                self._set_aside(level, unit, copy)
        alone = level in self._one_by_one
        groups = [[i] for i in range(len(sent))] if alone else [list(range(len(sent)))] if sent else []
        left, failed = len(groups), False
        if not groups:
            self._finished(level, failed=False)

        def done(group: list[int], code: int, remark: str) -> None:
            nonlocal left, failed
            failed = not self._stored(level, [(sent[i], drafts[i]) for i in group], code, remark) or failed
            left -= 1
            if not left:
                self._finished(level, failed=failed)

        for group in groups:
            self._puts.put([drafts[i] for i in group], partial(done, group))

    def _stored(self, level: int, copies: list[tuple[DelayedUnit, Draft]], code: int, remark: str) -> bool:
        """Report copies that were put together; return False where they must be tried again."""
        if code in STORED:
            for unit, draft in copies:
                self.schedule.delivered(level, unit.queue_offset, draft.physical_offset)
            return True
        illegal = code == ResponseCode.MESSAGE_ILLEGAL
        if illegal and len(copies) == 1:
            # What the log refuses for what it is, it refuses for ever. The level goes on without it.
            self._set_aside(level, copies[0][0], f"its delivery cannot be stored: {remark}")
            return True
        if illegal:
            self._one_by_one.add(level)
        self._warn.warning("store", "delayed messages were not stored and wait", level=level, reason=remark)
        for unit, _ in copies:
            self.schedule.failed(level, unit.queue_offset)
        return False

    def _set_aside(self, level: int, unit: DelayedUnit, reason: object) -> None:
        """Set aside a message that can never be delivered: the level goes on without it."""
        if unit.size != UNIT_FILL_SIZE:  # a fill unit never had a record
            self._store.asides.add_place(
                _READER, reason, _TOPIC, queue_of_level(level), unit.queue_offset, unit.physical_offset
            )
        self.schedule.skipped(level, unit.queue_offset)

    def _failed(self, level: int, units: Sequence[DelayedUnit]) -> None:
        for unit in units:
            self.schedule.failed(level, unit.queue_offset)
        self._finished(level, failed=True)

    def _finished(self, level: int, *, failed: bool) -> None:
        """End a round. What failed is tried again by a later tick; else the next round follows at once."""
        del self._rounds[level]
        self._next_ms = 0
        now_ms = self._clock.now_ms()
        if failed:
            self._due_ms[level] = now_ms + POLL_INTERVAL_MS
            return
        self._one_by_one.discard(level)
        if self._due_ms[level] <= now_ms and self._store.is_open:
            self._run(level, now_ms)

    # -- progress

    def _snapshot(self) -> _Progress:
        end = self._store.dispatched_offset if self._following else self._store.log_end
        safe = min(self._rounds.values(), default=end)
        return _Progress(self.schedule.offsets(), self.schedule.rescan_from(safe), end)

    def _take(self, progress: _Progress) -> None:
        if self._table.table != progress.table:
            self._table.table.clear()
            self._table.table.update(progress.table)
            self._table.bump(self._clock.now_ms())
        self._table.rescan_from = progress.rescan_from

    def _save(self, now_s: float) -> None:
        if self._progress is None:
            if now_s < self._next_save_s or self._saving:
                return
            self._next_save_s = now_s + self._save_interval_s
            grown = self._store.log_end - (self._table.rescan_from or 0)
            if self.schedule.version == self._saved_version and grown < _RESCAN_BYTES_MAX:
                return
            self._saved_version = self.schedule.version
            self._progress = self._snapshot()
        # The table must not name copies that a power cut or another master could still take.
        if self._store.settled_offset < self._progress.settled_at:
            return
        self._take(self._progress)
        self._progress = None
        self._saving = True
        self._table.submit(self._saved)

    def _saved(self, error: Exception | None) -> None:
        self._saving = False
        if error is not None:
            self._saved_version = -1
            self._warn.warning("save", "the progress of delayed messages was not saved", reason=error)


def _copy(record: bytes | None, level: int, unit: DelayedUnit) -> Draft | str:
    """Return the delivery of a record, or why there can be none."""
    try:
        return _delivery(record, level, unit)
    except UNUSABLE as error:
        return str(error)


def _delivery(record: bytes | None, level: int, unit: DelayedUnit) -> Draft:
    if record is None:
        raise CorruptLogError("record", unit.physical_offset, "the log ends within it")
    found = decode_record(record, 0, VERIFY_RECORD)
    place = (_TOPIC, queue_of_level(level), unit.queue_offset)
    if (found.topic, found.queue_id, found.queue_offset) != place:
        raise CorruptLogError("record", unit.physical_offset, "another record stands there")
    return time_up(found, delivery_mark(level, unit.queue_offset))
