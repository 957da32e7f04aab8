"""Repair: consume queues and index built again from the log, then put in place file by file.

Everything new is made and synced in `repair.tmp` first; then each file replaces the old one by a rename, which is
atomic. A crash at any moment leaves old or new files, each of them whole; repairing again finishes the work. The log,
the checkpoint and the state files are never written. A queue whose records have all expired keeps its files, and with
them its numbering; of a topic that was deleted nothing is built, and what is left of its queues goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.layout import UNIT_FILL_SIZE, UNIT_SIZE
from aerobee.hot.log.record import Draft
from aerobee.model.numbers import parse_int
from aerobee.runtime.seams import Disk
from aerobee.store.config import StoreConfig
from aerobee.store.deletions import Deletions
from aerobee.store.index import MessageIndex
from aerobee.store.offline.directory import QueueFiles, StoreDirectory, find_queues, queue_file_size
from aerobee.store.offline.indexfiles import find_index_files
from aerobee.store.offline.problems import CannotLookError, Progress, no_progress
from aerobee.store.offline.queuefiles import QueueUnits
from aerobee.store.offline.walk import OfflineLog, StretchKind
from aerobee.store.queues import ConsumeQueues

WORK_DIRECTORY: Final = "repair.tmp"
_FLUSH_BYTES: Final = 64 * 1024 * 1024
_COMPARE_SIZE: Final = 4 * 1024 * 1024
_STATE_NAMES: Final = ("queueTable.0", "queueTable.1", "indexFiles.json")


@dataclass(slots=True)
class RepairReport:
    """What was built, and what of it was new."""

    root: str
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    index_files: int = 0
    # Files put in place, as they are named below the root, and those removed.
    replaced: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    # Stretches of the log without a sound record: no repair brings them back.
    lost: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def repair(store: StoreDirectory, progress: Progress = no_progress) -> RepairReport:
    """Build again what is derived. The caller holds the store's lock."""
    report = RepairReport(store.root)
    if store.deletions_problem is not None:
        raise CannotLookError(
            f"which topics were deleted is not known: {store.deletions_problem}",
            hint="restore config/deletedTopics.json or its .bak: without it, deleted messages would come back",
        )
    found = find_queues(store)
    config = _config(store, found)
    remove_work(store)
    log = OfflineLog(store)
    try:
        _build(store, log, config, found, report, progress)
    finally:
        log.close()
    left_over = [one for one in found if is_left_over(store, one, config.mapped_file_size_consume_queue)]
    _Installation(store, report).run(found, left_over, config.message_index_enable)
    remove_work(store)
    return report


def _config(store: StoreDirectory, found: list[QueueFiles]) -> StoreConfig:
    """Return a configuration with the sizes of the files that are there: a repaired file must fit beside them."""
    config = store.config or StoreConfig()
    config = replace(config, mapped_file_size_consume_queue=queue_file_size(store, found))
    if store.config is None:
        views = find_index_files(store)
        known = [view for view in views if view.slot_count]
        if views and not known:
            raise CannotLookError(
                f"{store.shown(views[0].path)} is {views[0].size} bytes long, so its slots cannot be counted",
                hint="give the broker's configuration (-c) or --set maxHashSlotNum=N --set maxIndexNum=N",
            )
        if known:
            view = known[-1]
            config = replace(config, max_hash_slot_num=view.slot_count, max_index_num=view.entry_count)
    return config


def remove_work(store: StoreDirectory) -> None:
    """Remove what an earlier repair that was cut short left."""
    _remove_tree(store.disk, store.path(WORK_DIRECTORY))


def _remove_tree(disk: Disk, path: str) -> None:
    if not disk.is_dir(path):
        if disk.exists(path):
            disk.unlink(path)
        return
    for name in disk.listdir(path):
        _remove_tree(disk, f"{path}/{name}")
    disk.remove_dir(path)


def _build(
    store: StoreDirectory,
    log: OfflineLog,
    config: StoreConfig,
    found: list[QueueFiles],
    report: RepairReport,
    progress: Progress,
) -> None:
    work = store.path(WORK_DIRECTORY)
    report.log_start = report.log_end = log.start
    builders = _Builders(store.disk, work, config, store.deletions)
    try:
        builders.begin(log)
        for stretch in log.walk(delay_levels_ms=config.delay_levels_ms, progress=progress):
            report.log_end = stretch.end
            if stretch.kind is StretchKind.RECORDS:
                report.records += len(stretch.drafts)
                builders.take(stretch.drafts, stretch.end)
            elif stretch.kind is StretchKind.DAMAGE:
                report.lost.append((stretch.start, stretch.end))
        _keep_numbering(store, builders.queues, found, report, config.mapped_file_size_consume_queue)
        builders.finish()
    finally:
        builders.close()
    report.queues = len(builders.queues)
    report.notes += builders.queues.recovery.problems


class _Builders:
    """The broker's own queues and index, writing below the work directory."""

    def __init__(self, disk: Disk, work: str, config: StoreConfig, deletions: Deletions) -> None:
        self._disk = disk
        self._deletions = deletions
        disk.make_dirs(f"{work}/config")
        self.queues = ConsumeQueues(disk, work, config.mapped_file_size_consume_queue // UNIT_SIZE, deletions)
        self._index = MessageIndex(disk, work, config) if config.message_index_enable else None
        self._flushed_to = 0

    def begin(self, log: OfflineLog) -> None:
        self.queues.recovery.load(log.reader, log.start)
        self.queues.recover(log.start, log.stop)
        if self._index is not None:
            self._index.recover(log.start, log.stop)
        self._flushed_to = log.start

    def take(self, drafts: Sequence[Draft], end: int) -> None:
        kept = self._deletions.without(drafts)
        self.queues.dispatch(kept)
        self.queues.passed(drafts[-1])
        if self._index is not None:
            self._index.dispatch(kept)
        if end - self._flushed_to >= _FLUSH_BYTES:
            self._flushed_to = end
            for file in self.queues.flush():
                file.sync()
            self.queues.flushed()
            if self._index is not None:
                for file in self._index.flush():
                    file.sync()
                self._index.flushed()

    def finish(self) -> None:
        self.queues.flusher.save()

    def close(self) -> None:
        self.queues.close()
        if self._index is not None:
            self._index.close()


def _keep_numbering(
    store: StoreDirectory, queues: ConsumeQueues, found: list[QueueFiles], report: RepairReport, file_size: int
) -> None:
    """Keep numbers that were given away, even where the records are gone or damaged."""
    known: dict[tuple[str, int], int] = {}
    for files in found:
        if not is_left_over(store, files, file_size):
            units = QueueUnits(store.disk, files, file_size)
            known[files.topic, files.queue_id] = _next_of(units, report)
    if store.table is not None and store.is_ours:
        for key, bounds in store.table.rows(store.deletions):
            known[key] = max(known.get(key, 0), bounds[2])
    for (topic, queue_id), wanted in known.items():
        if wanted:
            try:
                queues.keep_numbering(topic.encode(), queue_id, wanted)
            except InvalidArgumentError as error:
                report.notes.append(f"consumequeue/{topic}/{queue_id}: {error}: left as it is")


def is_left_over(store: StoreDirectory, files: QueueFiles, file_size: int) -> bool:
    """Tell whether a queue's files are those of a topic that was deleted."""
    deleted = store.deletions.position_of(files.topic.encode())
    if not deleted:
        return False
    units = QueueUnits(store.disk, files, file_size)
    number = units.written_end()
    if number == units.first:
        return True
    physical_offset, size, _ = units.unit(number - 1)
    return physical_offset < deleted and size != UNIT_FILL_SIZE


def _next_of(units: QueueUnits, report: RepairReport) -> int:
    """Return the number above the last unit whose record is gone; 0 where the log shows how far the queue goes."""
    number = units.written_end()
    if number == units.first:
        return 0
    physical_offset, size, _ = units.unit(number - 1)
    is_gone = size == UNIT_FILL_SIZE or 0 <= physical_offset < report.log_start
    is_lost = any(start <= physical_offset < end for start, end in report.lost)
    return number if is_gone or is_lost else 0


class _Installation:
    """Renames new files over old ones and removes what is left over."""

    def __init__(self, store: StoreDirectory, report: RepairReport) -> None:
        self._store = store
        self._disk = store.disk
        self._report = report
        self._work = store.path(WORK_DIRECTORY)

    def run(self, found: list[QueueFiles], left_over: list[QueueFiles], with_index: bool) -> None:
        """Put queues in place, then the index, then what Aerobee notes about both: no note speaks of files to come."""
        for queue in left_over:
            for file in queue.files:
                self._disk.unlink(file.path)
                self._report.removed.append(self._store.shown(file.path))
            self._sync_up(queue.directory)
        old = {(queue.topic, queue.queue_id): queue for queue in found}
        built = f"{self._work}/consumequeue"
        for topic in self._disk.listdir(built):
            for queue_id in self._disk.listdir(f"{built}/{topic}"):
                before = old.get((topic, parse_int(queue_id)))
                self._install_directory(f"consumequeue/{topic}/{queue_id}", before is not None)
        if with_index:
            self._install_directory("index", True)
            self._report.index_files = len(self._disk.listdir(self._store.path("index")))
        self._disk.make_dirs(self._store.path("config"))
        for name in _STATE_NAMES:
            if self._disk.exists(f"{self._work}/config/{name}"):
                self._install(f"config/{name}")
        self._disk.sync_dir(self._store.path("config"))

    def _install_directory(self, name: str, is_there: bool) -> None:
        new = self._disk.listdir(f"{self._work}/{name}")
        if not new and name != "index":
            return  # no record left: the old files keep the numbering
        target = self._store.path(name)
        self._disk.make_dirs(target)
        for entry in new:
            self._install(f"{name}/{entry}")
        for entry in self._disk.listdir(target) if is_there else []:
            if entry not in new and entry.isdecimal():
                self._disk.unlink(f"{target}/{entry}")
                self._report.removed.append(f"{name}/{entry}")
        self._sync_up(target)

    def _install(self, name: str) -> None:
        source, target = f"{self._work}/{name}", self._store.path(name)
        if self._is_same(source, target):
            self._report.unchanged += 1
            return
        self._disk.rename(source, target)
        self._report.replaced.append(name)

    def _is_same(self, source: str, target: str) -> bool:
        if not self._disk.exists(target):
            return False
        left, right = self._disk.open(source, write=False), self._disk.open(target, write=False)
        try:
            if left.size() != right.size():
                return False
            return all(
                left.read(at, _COMPARE_SIZE) == right.read(at, _COMPARE_SIZE)
                for at in range(0, left.size(), _COMPARE_SIZE)
            )
        finally:
            left.close()
            right.close()

    def _sync_up(self, directory: str) -> None:
        while len(directory) >= len(self._store.root):
            self._disk.sync_dir(directory)
            directory = directory.rpartition("/")[0]
