"""Dispatch: how confirmed records reach everything derived from the log (queues, index, timers...).

This module owns the Sink base class and the order: every sink sees every record above its own position once, in log
order. No sink sees a record that is not confirmed or that was deleted with its topic. (RocketMQ #8239: unflushed
messages were consumed, and their offsets were used again after a power cut.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from mypy_extensions import mypyc_attr

from aerobee.hot.log.layout import FIXED_SIZE
from aerobee.hot.log.record import NEED_MORE, VERIFY_BODY, VERIFY_RECORD, Draft
from aerobee.hot.log.scan import scan_records
from aerobee.runtime.seams import File
from aerobee.store.deletions import Deletions
from aerobee.store.segment import Damage, LogSource, PieceKind, scan

# Drafts kept in memory for a confirmation that is slow to come. Beyond this number they are read again from the log.
_AT_HAND_MAX: Final = 100_000
_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_NOWHERE: Final = (1 << 62) - 1


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Something derived from the log. Deleting its files loses nothing: it is rebuilt from the log.

    The order of calls: `recover(log_start, log_end)` once at open, then `dispatch` from `position()` on, `flush` and
    `flushed` in pairs while running, `truncate` when the log lost its tail, `close` last. This is a class and not a
    protocol because compiled code calls the methods of a class without looking them up by name.
    """

    name: ClassVar[str] = ""

    def recover(self, log_start: int, log_end: int) -> None:
        """Open the files and drop whatever points at or beyond `log_end`; afterwards `position()` is true."""

    def position(self) -> int:
        """Return the physical offset below which the sink holds all of the log durably; -1 for nothing."""
        raise NotImplementedError

    def dispatch(self, drafts: list[Draft]) -> None:
        """Take confirmed records, in log order, from `position()` on. The one that begins there may be known."""
        raise NotImplementedError

    def passed(self, last: Draft) -> None:
        """Note that dispatch has passed this record, whether or not the sink was given it."""

    def flush(self) -> list[File]:
        """Write what memory holds. Return the files that must be synced before `flushed` may be called."""
        return []

    def flushed(self) -> None:
        """Note that the files of the last `flush` are synced: `position()` may move to where dispatch stood then."""

    def truncate(self, physical_offset: int) -> None:
        """Forget, durably, everything at or beyond this offset: the log ends there now."""

    def close(self) -> None:
        """Let the files go."""


class Dispatcher:
    """Brings confirmed records to the sinks. It reads from the log only those that it does not have in memory."""

    def __init__(
        self,
        log: LogSource,
        sinks: list[Sink],
        deletions: Deletions,
        delay_levels_ms: Sequence[int],
        report: Callable[[Damage], None],
    ) -> None:
        self._log = log
        self._sinks = sinks
        self._deletions = deletions
        self._delay_levels_ms = list(delay_levels_ms)
        self._report = report
        # Every sink has seen all of the log below this.
        self.position = 0
        # Where each sink wants to begin, in their order; empty where all begin at `position`.
        self._starts: list[int] = []
        # From here on every sink takes every record. Below, some have it already, or it was deleted with its topic.
        self._even_from = 0
        # Drafts in memory. The first group stands apart: it is the only one where each write is confirmed at once.
        self._first: list[Draft] | None = None
        self._first_start = 0
        self._first_end = 0
        self._others: deque[tuple[int, int, list[Draft]]] = deque()
        self._at_hand_count = 0
        # Records of this topic are told one by one, each before anything behind it is dispatched.
        self._watched: bytes = b""
        self._on_watched: Callable[[Draft], None] | None = None

    def watch(self, topic: bytes, seen: Callable[[Draft], None]) -> None:
        """Call `seen` with every record of a topic, after it was dispatched and before any record behind it is."""
        self._watched, self._on_watched = topic, seen
        self.topics_deleted()

    def offer(self, start: int, end: int, drafts: list[Draft]) -> None:
        """Keep records just written: all that the log holds between `start` and `end`."""
        self._at_hand_count += len(drafts)
        if self._at_hand_count > _AT_HAND_MAX:
            self.forget()
            return
        if self._first is None:
            self._first, self._first_start, self._first_end = drafts, start, end
        else:
            self._others.append((start, end, drafts))

    def offer_raw(self, start: int, data: bytes) -> None:
        """Keep the records that a replica has just written. Where they are not whole, the log is read later."""
        drafts, size, _ = scan_records(data, start, VERIFY_RECORD)
        if drafts and size == len(data):
            self.offer(start, start + size, drafts)

    def forget(self) -> None:
        """Drop the drafts in memory: their records are read from the log instead."""
        self._first = None
        self._others.clear()
        self._at_hand_count = 0

    def _drop_first(self, drafts: list[Draft]) -> None:
        self._at_hand_count -= len(drafts)
        if self._others:
            self._first_start, self._first_end, self._first = self._others.popleft()
        else:
            self._first = None

    def join(self, sink: Sink) -> None:
        """Give a sink everything that is dispatched from now on."""
        self._sinks.append(sink)
        if self._starts:
            self._starts.append(0)

    def leave(self, sink: Sink) -> None:
        """Give a sink that has joined nothing more."""
        number = self._sinks.index(sink)
        del self._sinks[number]
        if self._starts:
            del self._starts[number]

    def restart(self, position: int) -> None:
        """Dispatch from here on (again), to all sinks."""
        self.forget()
        self.position = position
        self._starts = []
        self.topics_deleted()

    def recover(self, position: int, starts: list[int]) -> None:
        """Dispatch from here on, to each sink from its own start on."""
        self.restart(position)
        self._starts = starts
        self.topics_deleted()

    def topics_deleted(self) -> None:
        """Take account of changed deletions: records of deleted topics that are not dispatched yet are left out."""
        # Whoever watches a topic wants to be asked about every record.
        self._even_from = max([self._deletions.highest, *self._starts]) if self._on_watched is None else _NOWHERE

    def advance(self, confirmed: int) -> None:
        """Dispatch everything below `confirmed`."""
        while self.position < confirmed:
            drafts = self._first
            if drafts is not None and self._first_start < self.position:
                self._drop_first(drafts)
            elif drafts is not None and self._first_start == self.position:
                end = self._first_end
                if end > confirmed:
                    return self._read(confirmed)
                self._drop_first(drafts)
                self._give(drafts)
                self.position = end
            else:
                limit = confirmed if drafts is None else min(confirmed, self._first_start)
                before = self.position
                self._read(limit)
                if self.position == before:
                    return None  # a record that is not complete yet
        return None

    def _give(self, drafts: list[Draft]) -> None:
        for draft in drafts:
            if draft.topic == _SCHEDULE_TOPIC:
                self._set_delivery_time(draft)
        if self.position < self._even_from:
            self._give_some(drafts)
            return
        for sink in self._sinks:
            sink.dispatch(drafts)

    def _give_some(self, drafts: list[Draft]) -> None:
        """Give each sink the records above its start, without those that were deleted."""
        seen, start = self._on_watched, 0
        if seen is not None:
            for number, draft in enumerate(drafts):
                if draft.topic == self._watched:
                    self._give_to_sinks(drafts[start : number + 1])
                    start = number + 1
                    seen(draft)
        if start < len(drafts):
            self._give_to_sinks(drafts[start:] if start else drafts)

    def _give_to_sinks(self, drafts: list[Draft]) -> None:
        kept = drafts
        if drafts[0].physical_offset < self._deletions.highest:
            kept = self._deletions.without(drafts)
        for number, sink in enumerate(self._sinks):
            start = self._starts[number] if self._starts else 0
            if kept and kept[-1].physical_offset >= start:
                own = kept
                if kept[0].physical_offset < start:
                    own = [draft for draft in kept if draft.physical_offset >= start]
                sink.dispatch(own)
            sink.passed(drafts[-1])

    def _set_delivery_time(self, draft: Draft) -> None:
        """Set a scheduled message's tags code to its delivery time.

        The log does not hold that time. It is computed from the level and the store time, here and by a scan.
        RocketMQ: CommitLog.checkMessageAndReturnSize.
        """
        data = self._log.read(draft.physical_offset, draft.size)
        found, _, _ = scan_records(data, draft.physical_offset, VERIFY_BODY, 0, self._delay_levels_ms)
        if len(data) >= FIXED_SIZE and found:
            draft.tags_code = found[0].tags_code

    def _read(self, limit: int) -> None:
        """Dispatch from the log up to `limit`, or to the last record that is whole below it."""
        for piece in scan(self._log, self.position, limit, delay_levels_ms=self._delay_levels_ms):
            if piece.kind is PieceKind.END:
                if piece.reason != NEED_MORE:
                    self.position = limit
            elif piece.kind is PieceKind.DAMAGE:
                end = piece.end if piece.end >= 0 else limit
                self._report(Damage(piece.start, end, piece.reason))
                self.position = end
            else:
                if piece.drafts and self.position < self._even_from:
                    self._give_some(piece.drafts)
                elif piece.drafts:
                    for sink in self._sinks:
                        sink.dispatch(piece.drafts)
                self.position = piece.end
