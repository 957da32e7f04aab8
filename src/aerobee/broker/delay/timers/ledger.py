"""The ledger of timed messages: which are done, which are open, and which were cancelled.

An entry is done when it was in the index as the *frontier*, a time, passed it, unless it is open: being delivered, or
to be tried again. The ledger is saved every few seconds with a place in the log. A delivery after that is found again
by its mark, so a crash neither loses nor repeats one. Time is wall-clock milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.broker.delay.schedule import delivery_mark, read_mark
from aerobee.broker.delay.timers.entries import CANCEL, TimerEntry, TimerRules
from aerobee.model.numbers import INT64_MAX, INT64_MIN

# The "level" of timers in delivery marks; there are never so many delay levels.
MARK_LEVEL: Final = 63
_DEFAULT_RULES: Final = TimerRules(1000, 2 * 86_400_000)


def timer_mark(queue_offset: int) -> int:
    """Return the mark of what a timed message became."""
    return delivery_mark(MARK_LEVEL, queue_offset)


def marked_offset(mark: int) -> int | None:
    """Return the queue offset of the timed message that a mark speaks of; None for other marks."""
    found = read_mark(mark)
    return found[1] if found is not None and found[0] == MARK_LEVEL else None


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """The saved progress of timers. `open` maps queue offsets to keys."""

    frontier_ms: int = -1
    queue_offset: int = 0
    open: dict[int, int] = field(default_factory=dict)
    rescan_from: int = 0
    journal_start: int = 0
    runs: tuple[int, ...] = ()
    rules: TimerRules = _DEFAULT_RULES

    def encode(self) -> bytes:
        return json.dumps(self.to_json()).encode()

    def to_json(self) -> dict[str, Any]:
        return {
            "frontier": self.frontier_ms,
            "queueOffset": self.queue_offset,
            "open": [[offset, key] for offset, key in sorted(self.open.items())],
            "rescanFrom": self.rescan_from,
            "journalStart": self.journal_start,
            "runs": list(self.runs),
            "precisionMs": self.rules.precision_ms,
            "windowMs": self.rules.window_ms,
        }

    @classmethod
    def decode(cls, content: bytes) -> TimerProgress:
        return cls.from_json(json.loads(content))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TimerProgress:
        """Return a progress; raise ValueError, KeyError or TypeError where the object is none."""
        return cls(
            _whole(data["frontier"]),
            _whole(data["queueOffset"]),
            {_whole(offset): _whole(key) for offset, key in data["open"]},
            _whole(data["rescanFrom"]),
            _whole(data["journalStart"]),
            tuple(_whole(start) for start in data["runs"]),
            TimerRules(_whole(data["precisionMs"]), _whole(data["windowMs"])),
        )

    def is_done(self, entry: TimerEntry) -> bool:
        """Tell whether an entry found at start was done when this was saved. What cancels others of its slot is done
        once more, as long as one of those may be waiting."""
        if entry.key > self.frontier_ms or entry.queue_offset >= self.queue_offset or entry.queue_offset in self.open:
            return False
        return not (entry.flags & CANCEL and entry.due_ms + self.rules.precision_ms >= self.resume_key)

    @property
    def resume_key(self) -> int:
        """Nothing with an earlier key is of interest, except what `rules.precision_ms` before it cancels."""
        return min([self.frontier_ms, *self.open.values()])


def _whole(value: object) -> int:
    """Return a number of the file; raise ValueError where it is none that fits 64 bits."""
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number")
    return value


class TimerLedger:
    """What the running broker knows of messages that are done, open or cancelled."""

    def __init__(self, saved: TimerProgress | None = None, delivered: Iterable[int] = ()) -> None:
        """`delivered` are queue offsets of marks found in the log's tail."""
        self._saved = saved
        self._delivered = set(delivered)
        self.frontier_ms = -1 if saved is None else saved.frontier_ms
        self.open: dict[int, int] = {}
        # Whether every entry up to the frontier was looked at since the start. Only then may the progress be saved.
        self.is_settled = False
        # Cancelled unique keys, with the start of their slot.
        self._cancelled: dict[str, int] = {}

    def is_done(self, entry: TimerEntry) -> bool:
        """Tell whether an entry that was found at start had been delivered before."""
        if entry.queue_offset in self._delivered and not entry.flags & CANCEL:
            return True
        return self._saved is not None and self._saved.is_done(entry)

    def entered(self, entry: TimerEntry) -> None:
        """Note an entry that came into the index; it is open where its time has passed already."""
        if entry.key <= self.frontier_ms:
            self.open[entry.queue_offset] = entry.key

    def passed(self, now_ms: int) -> None:
        """Every entry up to now, and up to the frontier if that is later (a clock set back), was taken out."""
        self.frontier_ms = max(self.frontier_ms, now_ms)
        self.is_settled = True

    def taken(self, entry: TimerEntry) -> None:
        """Note that the entry is being worked on."""
        self.open.setdefault(entry.queue_offset, entry.key)

    def finished(self, queue_offset: int) -> None:
        """Note that a message was delivered, stored again, cancelled, or can never be delivered."""
        self.open.pop(queue_offset, None)

    def cancel(self, topic: str, unique_key: str, slot_ms: int) -> None:
        """Deliver no message of this topic with this key. RocketMQ: TimerMessageStore.buildDeleteKey.

        Apache cancels messages of any topic, unless `appendTopicForTimerDeleteKey` is on, which puts a topic before the
        key. Here whoever may send to one topic cannot cancel the messages of another.
        """
        self._cancelled[f"{topic}+{unique_key.removeprefix(f'{topic}+')}"] = slot_ms

    def is_cancelled(self, topic: str, unique_key: str) -> bool:
        """Tell whether a message was cancelled."""
        return f"{topic}+{unique_key}" in self._cancelled

    def forget(self, precision_ms: int) -> None:
        """Drop cancellations of slots that are over."""
        over_ms = min([self.frontier_ms, *self.open.values()]) - precision_ms
        if self._cancelled:
            self._cancelled = {key: slot for key, slot in self._cancelled.items() if slot >= over_ms}

    def progress(
        self, queue_offset: int, rescan_from: int, manifest: tuple[int, list[int]], rules: TimerRules
    ) -> TimerProgress:
        """Return the progress, to be saved once the log is flushed up to where it ends now."""
        return TimerProgress(
            self.frontier_ms,
            queue_offset,
            dict(self.open),
            rescan_from,
            manifest[0],
            tuple(manifest[1]),
            rules,
        )
