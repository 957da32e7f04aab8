"""Dump: the messages of a log in its order, sound ones only, filtered while the log is walked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aerobee.hot.log.record import ZERO, Draft, decode_record, describe
from aerobee.model.compression import DecompressionError
from aerobee.model.message import Message, from_record
from aerobee.store.offline.directory import StoreDirectory
from aerobee.store.offline.problems import Findings, Problem, Progress, no_progress
from aerobee.store.offline.walk import OfflineLog, Stretch, StretchKind
from aerobee.store.recordhead import HEAD_SIZE, head_of

# Apache's store time may step back with the clock: whole segments are passed over with this much to spare.
_CLOCK_MARGIN_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFilter:
    """Which messages; everything given must hold."""

    topic: str | None = None
    queue_id: int | None = None
    # Store time in milliseconds: from (with) to (without).
    begin_ms: int | None = None
    end_ms: int | None = None
    # One of the message's keys, its unique id, or its offset id.
    key: str | None = None
    limit: int | None = None

    def takes(self, draft: Draft) -> bool:
        """Tell whether the cheap fields match; a key is looked at in the message."""
        if self.topic is not None and draft.topic != self.topic.encode():
            return False
        if self.queue_id is not None and draft.queue_id != self.queue_id:
            return False
        if self.begin_ms is not None and draft.store_timestamp < self.begin_ms:
            return False
        return self.end_ms is None or draft.store_timestamp < self.end_ms

    def takes_key(self, message: Message) -> bool:
        """Tell whether the message is found by the key asked for."""
        if self.key is None:
            return True
        return self.key in message.key_list or self.key in (message.message_id, message.offset_id)


@dataclass(slots=True)
class DumpReport:
    """What was passed over, for the end."""

    root: str
    is_live: bool
    # Where the dump looked from and to.
    start: int = 0
    end: int = 0
    messages: int = 0
    findings: Findings = field(default_factory=Findings)
    # Bodies that could not be decompressed and were given as stored.
    undecompressed: int = 0


class Dump:
    """Iterate over it once; `report` is complete afterwards."""

    def __init__(
        self,
        store: StoreDirectory,
        wanted: DumpFilter,
        *,
        decompress: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        self._store = store
        self._wanted = wanted
        self._decompress = decompress
        self._progress = progress
        self.report = DumpReport(store.root, store.is_live)

    def __iter__(self) -> Iterator[Message]:
        log = OfflineLog(self._store)
        try:
            yield from self._messages(log)
        finally:
            log.close()

    def _messages(self, log: OfflineLog) -> Iterator[Message]:
        wanted, report = self._wanted, self.report
        report.start = report.end = start = self._first_segment(log)
        if wanted.limit == 0:
            return
        for stretch in log.walk(start, progress=self._progress):
            report.end = stretch.end
            if stretch.kind is StretchKind.DAMAGE:
                self._note_damage(log, stretch)
            elif stretch.kind is StretchKind.END:
                self._note_end(log, stretch)
            for draft in stretch.drafts:
                if not wanted.takes(draft):
                    continue
                message = self._message(log.reader.read, draft)
                if message is None or not wanted.takes_key(message):
                    continue
                report.messages += 1
                yield message
                if report.messages == wanted.limit:
                    report.end = draft.physical_offset + draft.size
                    return
            if self._is_past(stretch):
                return

    def _message(self, read: Callable[[int, int], bytes], draft: Draft) -> Message | None:
        data = read(draft.physical_offset, draft.size)
        if len(data) < draft.size:
            return None  # deleted since
        record = decode_record(data, 0)
        if self._decompress:
            try:
                return from_record(record)
            except DecompressionError:
                self.report.undecompressed += 1
        return from_record(record, unfold=False)

    def _first_segment(self, log: OfflineLog) -> int:
        """Return the last segment that surely begins before the first message asked for."""
        begin = self._wanted.begin_ms
        start = log.start
        for file in log.files if begin is not None else []:
            head = head_of(log.reader.read(file.start, HEAD_SIZE))
            if head is None or begin is None or head.store_timestamp >= begin - _CLOCK_MARGIN_MS:
                break
            start = file.start
        return start

    def _is_past(self, stretch: Stretch) -> bool:
        end = self._wanted.end_ms
        if end is None or not stretch.drafts:
            return False
        return stretch.drafts[0].store_timestamp >= end + _CLOCK_MARGIN_MS

    def _note_damage(self, log: OfflineLog, stretch: Stretch) -> None:
        path, at = log.place_of(stretch.start)
        what = f"{describe(stretch.reason)}: {stretch.end - stretch.start} bytes without a sound record"
        self._add(path, at, what, stretch.start, stretch.end)

    def _note_end(self, log: OfflineLog, stretch: Stretch) -> None:
        if self._store.durable > stretch.start:
            path, at = log.place_of(stretch.start)
            what = f"the log ends at {stretch.start}, but it was synced up to {self._store.durable}"
            self._add(path, at, what, stretch.start, self._store.durable)
        elif stretch.reason != ZERO:
            self.report.findings.notes.append(f"log ends at {stretch.start}; what follows is no whole record")

    def _add(self, path: str, at: int, what: str, start: int, end: int) -> None:
        self.report.findings.add(
            Problem(
                part="log",
                path=self._store.shown(path),
                offset=at,
                what=what,
                physical_offset=start,
                physical_end=end,
            )
        )
