"""Inspect: shows quickly what is in a store. It reads the ends of files, not all of them, and checks nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aerobee.hot.log.layout import UNIT_FILL_SIZE
from aerobee.hot.log.record import BLANK, NEED_MORE, VERIFY_NONE, ZERO, check_record
from aerobee.hot.log.scan import scan_records
from aerobee.store.checkpoint import Checkpoint
from aerobee.store.offline.checkstate import StateFileView, find_state_files
from aerobee.store.offline.directory import (
    QueueFiles,
    StoreDirectory,
    find_queues,
    queue_file_size,
    read_error,
)
from aerobee.store.offline.indexfiles import IndexFileView, find_index_files
from aerobee.store.offline.problems import Progress, no_progress
from aerobee.store.offline.queuefiles import QueueUnits
from aerobee.store.offline.walk import CHUNK_SIZE, OfflineLog
from aerobee.store.recordhead import HEAD_SIZE, head_of
from aerobee.store.segment import SegmentFile, find_sound
from aerobee.store.setaside import FILE_NAME, SetAside, SetAsideReport, decode_report
from aerobee.store.statefile import unseal

_TAIL_SIZE: Final = 1024 * 1024
_KNOWN: Final = frozenset(
    ("commitlog", "consumequeue", "consumequeue_ext", "index", "config", "checkpoint", "abort", "lock", "truncate")
)


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One file of the log. Times are 0 where it holds no record."""

    name: str
    start: int
    size: int
    # Where its records end: equal to the file's end where it is full.
    end: int
    first_store_timestamp: int
    last_store_timestamp: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """One consume queue: messages [min_offset, max_offset)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A name in the root that is none of the store's known parts."""

    name: str
    is_directory: bool


@dataclass(slots=True)
class InspectReport:
    """Everything found."""

    root: str
    log_directory: str
    is_live: bool
    lock_holder: int | None
    has_lock_file: bool
    has_abort: bool
    # Whether Aerobee had this store last; False also where nobody can tell.
    is_ours: bool
    log_start: int = 0
    log_end: int = 0
    durable: int = 0
    segments: list[SegmentView] = field(default_factory=list)
    queues: list[QueueView] = field(default_factory=list)
    ext_queues: int = 0
    index_files: list[IndexFileView] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    state_files: list[StateFileView] = field(default_factory=list)
    others: list[OtherFile] = field(default_factory=list)
    # Records that a broker could not use: the newest of them, and how many there were by reader.
    set_aside: list[SetAside] = field(default_factory=list)
    set_aside_counts: dict[str, int] = field(default_factory=dict)

    @property
    def log_size(self) -> int:
        return sum(segment.size for segment in self.segments)


def inspect(store: StoreDirectory, progress: Progress = no_progress) -> InspectReport:
    """Look, read-only."""
    disk = store.disk
    report = InspectReport(
        store.root,
        store.log_directory,
        store.is_live,
        store.holder,
        disk.exists(store.path("lock")),
        store.has_abort,
        store.is_ours,
        durable=store.durable,
        checkpoint=store.checkpoint,
    )
    log = OfflineLog(store)
    try:
        _look_at_segments(log, report, progress)
    except OSError as error:
        raise read_error(store.log_directory, error) from error
    finally:
        log.close()
    queues = find_queues(store)
    file_size = queue_file_size(store, queues)
    report.queues = [_look_at_queue(store, queue, file_size, report.log_start) for queue in queues]
    ext = store.path("consumequeue_ext")
    report.ext_queues = sum(len(disk.listdir(f"{ext}/{topic}")) for topic in disk.listdir(ext))
    report.index_files = find_index_files(store)
    report.state_files = find_state_files(store)
    asides = _look_at_asides(store)
    report.set_aside, report.set_aside_counts = list(asides.records), dict(asides.counts or {})
    report.others = [
        OtherFile(name, disk.is_dir(store.path(name))) for name in disk.listdir(store.root) if name not in _KNOWN
    ]
    return report


def _look_at_asides(store: StoreDirectory) -> SetAsideReport:
    """Return the list of the file or of its backup.

    It is empty where neither can be read, which the state files report.
    """
    for name in (FILE_NAME, f"{FILE_NAME}.bak"):
        path = store.path("config", name)
        if store.disk.exists(path):
            try:
                return decode_report(unseal(store.read(path)))
            except (ValueError, RecursionError):
                continue
    return SetAsideReport()


def _look_at_segments(log: OfflineLog, report: InspectReport, progress: Progress) -> None:
    report.log_start = report.log_end = log.start
    for file in log.files:
        progress(file.start - log.start, log.stop - log.start)
        first = head_of(log.reader.read(file.start, HEAD_SIZE))
        if first is None:
            # The segment was made ahead of its first record, or is damaged at its first byte. `verify` tells which.
            report.segments.append(SegmentView(file.path.rpartition("/")[2], file.start, file.size, file.start, 0, 0))
            continue
        end, last = _end_of(log, file)
        report.log_end = max(report.log_end, end)
        view = SegmentView(
            file.path.rpartition("/")[2],
            file.start,
            file.size,
            end,
            first.store_timestamp,
            last or first.store_timestamp,
        )
        report.segments.append(view)


def _end_of(log: OfflineLog, file: SegmentFile) -> tuple[int, int]:
    """Return where a segment's records end and the store time of the last, read from the tail of a full segment."""
    window = _TAIL_SIZE
    while window < file.size:
        found = find_sound(log.reader, file.end - window, file.end, verify=VERIFY_NONE)
        if 0 <= found < file.end:
            return _scan_to_end(log, file, found)
        # The tail holds no record: the last one is very large, or the segment is not written that far.
        window *= 8
    return _scan_to_end(log, file, file.start)


def _scan_to_end(log: OfflineLog, file: SegmentFile, offset: int) -> tuple[int, int]:
    last, window = 0, CHUNK_SIZE
    while offset < file.end:
        data = log.reader.read(offset, min(window, file.end - offset))
        drafts, consumed, reason = scan_records(data, offset, VERIFY_NONE)
        offset += consumed
        if drafts:
            last = drafts[-1].store_timestamp
            window = CHUNK_SIZE
        elif reason == BLANK:
            return file.end, last
        elif reason == NEED_MORE and len(data) == window:
            window *= 2
        elif reason == ZERO or not data:
            break
        else:
            found = find_sound(log.reader, offset + 1, file.end, verify=VERIFY_NONE)
            if found < 0 or check_record(log.reader.read(found, HEAD_SIZE), 0, found, VERIFY_NONE) < NEED_MORE:
                break
            offset = found
    return offset, last


def _look_at_queue(store: StoreDirectory, queue: QueueFiles, file_size: int, log_start: int) -> QueueView:
    units = QueueUnits(store.disk, queue, file_size)
    end = units.written_end()
    low, high = units.first, end
    while low < high:
        middle = (low + high) // 2
        physical_offset, size, _ = units.unit(middle)
        if size == UNIT_FILL_SIZE or physical_offset < log_start:
            low = middle + 1
        else:
            high = middle
    known = (store.table.queues if store.table is not None else {}).get((queue.topic, queue.queue_id))
    if known is not None and known[2] > end and not store.is_live:
        end = known[2]  # the files of a queue may be gone with its records, its numbering is not
        low = max(low, end) if not queue.files else low
    size = sum(file.size for file in queue.files)
    return QueueView(queue.topic, queue.queue_id, low, max(low, end), len(queue.files), size)
