"""Flushing of the consume queues: the tails in memory to files, in steps, and the queue table after each round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.errors import DiskFullError, StoreFencedError
from aerobee.runtime.seams import Disk, File
from aerobee.runtime.shortage import is_passing
from aerobee.store.diskrules import sync_file
from aerobee.store.filecache import FileCache
from aerobee.store.queuetable import QueueTable, QueueTableFiles

if TYPE_CHECKING:
    from aerobee.store.queues import ConsumeQueue, ConsumeQueues

# Units of a busy queue kept in memory after they were written, for the consumers right behind the producers.
_KEPT_UNITS: Final = 1024
# One table row costs about a microsecond to write: with many queues the table is saved in fewer cycles.
_ROWS_PER_CYCLE: Final = 2000
_QUEUES_AT_ONCE: Final = 32


class QueueFlusher:
    """Writes the changed queues of a ConsumeQueues."""

    def __init__(self, queues: ConsumeQueues, files: FileCache, disk: Disk, root: str) -> None:
        self._queues = queues
        self._files = files
        self.at_once = _QUEUES_AT_ONCE
        self.table_files = QueueTableFiles(disk, f"{root}/config")
        # Queues with units that no file holds yet.
        self.dirty: dict[ConsumeQueue, None] = {}
        # Queues that the last round wrote: their newest units are still in memory.
        self._warm: dict[ConsumeQueue, None] = {}
        # What the newest table on disk says: up to where the queues are durable, and the last record below that.
        self.position = -1
        self.durable_last: tuple[int, int, int] | None = None
        # The table that is written once all units of the round under way are synced.
        self._table: QueueTable | None = None
        self._todo: list[ConsumeQueue] = []
        self._table_file: File | None = None
        # Paths of files given to a sync that may not have ended yet.
        self._in_flight: dict[str, None] = {}
        self._cycles = 0
        # Why the last flush left something in memory.
        self._failure: Exception | None = None

    @property
    def is_behind(self) -> bool:
        """Tell whether a round of flushing is under way: the table can be written at its end only."""
        return bool(self._todo)

    def flush(self) -> list[File]:
        """Write the tails of some queues, so few that their files can be open together. Return the files to sync.

        `is_behind` tells whether to call again at once. Where the disk is full, the rest stays readable in memory
        until the next call.
        """
        self._files.release()
        if not self._todo:
            self._begin_round()
        files: list[File] = []
        if self._table_file is not None:
            files.append(self._table_file)
            self._table_file = None
        try:
            for _ in range(min(len(self._todo), self.at_once)):
                queue = self._todo[-1]
                files.extend(queue.write_tail())
                queue.keep(_KEPT_UNITS)
                self.dirty.pop(queue, None)
                self._todo.pop()
        except (DiskFullError, OSError) as error:
            self._failure = error
            self._todo.clear()
            self._table = None
        self._in_flight.update(dict.fromkeys(file.path for file in files))
        return files

    def _begin_round(self) -> None:
        """Note all queues as they are now. Later units may be written too, but the table does not claim them."""
        self._todo = list(self.dirty)
        self._table = self._queues.table() if self._is_table_due() else None
        for queue in self._warm:
            if queue not in self.dirty:
                queue.keep(0)
        self._warm = dict(self.dirty)

    def _is_table_due(self) -> bool:
        self._cycles += 1
        if self._cycles * _ROWS_PER_CYCLE < len(self._queues):
            return False
        self._cycles = 0
        return self._queues.last is not None

    def flushed(self) -> None:
        """Write the table: the units that it claims are on disk now."""
        self._in_flight.clear()
        if self._todo:
            return
        table, self._table = self._table, None
        if table is not None:
            self._files.sync_removals()
            try:
                self._table_file = self.table_files.write(table.encode())
            except (DiskFullError, OSError):
                return  # the older table still says what is true
            self._claim(table)

    def save(self) -> None:
        """Write and sync everything, blocking: at stop, before records are deleted, after a truncation."""
        self._todo.clear()
        # The sync of an earlier flush may still be under way: the table speaks of its units too.
        for path in self._in_flight:
            if (file := self._files.get(path)) is not None:
                sync_file(file)
        while True:
            for file in dict.fromkeys(self.flush()):
                sync_file(file)
            if not self._todo:
                break
        self._in_flight.clear()
        if self.dirty:
            failure = self._failure
            if isinstance(failure, OSError):
                raise OSError(failure.errno, failure.strerror, failure.filename)
            raise DiskFullError("the consume queues could not be written")
        self._files.release()
        self._files.sync_removals()
        table = self._queues.table()
        self._table = None
        try:
            self.table_files.save(table.encode())
        except OSError as error:
            if is_passing(error):
                raise
            raise StoreFencedError(f"the queue table cannot be written: {error}") from error
        self._claim(table)

    def _claim(self, table: QueueTable) -> None:
        """Note what the table says that is on disk now. While queues are built again it says nothing of units."""
        self.position = -1 if table.is_rebuilding else table.position
        self.durable_last = None if table.is_rebuilding else table.last

    def forget(self, gone: list[ConsumeQueue]) -> None:
        """Forget queues that are being deleted."""
        for queue in gone:
            self.dirty.pop(queue, None)
            self._warm.pop(queue, None)
        left = set(gone)
        self._todo = [queue for queue in self._todo if queue not in left]

    def close(self) -> None:
        self.table_files.close()
