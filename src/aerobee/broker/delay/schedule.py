"""The machine of the delay levels: when messages are delivered, and the progress of each level.

It owns, for each level: the offset below which everything is delivered (what `delayOffset.json` keeps), what was
handed out and is not yet known to be stored, and what failed. The driver reads queue units from
`next_offset`, asks `plan` which are due, stores them and reports each by `delivered` or `failed`. Time is
wall-clock milliseconds, because the due time of a unit is.

No delivery is lost or repeated. Progress passes a unit only when its delivery is safe, so a crash loses nothing.
One failed delivery is tried again alone, the ones after it are not repeated (RocketMQ #6984). What was
delivered between the last save of the progress and a crash would come twice. Therefore every delivered
record carries a mark (level and offset, in a field that such records leave at 0), and at start the tail of
the log from the saved position (`rescan_from`) is shown to `seen`. Apache reads and ignores the mark.

A unit due later than its full delay from now means that the clock was set back (the log's time never goes
back). Apache delivers such a message at once, that is early; here it waits its delay from when it was first
seen.

RocketMQ: ScheduleMessageService.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aerobee.broker.delay.levels import DelayLevels

# Apache looks at every level each 100 ms, so a delivery may be late by as much.
POLL_INTERVAL_MS = 100
IN_FLIGHT_MAX = 1_000

_OFFSET_BITS = 56
_NOWHERE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DelayedUnit:
    """A unit of a schedule queue: `deliver_ms` stands where other queues hold the tags code."""

    queue_offset: int
    physical_offset: int
    size: int
    deliver_ms: int


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """What to do for a level now: deliver these in order, then ask again in `wait_ms`."""

    deliver: tuple[DelayedUnit, ...]
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Correction:
    """Saved progress that lay outside its queue. RocketMQ: correctDelayOffset."""

    level: int
    saved: int
    corrected: int


def delivery_mark(level: int, queue_offset: int) -> int:
    """Return the mark of a delivered record. It is negative, unlike a commit-log offset, the field's other use."""
    if not (0 < level < 64 and 0 <= queue_offset < 1 << _OFFSET_BITS):
        raise ValueError(f"no mark for level {level} offset {queue_offset}")
    return -((level << _OFFSET_BITS) | queue_offset)


def read_mark(mark: int) -> tuple[int, int] | None:
    """Return (level, queue offset) of a delivered record; None for every other record."""
    if mark >= 0:
        return None
    level, queue_offset = -mark >> _OFFSET_BITS, -mark & ((1 << _OFFSET_BITS) - 1)
    return (level, queue_offset) if 0 < level < 64 else None


@dataclass(slots=True)
class _Line:
    """One level. Units between `done` and `handed` are in `flying`, `failed` or `finished`."""

    done: int = 0
    handed: int = 0
    flying: dict[int, DelayedUnit] = field(default_factory=dict)
    failed: dict[int, DelayedUnit] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    # (offset, time): units below the offset had been seen by that time. Kept only while the clock is behind.
    seen: deque[tuple[int, int]] = field(default_factory=deque)

    def finish(self, queue_offset: int, physical_offset: int) -> bool:
        """Note that a unit is delivered, or never can be. Tell whether the progress moved."""
        if queue_offset < self.done:
            return False
        self.flying.pop(queue_offset, None)
        self.failed.pop(queue_offset, None)
        self.finished[queue_offset] = physical_offset
        before = self.done
        self.go_on()
        return self.done > before

    def skip_to(self, offset: int) -> None:
        """Note that everything below an offset is done. Nothing is on its way: for a broker that follows."""
        self.finished = {one: place for one, place in self.finished.items() if one >= offset}
        self.done = offset
        self.go_on()

    def go_on(self) -> None:
        """Move the progress over what is finished."""
        while self.done in self.finished:
            del self.finished[self.done]
            self.done += 1
        self.handed = max(self.handed, self.done)


class DelaySchedule:
    """All levels of a broker."""

    def __init__(
        self,
        levels: DelayLevels,
        offsets: Mapping[int, int] | None = None,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        """`offsets` is the saved table: level to offset."""
        self.levels = levels
        self.in_flight_max = in_flight_max
        self.version = 0
        self._lines = {level: _Line() for level in range(1, levels.max_level + 1)}
        self._others: dict[int, int] = {}
        for level, offset in (offsets or {}).items():
            line = self._lines.get(level)
            if line is None:
                self._others[level] = offset  # a level that is no longer configured keeps its place
            else:
                line.done = line.handed = max(0, offset)

    def offsets(self) -> dict[int, int]:
        """Return the table to save: a restart goes on from it."""
        saved = {level: line.done for level, line in self._lines.items() if line.done}
        return dict(sorted({**self._others, **saved}.items()))

    def rescan_from(self, safe_offset: int) -> int:
        """Return the position to save beside the table. From there a restart shows the log's marks to `seen`.

        `safe_offset` is the log's end up to which every delivery has been reported. What was delivered out of
        order lies behind it and must be seen again.
        """
        copies = (copy for line in self._lines.values() for copy in line.finished.values())
        return min(safe_offset, min(copies, default=_NOWHERE))

    def next_offset(self, level: int) -> int:
        """Return the offset from which to read units for `plan`."""
        return self._lines[level].handed

    def in_flight(self, level: int) -> int:
        """Return how many deliveries were handed out and not reported."""
        return len(self._lines[level].flying)

    def correct(self, level: int, min_offset: int, max_offset: int) -> Correction | None:
        """Bring the saved progress into its queue, at start and when a read finds nothing there.

        RocketMQ: ScheduleMessageService.correctDelayOffset, executeOnTimeUp.
        """
        line = self._lines[level]
        corrected = min(max(line.done, min_offset), max_offset)
        if corrected == line.done:
            return None
        correction = Correction(level, line.done, corrected)
        # Copies of what lies above may be known already, from marks of the log.
        kept = {one: place for one, place in line.finished.items() if corrected <= one < max_offset}
        self._lines[level] = line = _Line(done=corrected, handed=corrected, finished=kept)
        line.go_on()
        self.version += 1
        return correction

    def seen(self, marks: Iterable[tuple[int, int]]) -> int:
        """Take up marks found in the tail of the log, before the first `plan`, each with the physical offset of its
        record. Return how many deliveries they save."""
        saved = 0
        for mark, physical_offset in marks:
            found = read_mark(mark)
            line = None if found is None else self._lines.get(found[0])
            if found is not None and line is not None and found[1] >= line.done:
                saved += found[1] not in line.finished
                line.finish(found[1], physical_offset)
        return saved

    def learned(self, offsets: Mapping[int, int]) -> None:
        """Take up the progress of a master that this broker follows. What it names was delivered, or never can be."""
        for level, offset in offsets.items():
            line = self._lines.get(level)
            if line is None:
                self._others[level] = max(offset, self._others.get(level, 0))
            elif offset > line.done:
                line.skip_to(offset)
                self.version += 1

    def plan(
        self, level: int, units: Sequence[DelayedUnit], now_ms: int, max_offset: int | None = None
    ) -> DeliveryPlan:
        """Return which deliveries to make now. `units` follow each other from `next_offset`; what is handed out
        counts as on its way until reported. `max_offset` is the queue's end, if more is known than the units
        given.
        """
        line = self._lines[level]
        deliver = [line.failed[offset] for offset in sorted(line.failed)]
        for unit in deliver:
            del line.failed[unit.queue_offset]
            line.flying[unit.queue_offset] = unit
        if deliver:
            # Nothing new may overtake what failed.
            return DeliveryPlan(tuple(deliver), POLL_INTERVAL_MS)
        for unit in units:
            if unit.queue_offset != line.handed:
                raise ValueError(f"level {level}: unit {unit.queue_offset}, expected {line.handed}")
            if unit.queue_offset in line.finished:
                line.handed += 1  # delivered before the restart
                continue
            if len(line.flying) >= self.in_flight_max:
                return DeliveryPlan(tuple(deliver), POLL_INTERVAL_MS)
            due_ms = self._due_ms(level, line, unit, now_ms, max_offset or units[-1].queue_offset + 1)
            if due_ms > now_ms:
                return DeliveryPlan(tuple(deliver), due_ms - now_ms)
            line.handed += 1
            line.flying[unit.queue_offset] = unit
            deliver.append(unit)
        return DeliveryPlan(tuple(deliver), 0 if units else POLL_INTERVAL_MS)

    def delivered(self, level: int, queue_offset: int, physical_offset: int) -> None:
        """Note that the copy is stored there, as safely as the level of durability asks."""
        if self._lines[level].finish(queue_offset, physical_offset):
            self.version += 1

    def skipped(self, level: int, queue_offset: int) -> None:
        """Note that nothing can ever be delivered: the record is gone or names no topic."""
        self.delivered(level, queue_offset, _NOWHERE)

    def failed(self, level: int, queue_offset: int) -> None:
        """Note that storing it was refused. The next plan hands it out again."""
        line = self._lines[level]
        unit = line.flying.pop(queue_offset, None)
        if unit is None:
            raise ValueError(f"level {level}: offset {queue_offset} is not on its way")
        line.failed[queue_offset] = unit

    def validate(self) -> None:
        """Assert that each offset is in one place, and that the progress is the lowest unfinished one."""
        for level, line in self._lines.items():
            flying, failed = set(line.flying), set(line.failed)
            assert line.done <= line.handed, f"level {level}: progress {line.done} beyond {line.handed}"
            assert line.done not in line.finished, f"level {level}: progress stands still"
            assert not flying & failed and not (flying | failed) & line.finished.keys(), f"level {level}: in two places"
            between = {o for o in line.finished if o < line.handed} | flying | failed
            assert between == set(range(line.done, line.handed)), f"level {level}: lost track"

    def _due_ms(self, level: int, line: _Line, unit: DelayedUnit, now_ms: int, max_offset: int) -> int:
        delay_ms = self.levels.delay_ms(level)
        if unit.deliver_ms <= now_ms + delay_ms:
            if line.seen:
                line.seen.clear()
            return unit.deliver_ms
        while line.seen and (line.seen[0][0] <= unit.queue_offset or line.seen[0][1] > now_ms):
            line.seen.popleft()
        if not line.seen or (line.seen[-1][0] < max_offset and line.seen[-1][1] + 1000 <= now_ms):
            line.seen.append((max_offset, now_ms))
        return line.seen[0][1] + delay_ms
