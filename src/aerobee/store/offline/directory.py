"""A store directory opened read-only: where its parts are, what state it is in, and whether it can be read at all.

This module owns the refusals in words and the sizes of files, which are told by the files themselves: the tools work
without the broker's configuration. Nothing is created, locked or changed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aerobee.errors import StoreError
from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.runtime.seams import Disk
from aerobee.store.checkpoint import FILE_SIZE, Checkpoint, decode_checkpoint
from aerobee.store.config import StoreConfig
from aerobee.store.copies import require_no_copy
from aerobee.store.deletions import Deletions
from aerobee.store.durablemark import DurableMark
from aerobee.store.format import require_known_format
from aerobee.store.offline.problems import CannotLookError
from aerobee.store.queuetable import QueueTable, read_table
from aerobee.store.rocksdb import require_no_rocksdb
from aerobee.store.segment import SegmentFile, list_segments

# Any of these makes a directory a store.
_SIGNS: Final = ("commitlog", "consumequeue", "checkpoint", "abort", "config", "index")
LISTING_TRIES: Final = 10


def nobody(path: str) -> int | None:
    """Return the lock holder of disks on which no other process can be: none."""
    return None


@dataclass(slots=True)
class StoreDirectory:
    """A store, not opened: `root` and what was true of it when this was made."""

    disk: Disk
    root: str
    log_directory: str
    config: StoreConfig | None
    # The process that holds `lock`, 0 where it cannot be named.
    holder: int | None
    has_abort: bool
    checkpoint: Checkpoint | None = None
    checkpoint_bytes: bytes = b""
    checkpoint_problems: list[str] = field(default_factory=list)
    # How far Aerobee knew the log to be synced; 0 where it did not have this store last.
    durable: int = 0
    # From here on every record must carry the whole-record checksum; -1: nowhere.
    sealed_from: int = -1
    # Whether Aerobee was the last to have this store.
    is_ours: bool = False
    # The two slots of the mark and the two files of the queue table: whether each is whole.
    mark_slots: list[bool] = field(default_factory=list)
    table: QueueTable | None = None
    table_files: list[bool] = field(default_factory=list)
    deletions: Deletions = field(init=False)
    # Why `deletions` says nothing, though something was deleted.
    deletions_problem: str | None = None

    def __post_init__(self) -> None:
        self.deletions = Deletions(self.disk, self.root)
        try:
            self.deletions.load()
        except StoreError as error:
            self.deletions_problem = error.message

    @property
    def is_live(self) -> bool:
        """Tell whether a broker has the store now."""
        return self.holder is not None

    @property
    def is_settled(self) -> bool:
        """Tell whether the store was stopped in order: everything derived must be complete."""
        return not self.is_live and not self.has_abort

    def path(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def shown(self, path: str) -> str:
        """Return a path as reports name it: below the root."""
        return path.removeprefix(self.root + "/")

    def read(self, path: str, size_max: int = 1 << 30) -> bytes:
        """Return a small file whole; empty where it is not there."""
        try:
            file = self.disk.open(path, write=False)
        except FileNotFoundError:
            return b""
        try:
            return file.read(0, min(file.size(), size_max))
        finally:
            file.close()

    def list_files(self, directory: str) -> list[SegmentFile]:
        """Return the files named by offset, whatever a broker deletes meanwhile."""
        for _ in range(LISTING_TRIES):
            try:
                return list_segments(self.disk, directory)
            except FileNotFoundError:
                continue  # a file went between listing and opening: list again
        raise CannotLookError(f"{directory} changes faster than it can be listed")


def look_at(
    disk: Disk,
    root: str,
    *,
    config: StoreConfig | None = None,
    commit_log: str | None = None,
    lock_holder: Callable[[str], int | None] = nobody,
) -> StoreDirectory:
    """Find out what can be looked at; CannotLookError where nothing can."""
    root = root.rstrip("/") or "/"
    if not disk.is_dir(root):
        word = "is not a directory" if disk.exists(root) else "does not exist"
        raise CannotLookError(f"{root} {word}")
    _refuse_others(disk, root)
    configured = None if config is None else config.store_path_commit_log
    log_directory = (commit_log or configured or f"{root}/commitlog").rstrip("/")
    if commit_log is not None and not disk.is_dir(commit_log):
        raise CannotLookError(f"{commit_log} is not a directory")
    store = StoreDirectory(
        disk,
        root,
        log_directory,
        config,
        lock_holder(f"{root}/lock"),
        disk.exists(f"{root}/abort"),
    )
    # The marks are read first: what they claim was true before anything else is read.
    _read_marks(store)
    return store


def _refuse_others(disk: Disk, root: str) -> None:
    try:
        require_no_rocksdb(disk, root)
        require_no_copy(disk, root)
        require_known_format(disk, root)
    except StoreError as error:
        raise CannotLookError(error.message, hint=error.hint) from error
    names = disk.listdir(root)
    if not any(sign in names for sign in _SIGNS):
        inner = "store" in names and any(sign in disk.listdir(f"{root}/store") for sign in _SIGNS)
        raise CannotLookError(
            f"{root} holds no store (no commitlog, consumequeue or checkpoint in it)",
            hint=f"did you mean {root}/store?" if inner else None,
        )


def _read_marks(store: StoreDirectory) -> None:
    mark = DurableMark(store.disk, store.path("config"))
    store.mark_slots = mark.peek()
    path = store.path("checkpoint")
    if store.disk.exists(path):
        store.checkpoint_bytes = store.read(path, FILE_SIZE)
        store.checkpoint, store.checkpoint_problems = decode_checkpoint(store.checkpoint_bytes)
    if any(store.mark_slots):
        store.is_ours = mark.believes((store.checkpoint or Checkpoint()).encode())
        if store.is_ours:
            store.durable, store.sealed_from = mark.offset, mark.sealed_from
    newest = -1
    for turn in (0, 1):
        try:
            file = store.disk.open(store.path("config", f"queueTable.{turn}"), write=False)
        except FileNotFoundError:
            continue
        try:
            entry = read_table(file)
        finally:
            file.close()
        store.table_files.append(entry is not None)
        if entry is not None and entry[0] > newest:
            newest, store.table = entry


def common_size(files: list[SegmentFile]) -> int:
    """Return the length most files have, the larger of two equally frequent ones; 0 where there is none."""
    counted = Counter(file.size for file in files if file.size)
    return max(counted, key=lambda size: (counted[size], size)) if counted else 0


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one consume queue."""

    topic: str
    queue_id: int
    directory: str
    files: list[SegmentFile]


def find_queues(store: StoreDirectory) -> list[QueueFiles]:
    """Return every queue directory, by topic and id. Directories of other names are passed over."""
    found: list[QueueFiles] = []
    root = store.path("consumequeue")
    for topic in store.disk.listdir(root):
        if not store.disk.is_dir(f"{root}/{topic}"):
            continue
        names = {int_or(name, None, 0, INT32_MAX): name for name in store.disk.listdir(f"{root}/{topic}")}
        for queue_id, name in sorted((number, name) for number, name in names.items() if number is not None):
            directory = f"{root}/{topic}/{name}"
            found.append(QueueFiles(topic, queue_id, directory, store.list_files(directory)))
    return found


def queue_file_size(store: StoreDirectory, queues: list[QueueFiles]) -> int:
    """Return the size of a whole queue file."""
    if store.config is not None:
        return store.config.mapped_file_size_consume_queue
    whole = [file for queue in queues for file in queue.files if file.size % UNIT_SIZE == 0]
    # Where only one cut file is left, the default is a better guess than its own length.
    return common_size(whole) or StoreConfig().mapped_file_size_consume_queue


def read_error(path: str, error: OSError | StoreError) -> CannotLookError:
    """Return what the operating system said, as a refusal."""
    text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return CannotLookError(f"{path} cannot be read: {text}")
