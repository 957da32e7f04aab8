"""Opening and closing a store directory: lock, `abort`, refusals, the order of recovery, and what a stop writes.

This module owns the sequence; `recovery.py` decides where the log ends. A crash may cut any step short, and the next
start does it again. RocketMQ: DefaultMessageStore.load, start, shutdown.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aerobee.errors import DiskFullError, StoreError, WrongStoreError
from aerobee.hot.log.record import VERIFY_NONE, VERIFY_RECORD, VERIFY_SEALED
from aerobee.model.numbers import parse_int
from aerobee.runtime.seams import DirLock, Disk
from aerobee.store.config import StoreConfig
from aerobee.store.copies import require_no_copy
from aerobee.store.diskrules import sync_directory, sync_file
from aerobee.store.format import note_format, require_known_format
from aerobee.store.metadata.topics import static_topics
from aerobee.store.recordhead import HEAD_SIZE, head_of
from aerobee.store.recovery import LogEnd, RecoveryReport, boundary_at_or_below, find_end
from aerobee.store.rocksdb import require_no_rocksdb

if TYPE_CHECKING:
    from aerobee.store.messagestore import MessageStore

_AGAIN_BYTES: Final = 1 << 20
_NAMES_SHOWN: Final = 5


@dataclass(slots=True)
class Opened:
    """What an open store holds."""

    report: RecoveryReport
    lock: DirLock


def open_store(store: MessageStore) -> Opened:
    """Recover and make ready; on an error everything taken is given back."""
    disk = store.disk
    try:
        disk.make_dirs(store.root)
        lock = disk.lock(f"{store.root}/lock")
        try:
            require_no_rocksdb(disk, store.root)
            require_no_copy(disk, store.root)
            _refuse_static_topics(disk, store.root)
            found = require_known_format(disk, store.root)
            report = _recover(store)
            note_format(disk, store.root, found)
        except BaseException:
            _close_files(store)
            lock.release()
            raise
    except OSError as error:
        raise StoreError(f"the store cannot be opened: {error}") from error
    return Opened(report, lock)


def _refuse_static_topics(disk: Disk, root: str) -> None:
    found = static_topics(disk, root)
    if found:
        shown = ", ".join(found[:_NAMES_SHOWN]) + (", ..." if len(found) > _NAMES_SHOWN else "")
        raise WrongStoreError(
            f"{root}/config/topicQueueMapping.json makes topics static ({shown}), which is not supported: "
            "their queues and offsets would be others than clients know",
            hint="delete these topics with Apache's broker; or move the file away, and they become ordinary topics",
        )


def _recover(store: MessageStore) -> RecoveryReport:
    report = RecoveryReport(abnormal=store.disk.exists(f"{store.root}/abort"))
    _write_abort(store, report.abnormal)
    report.problems += store.log.segments.load()
    report.problems += store.checkpoint.problems
    store.mark.open()
    store.deletions.load(store.log.start)
    _redo_truncation(store, report)
    found = _find_log_end(store, report)
    for damage in found.damages:
        store.report_damage(damage)
    report.damages = found.damages
    store.log.end = report.log_end = found.end
    store.log.store_timestamp = found.store_timestamp
    report.log_start = store.log.start
    store.reads.trusted_from = report.scanned_from
    store.start_flusher(found.end)
    _recover_sinks(store, report)
    if store.dispatcher.position == found.end:
        store.queues.keep_numbers(store.deletions.without(found.mended))
    with contextlib.suppress(DiskFullError):
        settle(store)  # a full disk is no reason not to start: its messages can be read
    store.deletions.cut(found.end)
    forget_truncation(store)
    return report


def _write_abort(store: MessageStore, exists: bool) -> None:
    """Write the file that is there until a clean stop. Apache looks only whether it exists."""
    if not exists:
        file = store.disk.open(f"{store.root}/abort", create=True)
        try:
            file.write(0, b"aerobee\n")
            sync_file(file)
        finally:
            file.close()
        sync_directory(store.disk, store.root)


def _redo_truncation(store: MessageStore, report: RecoveryReport) -> None:
    """Do a truncation that was noted, before anything looks at the log."""
    offset = store.pending_truncation.load(lambda content: parse_int(content.strip(), 0))
    if offset is None:
        return
    report.redone_truncation = offset
    report.problems.append(f"a truncation at {offset} was cut short and is done again")
    segments = store.log.segments
    if not segments.is_empty and segments.start <= offset < segments.stop:
        store.log.cut(offset)
    store.mark.save(min(store.mark.offset, offset))


def _find_log_end(store: MessageStore, report: RecoveryReport) -> LogEnd:
    segments = store.log.segments
    log_start = segments.start
    is_ours = store.mark.believes(store.checkpoint.value.encode())
    durable = store.mark.offset if is_ours else 0
    position = store.queues.recovery.load(segments, log_start, is_ours)
    report.scanned_from = start = max(position, log_start)
    if position > log_start:
        durable = max(durable, position)
    if durable > segments.stop:
        report.problems.append(f"the log was synced up to {durable}, its files end at {segments.stop}")
        durable = 0
    verify = _verify_level(store.config)
    if not report.abnormal and is_ours and start == durable and not any(segments.read(start, HEAD_SIZE)):
        found = LogEnd(start)  # stopped cleanly by us, nothing written since
    else:
        sealed_from = store.mark.sealed_from if is_ours else -1
        found = find_end(segments, start, segments.stop, durable, verify, sealed_from)
        report.cut_to = found.end
        if not segments.is_empty:
            # The order matters: what lies behind the end must be gone for good before anything new is written.
            synced = max(log_start, store.mark.offset) if is_ours else start
            if report.abnormal:
                _write_again(store, synced, found.end)
            segments.sync(min(start, synced), found.end)
            store.log.cut(found.end)
    found.store_timestamp = max(found.store_timestamp, _last_store_time(store))
    store.mark.note_writer(found.end, is_ours, store.config.enabled_append_prop_crc)
    return found


def _write_again(store: MessageStore, start: int, end: int) -> None:
    """Write the tail of the log once more, so that the next sync covers it.

    After a failed sync the system takes pages for clean that never reached the disk. A restarted process reads them,
    and no sync would write them.
    """
    segments = store.log.segments
    while start < end:
        data = segments.read(start, min(_AGAIN_BYTES, end - start))
        if not data:
            return  # a segment is missing: what is said of that stands in the report
        segments.write(start, data)
        start += len(data)


def _verify_level(config: StoreConfig) -> int:
    if not config.check_crc_on_recover:
        return VERIFY_NONE
    return VERIFY_SEALED if config.force_verify_prop_crc else VERIFY_RECORD


def _last_store_time(store: MessageStore) -> int:
    """Return the store time of the record before the scan began: store time never decreases, also over a restart."""
    last = store.queues.recovery.chosen_last
    if last is None:
        return 0
    head = head_of(store.log.segments.read(last[0], HEAD_SIZE))
    return max(last[2], 0 if head is None else head.store_timestamp)


def _recover_sinks(store: MessageStore, report: RecoveryReport) -> None:
    """Recover each sink, and dispatch what it lacks.

    The log is read once, from the lowest place that a sink needs. Each sink is given what lies above its own place.
    """
    segments, start, end = store.log.segments, store.log.start, store.log.end
    begin = end
    starts: list[int] = []
    for sink in store.sinks:
        sink.recover(start, end)
    store.queues.recovery.check_units(segments, start)
    for sink in store.sinks:
        position = sink.position()
        # A sink that holds nothing of the log wants what is dispatched from now on.
        starts.append(min(position, store.confirmed_offset) if position >= end else position)
        if position < end:
            at = boundary_at_or_below(segments, max(position, start), start, segments.segment_size)
            begin = min(begin, at)
    report.dispatched_from = begin
    store.dispatcher.recover(begin, starts)
    store.dispatcher.advance(store.confirmed_offset)
    if store.dispatcher.position == end:
        store.queues.recovery.finish()
    report.problems += store.queues.recovery.problems


def settle(store: MessageStore) -> None:
    """Write sinks, queue table, mark and checkpoint to disk, blocking."""
    full: DiskFullError | None = None
    for sink in store.sinks:
        if sink is not store.queues:
            try:
                for file in dict.fromkeys(sink.flush()):
                    sync_file(file)
                sink.flushed()
            except DiskFullError as error:
                full = error  # the sink is built again from the log; the rest still has room
    store.queues.flusher.save()
    save_checkpoint(store)
    if full is not None:
        raise full


def save_checkpoint(store: MessageStore) -> None:
    """Save mark and checkpoint, durably. The mark knows the checkpoint beside it, before and after it changes."""
    store.checkpoint.settle()
    value = store.checkpoint_value()
    if value != store.checkpoint.value or not store.checkpoint.existed:
        store.mark.note_checkpoint(store.checkpoint.on_disk.encode(), value.encode())
        store.mark.save(store.flusher.flushed)
        store.checkpoint.save(value)
    store.mark.save(store.flusher.flushed)


def forget_truncation(store: MessageStore) -> None:
    path = store.pending_truncation.path
    if store.disk.exists(path):
        store.disk.unlink(path)
        sync_directory(store.disk, store.root)


def close_store(store: MessageStore, opened: Opened, clean: bool) -> None:
    """Let everything go; remove `abort` only if the next start may trust what it finds."""
    try:
        if clean:
            store.disk.unlink(f"{store.root}/abort")
            sync_directory(store.disk, store.root)
    except OSError as error:
        raise StoreError(f"the file abort, which marks a running store, cannot be removed: {error}") from error
    finally:
        _close_files(store)
        opened.lock.release()


def _close_files(store: MessageStore) -> None:
    for sink in store.sinks:
        with contextlib.suppress(OSError, StoreError):
            sink.close()
    store.mark.close()
    store.log.segments.close()
