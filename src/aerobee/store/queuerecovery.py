"""Recovery of the consume queues: from the queue table, from their own files, or from nothing but the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aerobee.hot.log.layout import RECORD_HEAD_SIZE, UNIT_FILL_SIZE, UNIT_SIZE
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.runtime.seams import Disk, File
from aerobee.store.deletions import Deletions
from aerobee.store.filecache import PATH_SAFE
from aerobee.store.queuetable import QueueTable, QueueTableFiles
from aerobee.store.recordhead import head_of
from aerobee.store.segment import LogSource, is_zero, list_segments, segment_name, segment_starts

if TYPE_CHECKING:
    from aerobee.store.queues import ConsumeQueue, ConsumeQueues

# The topics of Apache's light message queues, whose units come from records of other topics (INNER_MULTI_DISPATCH).
_LIGHT_PREFIX: Final = b"%LMQ%"
_TRAIL_SIZE: Final = 64 * 1024


class QueueRecovery:
    """Restores the queues of a ConsumeQueues when a store is opened.

    The order of calls: `load`, `recover`, `check_units`, then dispatch from `ConsumeQueues.position` on, then `finish`.
    """

    def __init__(self, queues: ConsumeQueues, disk: Disk, directory: str, units_per_file: int) -> None:
        self._queues = queues
        self._disk = disk
        self._directory = directory
        self._units_per_file = units_per_file
        self._chosen: QueueTable | None = None
        # No record expires before a table knows its queue. So a queue that our table does not know has none expired.
        self._is_table_complete = False
        self.problems: list[str] = []

    @property
    def _tables(self) -> QueueTableFiles:
        return self._queues.flusher.table_files

    @property
    def _deletions(self) -> Deletions:
        return self._queues.deletions

    @property
    def chosen_last(self) -> tuple[int, int, int] | None:
        """Return place, size and store time of the last record that the chosen table knows."""
        return None if self._chosen is None else self._chosen.last

    def load(self, log: LogSource, log_start: int, is_ours: bool = False) -> int:
        """Choose the newest table that the log agrees with. Return the place it reaches, -1 where there is none.

        `is_ours` says that nobody but us had the store since the tables were written.
        """
        self._disk.make_dirs(self._directory)
        self._tables.open()
        self._is_table_complete = is_ours and bool(self._tables.tables)
        for table in self._tables.tables:
            if table.position <= log_start or table.agrees_with(log):
                self._chosen = table
                return max(table.position, log_start)
        return -1

    def recover(self, log_start: int, log_end: int) -> None:
        """Restore what the table says, check it against the files, and drop what only the files say.

        File names are not synced one by one, because many queues would stall the flush. A queue that lost a file to a
        power cut is built again from the log, as after a deletion.
        """
        queues = self._queues
        table = self._chosen
        if table is not None and table.position > log_end:
            table = None
        queues.flusher.position = -1
        if table is not None:
            queues.flusher.position = table.position
            queues.set_last(table.last)
            for (name, queue_id), bounds in table.rows(self._deletions):
                self._restore(name.encode("ascii"), queue_id, bounds)
        for topic, queue_id in self._found_on_disk():
            if queues.find(topic, queue_id) is None:
                self._restore_from_files(topic, queue_id, log_start)
        if table is None:
            self._keep_expired_numbers()
        self._begin_rebuilding()

    def _begin_rebuilding(self) -> None:
        """Ask for the log from its beginning where queues must be built again. The others go on where they are."""
        queues = self._queues
        if queues.rebuilt and queues.flusher.position >= 0:
            queues.restored_to = queues.flusher.position
            queues.flusher.position = -1

    def _keep_expired_numbers(self) -> None:
        """Keep the numbers of expired records.

        A table that speaks of a tail which the log has lost is still right about what had expired before.
        """
        for table in self._tables.tables[:1]:
            for (name, queue_id), (_, min_offset, _) in table.rows(self._deletions):
                queue = self._queues.get_or_create(name.encode("ascii"), queue_id)
                if queue.next_offset < min_offset:
                    wipe_from(queue, 0)
                    queue.start_at(min_offset)
                elif queue.next_offset == 0:
                    self._queues.remove(queue)

    def _restore(self, topic: bytes, queue_id: int, bounds: tuple[int, int, int]) -> None:
        queue = self._queues.get_or_create(topic, queue_id)
        floor, min_offset, next_offset = bounds
        queue.start_at(floor)
        queue.min_offset = min_offset
        queue.next_offset = queue.written = queue.tail_start = queue.assign_next = next_offset
        is_rebuilding = self._chosen is not None and self._chosen.is_rebuilding
        problem = "a rebuilding was cut short" if is_rebuilding else _problem(queue, self._deletions.position_of(topic))
        if problem is not None:
            self.problems.append(f"{queue.directory}: {problem}: built again from the log")
            self._rebuild(queue, next_offset)
        else:
            wipe_from(queue, next_offset)

    def _rebuild(self, queue: ConsumeQueue, wanted: int) -> None:
        """Have a queue built again from the log. Afterwards it goes on at `wanted`, as before."""
        wipe_from(queue, 0)
        queue.start_at(0)
        queue.assign_next = wanted
        self._queues.rebuilt[queue] = wanted

    def check_units(self, log: LogSource, log_start: int) -> None:
        """Compare each restored queue's newest unit with its record. This finds a file that was rolled back."""
        queues = self._queues
        for queue in queues:
            unit = queue.unit(queue.next_offset - 1)
            if unit is None or unit[1] == UNIT_FILL_SIZE or unit[0] < log_start or queue in queues.rebuilt:
                continue
            head = head_of(log.read(unit[0], RECORD_HEAD_SIZE))
            if head is None or not head.is_at(unit[0], unit[1], queue.queue_id, queue.next_offset - 1):
                self.problems.append(f"{queue.directory}: newest unit is not its record's: built again")
                self._rebuild(queue, queue.next_offset)
        self._begin_rebuilding()
        if queues.rebuilt and self._chosen is not None and not self._chosen.is_rebuilding:
            # From here on the files hold less than the tables say: after a power cut nobody may believe the tables.
            self._tables.save(replace(self._chosen, is_rebuilding=True).encode())

    def _restore_from_files(self, topic: bytes, queue_id: int, log_start: int) -> None:
        """Restore a queue that the table does not know.

        Its files tell the numbers of expired records. The log tells the rest.
        """
        queue = self._queues.get_or_create(topic, queue_id)
        entries = list_segments(self._disk, queue.directory)
        if entries and topic.startswith(_LIGHT_PREFIX):
            self.problems.append(f"{queue.directory}: light message queues (LMQ) are not supported, so it is emptied")
        starts = [entry.start for entry in entries]
        size = self._units_per_file * UNIT_SIZE
        is_whole = all(entry.size == size and entry.start % size == 0 for entry in entries)
        is_deleted = self._deletions.position_of(topic) > 0
        is_guessed = bool(entries) and is_whole and not self._is_table_complete and not is_deleted
        if is_guessed:
            queue.start_at(entries[0].start // UNIT_SIZE)
            queue.next_offset = queue.tail_start = queue.written = (entries[-1].start + size) // UNIT_SIZE
            low = _expired_end(queue, log_start)
            queue.min_offset = queue.next_offset = queue.tail_start = queue.written = queue.assign_next = low
            wipe_from(queue, low, starts)
        else:
            wipe_from(queue, 0, starts)
        if queue.is_empty:
            self._queues.remove(queue)
        elif is_guessed:
            self._queues.guessed[queue] = queue.next_offset

    def _found_on_disk(self) -> Iterator[tuple[bytes, int]]:
        for name in self._disk.listdir(self._directory):
            topic = name.encode("utf-8", "replace")
            if not PATH_SAFE.fullmatch(topic):
                continue
            for number in self._disk.listdir(f"{self._directory}/{name}"):
                queue_id = int_or(number, None, 0, INT32_MAX)
                if queue_id is not None and str(queue_id) == number:
                    yield topic, queue_id

    def finish(self) -> None:
        """Give queues that were built again the numbers they had. Everything in the log was dispatched."""
        queues = self._queues
        for queue, wanted in queues.rebuilt.items():
            if queue.is_empty:
                queue.start_at(wanted)
            elif queue.next_offset < wanted:
                queue.fill_to(wanted)
                queues.flusher.dirty[queue] = None
        queues.rebuilt.clear()
        queues.guessed.clear()
        queues.restored_to = 0


def _problem(queue: ConsumeQueue, deleted: int) -> str | None:
    """Return what is wrong with a queue's files, which should hold units up to `next_offset`.

    A topic of the queue's name was deleted when the log ended at `deleted`.
    """
    first = queue.min_offset
    while first < queue.next_offset:
        base = first - first % queue.units_per_file
        last = min(base + queue.units_per_file, queue.next_offset) - 1
        if queue.file_size(base) != queue.units_per_file * UNIT_SIZE:
            return "a file is missing or has another length"
        for offset in (first, last):
            unit = queue.unit(offset)
            if unit is None or unit[1] <= 0:
                return f"unit {offset} is not there"
            if unit[0] < deleted and unit[1] != UNIT_FILL_SIZE:
                return f"unit {offset} is of a topic of that name that was deleted"
        first = base + queue.units_per_file
    return None


def _expired_end(queue: ConsumeQueue, log_start: int) -> int:
    """Return the offset above the last unit that points below the log, found by halving: units are in order."""
    low, high = queue.floor, queue.next_offset
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is not None and unit[1] > 0 and 0 <= unit[0] < log_start:
            low = middle + 1
        else:
            high = middle
    return low


def wipe_from(queue: ConsumeQueue, offset: int, starts: list[int] | None = None) -> list[File]:
    """Zero what a queue's files hold from `offset` on: another reader (Apache) would take it for units.

    `starts` says where the files begin, if the caller knows. Otherwise a start would list every directory twice. Return
    the files to sync.
    """
    touched: list[File] = []
    in_file = offset % queue.units_per_file
    base = offset - in_file
    if starts is None:
        starts = segment_starts(queue.files.disk, queue.directory)
    for start in starts:
        if start > base * UNIT_SIZE or (start == base * UNIT_SIZE and not in_file):
            queue.files.remove(f"{queue.directory}/{segment_name(start)}")
    file = queue.files.get(f"{queue.directory}/{segment_name(base * UNIT_SIZE)}") if in_file else None
    if file is not None:
        at = in_file * UNIT_SIZE
        while data := file.read(at, _TRAIL_SIZE):
            if is_zero(data):
                break
            file.write(at, bytes(len(data)))
            at += len(data)
        touched.append(file)
    return touched
