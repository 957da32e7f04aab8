"""Verify: checks every record with its checksum, every queue unit, every index entry, every small file.

The log is walked once. Queues and index are compared as their records go by, so verifying takes the time of reading the
files once, and memory does not grow with the store. Nothing is locked, created or changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aerobee.hot.log.layout import SEAL_NAME, SEAL_NAME_END_POS, SEAL_SIZE
from aerobee.hot.log.record import BAD_SIZE, NEED_MORE, NO_CRC, ZERO, Draft, describe
from aerobee.store.config import StoreConfig
from aerobee.store.offline.checkindex import IndexChecker
from aerobee.store.offline.checkqueues import QueueChecker
from aerobee.store.offline.checkstate import check_checkpoint, check_state, topics_of
from aerobee.store.offline.directory import StoreDirectory
from aerobee.store.offline.locate import SEARCHED_MAX, bad_blank_byte, bad_byte, blank_in
from aerobee.store.offline.problems import Findings, Problem, Progress, no_progress
from aerobee.store.offline.walk import OfflineLog, Stretch, StretchKind
from aerobee.store.segment import MISSING_FILE

# Where a sealed record has the name of its checksum property, from the end of its properties.
_SEAL_NAME_AT: Final = slice(-SEAL_SIZE, SEAL_NAME_END_POS - SEAL_SIZE)


@dataclass(slots=True)
class VerifyReport:
    """What was looked at and what is wrong."""

    root: str
    is_live: bool
    has_abort: bool
    log_start: int = 0
    # Where the log ends: everything below was looked at.
    log_end: int = 0
    segments: int = 0
    log_bytes: int = 0
    records: int = 0
    # Records that carry a checksum of the whole. Of the others only the body is covered.
    sealed_records: int = 0
    queues: int = 0
    queue_units: int = 0
    index_files: int = 0
    index_entries: int = 0
    state_files: int = 0
    findings: Findings = field(default_factory=Findings)


def verify(store: StoreDirectory, progress: Progress = no_progress) -> VerifyReport:
    """Look at everything."""
    report = VerifyReport(store.root, store.is_live, store.has_abort)
    log = OfflineLog(store)
    try:
        _Verification(store, log, report).run(progress)
    finally:
        log.close()
    report.findings.problems.sort(key=lambda problem: (_PARTS.index(problem.part), problem.path, problem.offset))
    return report


_PARTS = ("log", "queue", "index", "checkpoint", "state")


class _Verification:
    def __init__(self, store: StoreDirectory, log: OfflineLog, report: VerifyReport) -> None:
        self._store = store
        self._log = log
        self._report = report
        self._findings = report.findings
        self._queues = QueueChecker(store, log, report.findings)
        self._index = IndexChecker(store, log, report.findings)
        self._cut_told: set[str] = set()
        # Where a log with a damaged tail should end.
        self._claimed = 0

    def run(self, progress: Progress) -> None:
        store, report, log = self._store, self._report, self._log
        report.log_start, report.segments = log.start, len(log.files)
        levels = (store.config or StoreConfig()).delay_levels_ms
        for stretch in log.walk(delay_levels_ms=levels, progress=progress):
            if stretch.kind is StretchKind.RECORDS:
                self._take_records(stretch)
            elif stretch.kind is StretchKind.DAMAGE:
                self._take_damage(stretch.start, stretch.end, stretch.reason)
            elif stretch.kind is StretchKind.DELETED:
                self._queues.damages.append((stretch.start, stretch.end))
                self._index.damages.append((stretch.start, stretch.end))
                self._findings.notes.append(
                    f"segments below {stretch.end} were deleted by retention while they were read"
                )
            else:
                self._take_end(stretch)
        self._tell_cut_files()
        # Units and entries that point at a damaged tail are no problems of their own.
        end = max(report.log_end, self._claimed)
        self._queues.finish(end, topics_of(store))
        self._index.finish(end)
        report.state_files = check_state(store, self._findings)
        check_checkpoint(store, report.log_start, end, self._findings)
        report.log_bytes = report.log_end - report.log_start
        report.queues, report.queue_units = len(self._queues), self._queues.compared
        report.index_files, report.index_entries = len(self._index.files), self._index.compared
        self._remark()

    def _take_records(self, stretch: Stretch) -> None:
        drafts = stretch.drafts
        self._report.records += len(drafts)
        sealed = sum(draft.properties[_SEAL_NAME_AT] == SEAL_NAME for draft in drafts)
        self._report.sealed_records += sealed
        if sealed < len(drafts) and 0 <= self._store.sealed_from < stretch.end:
            self._require_seals(drafts)
        self._report.log_end = stretch.end
        self._queues.take(drafts)
        self._index.take(drafts)

    def _require_seals(self, drafts: list[Draft]) -> None:
        """Report records without a checksum: Aerobee knows from where on it wrote one into every record."""
        for draft in drafts:
            if draft.physical_offset >= self._store.sealed_from and draft.properties[_SEAL_NAME_AT] != SEAL_NAME:
                path, at = self._log.place_of(draft.physical_offset)
                end = draft.physical_offset + draft.size
                what = f"{describe(NO_CRC)}, though every record from {self._store.sealed_from} on has one"
                self._add_log(self._store.shown(path), at, what, draft.physical_offset, end)

    def _take_damage(self, start: int, end: int, reason: int) -> None:
        self._queues.damages.append((start, end))
        self._index.damages.append((start, end))
        self._report.log_end = end
        path, at = self._log.place_of(start)
        file = self._log.file_of(start)
        shown = self._store.shown(path)
        what = f"{describe(reason)}: {end - start} bytes without a sound record"
        if reason == MISSING_FILE:
            what = f"the file is missing: {end - start} bytes of the log"
        if file is not None and file.size < self._log.segment_size and end >= file.end:
            # The file was cut: the first byte that is not there is the first bad one.
            self._cut_told.add(file.path)
            at = file.size
            what = f"the file is {file.size} bytes long, not {self._log.segment_size}: records are missing"
        elif reason != MISSING_FILE:
            byte, is_proved = self._bad_byte(start, end, reason)
            if is_proved:
                at += byte
                what = f"{describe(reason)} in the record at byte {at - byte}: this byte alone explains it"
            elif reason == ZERO:
                what = f"zeros, with records behind: {end - start} bytes without a sound record"
            else:
                what += f" (record begins at byte {at})" if byte else ""
                at += byte
        self._add_log(shown, at, what, start, end)

    def _bad_byte(self, start: int, end: int, reason: int) -> tuple[int, bool]:
        limit = self._log.reader.segment_end(start)
        data = self._log.reader.read(start, min(end, limit) - start) if end - start <= SEARCHED_MAX else b""
        if end >= limit:
            blank = bad_blank_byte(data)
            if blank is not None:
                return blank, True
            data = data[: blank_in(data)]
        return bad_byte(data, start, reason)

    def _take_end(self, stretch: Stretch) -> None:
        """Tell whether what stands behind the last sound record should be records."""
        store, end = self._store, stretch.start
        self._report.log_end = end
        claimed, who = store.durable, "it was synced"
        if store.is_settled:
            claimed, who = max((claimed, who), (self._queues.claim_at(end), "a consume queue points"))
        if claimed > end:
            self._claimed = claimed
            path, at = self._log.place_of(end)
            file = self._log.file_of(end)
            reason = BAD_SIZE if stretch.reason == NEED_MORE else stretch.reason
            why = "nothing is there" if reason == ZERO else describe(reason)
            if file is not None and file.size < self._log.segment_size:
                self._cut_told.add(file.path)
                at, why = file.size, f"the file is {file.size} bytes long, not {self._log.segment_size}"
            else:
                record = self._log.reader.read(end, min(claimed - end, SEARCHED_MAX))
                byte, is_proved = bad_byte(record, end, reason)
                at += byte if is_proved or reason != ZERO else 0
            what = f"the log ends at {end}, but {who} up to {claimed}: {why}"
            self._queues.damages.append((end, claimed))
            self._index.damages.append((end, claimed))
            self._add_log(store.shown(path), at, what, end, claimed)
        elif stretch.reason != ZERO:
            after = "is being written" if store.is_live else "is a torn write" if store.has_abort else "is no record"
            self._findings.notes.append(f"log ends at {end}; what follows {after}")

    def _tell_cut_files(self) -> None:
        size = self._log.segment_size
        for file in self._log.files:
            if file.size != size and file.path not in self._cut_told:
                what = f"the file is {file.size} bytes long, not {size}"
                self._add_log(self._store.shown(file.path), min(file.size, size), what, file.start, file.end)

    def _add_log(self, path: str, at: int, what: str, start: int, end: int) -> None:
        self._findings.add(
            Problem(part="log", path=path, offset=at, what=what, physical_offset=start, physical_end=end)
        )

    def _remark(self) -> None:
        notes, queues = self._findings.notes, self._queues
        if self._store.is_live:
            notes.append(f"a broker is running: looked up to offset {self._report.log_end}")
        elif self._store.has_abort:
            notes.append("the broker was not stopped in order: the next start recovers the rest by itself")
        if queues.behind:
            notes.append(f"{queues.behind} newest records are not in their consume queues yet")
        if self._index.behind:
            notes.append(f"{self._index.behind} newest keys are not in the index yet")
        if queues.beyond and self._store.has_abort and not self._store.is_live:
            notes.append(f"{queues.beyond} queue units point behind the log's end: the next start drops them")
        if queues.orphans:
            notes.append(f"{queues.orphans} records belong to topics that were deleted")
