"""All consume queues: the sink that builds them, who gives queue offsets away, and how they are found again.

Owns the table of queues in memory, their flushing in batches, and their recovery from the queue table, from
their own files, or from nothing but the log. RocketMQ: ConsumeQueueStore.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from aerobee.errors import DiskFullError, InvalidArgumentError, StoreFencedError
from aerobee.hot.log.layout import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, UNIT_SIZE
from aerobee.hot.log.record import Draft
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.runtime.seams import Disk, File
from aerobee.runtime.shortage import is_passing
from aerobee.store.consumequeue import FILL_SIZE, KEPT_UNITS, ConsumeQueue, FileCache
from aerobee.store.deletions import Deletions
from aerobee.store.queuetable import QueueTable, QueueTableFiles
from aerobee.store.recordhead import head_of
from aerobee.store.segment import LogSource, list_segments
from aerobee.store.segments import sync_file
from aerobee.store.setaside import SetAsides

# Stricter callers check the names of clients; this is what may become part of a path at all.
_PATH_SAFE: Final = re.compile(rb"[%|a-zA-Z0-9_+-]{1,255}")
_QUEUE_ID_MAX: Final = 0x7FFFFFFF
# Delivery marks have room for so much (docs/formats/delay.md), and no queue gets there.
QUEUE_OFFSET_MAX: Final = (1 << 56) - 1
# More missing records than this between two neighbours is a damaged number, not a gap.
_GAP_MAX: Final = 10_000_000
# One table row costs about a microsecond to write: with many queues the table is saved in fewer cycles.
_ROWS_PER_CYCLE: Final = 2000
_QUEUES_AT_ONCE: Final = 32
_RECENT: Final = 16


class ConsumeQueues:
    """The queues of every topic. One thread owns it."""

    name = "consumequeue"

    def __init__(
        self, disk: Disk, root: str, units_per_file: int, deletions: Deletions, asides: SetAsides | None = None
    ) -> None:
        self._disk = disk
        self._deletions = deletions
        # Who is told of records that no queue can take.
        self._asides = asides
        self._root = f"{root}/consumequeue"
        self._units_per_file = units_per_file
        self._files = FileCache(disk)
        self._at_once = _QUEUES_AT_ONCE
        self._table_files = QueueTableFiles(disk, f"{root}/config")
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        # Queues met last, by the low bits of their ids: finding them there costs a fifth of asking the table.
        self._recent: list[ConsumeQueue | None] = [None] * _RECENT
        self._dirty: dict[ConsumeQueue, None] = {}
        self._warm: dict[ConsumeQueue, None] = {}
        # Place (-1: none), size and store time of the last record dispatched.
        self._last_offset = -1
        self._last_size = 0
        self._last_timestamp = -1
        self._position = -1
        self.durable_last: tuple[int, int, int] | None = None  # of the last table written
        self._flushing: QueueTable | None = None
        self._todo: list[ConsumeQueue] = []
        self._table_file: File | None = None
        # Paths of files given to a sync that may not have ended yet.
        self._in_flight: dict[str, None] = {}
        self._cycles = 0
        self._chosen: QueueTable | None = None
        self._rebuilt: dict[ConsumeQueue, int] = {}
        # Of the log below this place, only queues that are being built again lack anything.
        self._restored_to = 0
        # Queues whose beginning only their own files told, which may lie after a crash; with what they said.
        self._guessed: dict[ConsumeQueue, int] = {}
        # No record expires before a table knows its queue, so queues that ours does not know have none expired.
        self._is_table_complete = False
        # Why the last flush left something in memory.
        self._failure: Exception | None = None
        self.problems: list[str] = []

    def bound(self, at_once: int, open_files: int) -> None:
        """Other bounds than the usual ones: queues written in one step, files open at a time."""
        self._at_once = at_once
        self._files.limit = open_files

    # ---- finding ----

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        queue = self._recent[queue_id % _RECENT]
        if queue is None or queue.queue_id != queue_id or queue.topic != topic:
            queue = self._queues.get((topic, queue_id))
            if queue is not None:
                self._recent[queue_id % _RECENT] = queue
        return queue

    def _remove(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        self._recent = [None] * _RECENT
        return self._queues.pop((topic, queue_id))

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def topics(self) -> set[bytes]:
        return {topic for topic, _ in self._queues}

    def _get_or_create(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        queue = self.find(topic, queue_id)
        if queue is None:
            if not _PATH_SAFE.fullmatch(topic):
                raise InvalidArgumentError(f"topic {topic!r} cannot be a directory name")
            if not 0 <= queue_id <= _QUEUE_ID_MAX:
                raise InvalidArgumentError(f"queue id {queue_id} of topic {topic!r} is out of range")
            queue = ConsumeQueue(self._files, self._root, topic, queue_id, self._units_per_file)
            self._queues[(topic, queue_id)] = queue
        return queue

    @property
    def last(self) -> tuple[int, int, int] | None:
        """Place, size and store time (-1: not known) of the last record dispatched."""
        if self._last_offset < 0:
            return None
        return self._last_offset, self._last_size, self._last_timestamp

    def _set_last(self, last: tuple[int, int, int] | None) -> None:
        self._last_offset, self._last_size, self._last_timestamp = (-1, 0, -1) if last is None else last

    @property
    def chosen_last(self) -> tuple[int, int, int] | None:
        """The same, of the table that recovery starts from."""
        return None if self._chosen is None else self._chosen.last

    # ---- numbering ----

    def assign(self, drafts: list[Draft]) -> None:
        """Give each draft the next number of its queue; all of them or, on an error, none."""
        if len(drafts) == 1:
            _number(drafts[0], self._numbering(drafts[0]))
            return
        queues = [self._numbering(draft) for draft in drafts]
        for i in range(len(drafts)):
            _number(drafts[i], queues[i])

    def _numbering(self, draft: Draft) -> ConsumeQueue | None:
        """The queue that gives a draft its number; None for one that gets no unit."""
        return self._get_or_create(draft.topic, draft.queue_id) if _is_queued(draft) else None

    def unassign(self, drafts: list[Draft]) -> None:
        """Take back what `assign` gave: the write failed."""
        for draft in reversed(drafts):
            queue = self.find(draft.topic, draft.queue_id)
            if queue is not None and _is_queued(draft):
                queue.assign_next -= 1
                if queue.assign_next == 0:
                    self._remove(draft.topic, draft.queue_id)

    def count_in(self, drafts: Sequence[Draft]) -> None:
        """Records that are in the log but not dispatched yet: their numbers are taken."""
        for draft in drafts:
            if _is_queued(draft) and _can_be_queued(draft):
                queue = self._get_or_create(draft.topic, draft.queue_id)
                queue.assign_next = max(queue.assign_next, draft.queue_offset + 1)

    # ---- sink ----

    def dispatch(self, drafts: Sequence[Draft]) -> None:
        taken: list[Draft] = drafts if isinstance(drafts, list) else list(drafts)
        if not taken:
            return
        if taken[0].physical_offset < self._restored_to:
            self._dispatch_lacking(taken)
        elif len(taken) == 1:
            queue = self._taking(taken[0])
            if queue is not None and queue.put_all(taken):
                self._dirty[queue] = None
        else:
            self._dispatch_runs(taken)
        self.passed(taken[-1])

    def passed(self, last: Draft) -> None:
        """Everything up to this record was dispatched, or is not for any queue."""
        if last.physical_offset > self._last_offset:
            self._last_offset = last.physical_offset
            self._last_size = last.size
            self._last_timestamp = last.store_timestamp

    def _dispatch_lacking(self, drafts: list[Draft]) -> None:
        """Records that only queues being built again lack. The table knows every queue of the log below its place: a
        record there of any other belongs to a topic that was deleted."""
        below = len(drafts)
        while drafts[below - 1].physical_offset >= self._restored_to:
            below -= 1
        self._dispatch_runs(drafts[:below], of_rebuilt=True)
        self._dispatch_runs(drafts[below:])

    def _dispatch_runs(self, drafts: list[Draft], of_rebuilt: bool = False) -> None:
        """Units of one queue are made together: a tick brings many records of few queues."""
        runs: dict[ConsumeQueue, list[Draft]] = {}
        for draft in drafts:
            queue = self._taking(draft)
            if queue is not None:
                run = runs.get(queue)
                if run is None:
                    runs[queue] = [draft]
                elif draft.queue_offset - run[-1].queue_offset > _GAP_MAX:
                    self._set_aside(draft, f"its queue offset is far above {run[-1].queue_offset}, the one before it")
                else:
                    run.append(draft)
        for queue, run in runs.items():
            if of_rebuilt and queue not in self._rebuilt:
                if not queue.next_offset:
                    self._remove(queue.topic, queue.queue_id)
            elif queue.put_all(run):
                self._dirty[queue] = None

    def _taking(self, draft: Draft) -> ConsumeQueue | None:
        """The queue that is still to take a record's unit, if any is."""
        if not _is_queued(draft):
            return None
        queue = self.find(draft.topic, draft.queue_id)
        if queue is None or draft.queue_offset < 0 or draft.queue_offset - queue.next_offset > _GAP_MAX:
            queue = self._checked(draft, queue)
            if queue is None:
                return None
        if self._guessed and queue in self._guessed:
            if queue.put(draft.queue_offset, draft.physical_offset, draft.size, draft.tags_code):
                self._dirty[queue] = None
            else:
                self._put_guessed(queue, draft)
            return None
        return queue

    def _put_guessed(self, queue: ConsumeQueue, draft: Draft) -> None:
        """The log has a record where the queue's files said that all had expired: the log is right."""
        if queue.next_offset == self._guessed[queue]:
            queue.wipe_from(0)
            queue.start_at(draft.queue_offset)
            queue.assign_next = draft.queue_offset
            queue.put(draft.queue_offset, draft.physical_offset, draft.size, draft.tags_code)
            self._dirty[queue] = None
            del self._guessed[queue]

    def _checked(self, draft: Draft, queue: ConsumeQueue | None) -> ConsumeQueue | None:
        """The queue of a record that is unusual; None where no queue can take it, which is then set aside."""
        if not 0 <= draft.queue_offset <= QUEUE_OFFSET_MAX:
            reason = f"queue offset {draft.queue_offset} is out of range"
        elif queue is not None and not queue.is_empty:
            reason = f"its queue offset is far above {queue.next_offset}, the next of its queue"
        else:
            try:
                return self._get_or_create(draft.topic, draft.queue_id)
            except InvalidArgumentError as error:
                reason = error.message
        self._set_aside(draft, reason)
        return None

    def _set_aside(self, draft: Draft, reason: str) -> None:
        if self._asides is not None:
            self._asides.add(self.name, reason, draft)

    def position(self) -> int:
        return self._position

    def flush(self) -> list[File]:
        """Write the tails of some queues, so few that their files can be open together; `is_behind` says
        whether to come again at once. A full disk leaves the rest in memory, readable, until the next time."""
        self._files.release()
        if not self._todo:
            self._begin_round()
        files: list[File] = []
        if self._table_file is not None:
            files.append(self._table_file)
            self._table_file = None
        try:
            for _ in range(min(len(self._todo), self._at_once)):
                queue = self._todo[-1]
                files.extend(queue.write_tail())
                queue.keep(KEPT_UNITS)
                self._dirty.pop(queue, None)
                self._todo.pop()
        except (DiskFullError, OSError) as error:
            self._failure = error
            self._todo.clear()
            self._flushing = None
        self._in_flight.update(dict.fromkeys(file.path for file in files))
        return files

    @property
    def dirty_count(self) -> int:
        """How many files a round would have to sync, about."""
        return len(self._dirty)

    @property
    def is_behind(self) -> bool:
        """Whether a round of flushing is under way: the table can be written at its end only."""
        return bool(self._todo)

    def _begin_round(self) -> None:
        """All queues as they are now; what comes meanwhile may be written too, but is not claimed."""
        self._todo = list(self._dirty)
        self._flushing = self._snapshot() if self._is_table_due() else None
        for queue in self._warm:
            if queue not in self._dirty:
                queue.keep(0)
        self._warm = dict(self._dirty)

    def _is_table_due(self) -> bool:
        self._cycles += 1
        if self._cycles * _ROWS_PER_CYCLE < len(self._queues):
            return False
        self._cycles = 0
        return self._last_offset >= 0

    def _snapshot(self) -> QueueTable:
        return QueueTable(
            position=0 if self._last_offset < 0 else self._last_offset + self._last_size,
            last=self.last,
            queues={
                (topic.decode("ascii"), queue_id): (queue.floor, queue.min_offset, queue.next_offset)
                for (topic, queue_id), queue in self._queues.items()
                if queue.next_offset
            },
        )

    def flushed(self) -> None:
        """The units are on disk: now the table may say so."""
        self._in_flight.clear()
        if self._todo:
            return
        table, self._flushing = self._flushing, None
        if table is not None:
            self._files.sync_removals()
            try:
                self._table_file = self._table_files.write(table.encode())
            except (DiskFullError, OSError):
                return  # the older table still says what is true
            self._position = table.position
            self.durable_last = table.last

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
        if self._dirty:
            failure = self._failure
            if isinstance(failure, OSError):
                raise OSError(failure.errno, failure.strerror, failure.filename)
            raise DiskFullError("the consume queues could not be written")
        self._files.release()
        self._files.sync_removals()
        table = self._snapshot()
        self._flushing = None
        try:
            self._table_files.save(table.encode())
        except OSError as error:
            if is_passing(error):
                raise
            raise StoreFencedError(f"the queue table cannot be written: {error}") from error
        self._position = table.position
        self.durable_last = table.last

    def truncate(self, physical_offset: int) -> None:
        last: tuple[int, int, int] | None = None
        for queue in self._queues.values():
            newest = queue.unit(queue.next_offset - 1)
            if newest is None or newest[0] + newest[1] > physical_offset or newest[1] == FILL_SIZE:
                for file in queue.cut(queue.first_at_or_above(physical_offset)):
                    sync_file(file)
            newest = queue.unit(queue.next_offset - 1)
            if newest is not None and newest[1] != FILL_SIZE and (last is None or newest[0] > last[0]):
                last = (newest[0], newest[1], -1)
            queue.assign_next = queue.next_offset
        if self._last_offset >= physical_offset:
            self._set_last(last)
        self.save()

    def drop_below(self, log_start: int) -> int:
        """The log lost its beginning: correct the bounds, delete files that point at nothing any more."""
        dropped = 0
        for queue in self._queues.values():
            dropped += queue.drop_files_below(queue.min_for(log_start))
        return dropped

    def delete_topics(self, topics: Collection[bytes]) -> None:
        """Forget topics and their numbering. That they were deleted is noted already."""
        gone = [queue for queue in self._queues.values() if queue.topic in topics]
        for queue in gone:
            self._remove(queue.topic, queue.queue_id)
            self._dirty.pop(queue, None)
            self._warm.pop(queue, None)
        self._todo = [queue for queue in self._todo if queue.topic not in topics]
        for queue in gone:
            for entry in list_segments(self._disk, queue.directory):
                self._files.remove(entry.path)
            self._remove_empty(queue.directory)
            self._remove_empty(queue.directory.rpartition("/")[0])
        # For good: a power cut must not bring old files back where a new topic of that name has written its own.
        self._files.sync_removals()

    def _remove_empty(self, directory: str) -> None:
        if self._disk.is_dir(directory) and not self._disk.listdir(directory):
            self._files.remove_dir(directory)

    def close(self) -> None:
        self._files.close()
        self._table_files.close()

    # ---- recovery ----

    def load(self, log: LogSource, log_start: int, is_ours: bool = False) -> int:
        """Choose the newest table that the log agrees with; the place it reaches, -1 where there is none.

        `is_ours`: nobody but us had the store since the tables were written.
        """
        self._disk.make_dirs(self._root)
        self._table_files.open()
        self._is_table_complete = is_ours and bool(self._table_files.tables)
        for table in self._table_files.tables:
            if table.position <= log_start or table.agrees_with(log):
                self._chosen = table
                return max(table.position, log_start)
        return -1

    def recover(self, log_start: int, log_end: int) -> None:
        """Restore what the table says, check it against the files, and drop what only the files say.

        File names are not synced one by one (many queues would stall the flush): should a power cut take one,
        the queue is built again from the log, as after a deletion.
        """
        table = self._chosen
        if table is not None and table.position > log_end:
            table = None
        self._position = -1
        if table is not None:
            self._position = table.position
            self._set_last(table.last)
            for (name, queue_id), bounds in table.rows(self._deletions):
                self._restore(name.encode("ascii"), queue_id, bounds, log_start)
        for topic, queue_id in self._found_on_disk():
            if (topic, queue_id) not in self._queues:
                self._restore_from_files(topic, queue_id, log_start)
        if table is None:
            self._keep_expired_numbers()
        self._begin_rebuilding()

    def _begin_rebuilding(self) -> None:
        """Queues that must be built again need the log from its beginning; the others go on where they are."""
        if self._rebuilt and self._position >= 0:
            self._restored_to = self._position
            self._position = -1

    def _keep_expired_numbers(self) -> None:
        """A table that speaks of a tail the log has lost is still right about what had expired before."""
        for table in self._table_files.tables[:1]:
            for (name, queue_id), (_, min_offset, _) in table.rows(self._deletions):
                queue = self._get_or_create(name.encode("ascii"), queue_id)
                if queue.next_offset < min_offset:
                    queue.wipe_from(0)
                    queue.start_at(min_offset)
                elif queue.next_offset == 0:
                    self._remove(name.encode("ascii"), queue_id)

    def _restore(self, topic: bytes, queue_id: int, bounds: tuple[int, int, int], log_start: int) -> None:
        queue = self._get_or_create(topic, queue_id)
        floor, min_offset, next_offset = bounds
        queue.start_at(floor)
        queue.min_offset = min_offset
        queue.next_offset = queue.written = queue.tail_start = queue.assign_next = next_offset
        is_rebuilding = self._chosen is not None and self._chosen.is_rebuilding
        problem = "a rebuilding was cut short" if is_rebuilding else queue.problem(self._deletions.position_of(topic))
        if problem is not None:
            self.problems.append(f"{queue.directory}: {problem}: built again from the log")
            queue.wipe_from(0)
            queue.start_at(0)
            queue.min_offset = 0
            queue.assign_next = next_offset
            self._rebuilt[queue] = next_offset
        else:
            queue.wipe_from(next_offset)

    def check_units(self, log: LogSource, log_start: int) -> None:
        """Compare each restored queue's newest unit with its record: a rolled-back file shows itself here."""
        for queue in self._queues.values():
            unit = queue.unit(queue.next_offset - 1)
            if unit is None or unit[1] == FILL_SIZE or unit[0] < log_start or queue in self._rebuilt:
                continue
            head = head_of(log.read(unit[0], 40))
            if head is None or not head.is_at(unit[0], unit[1], queue.queue_id, queue.next_offset - 1):
                self.problems.append(f"{queue.directory}: newest unit is not its record's: built again")
                wanted = queue.next_offset
                queue.wipe_from(0)
                queue.start_at(0)
                queue.assign_next = wanted
                self._rebuilt[queue] = wanted
        self._begin_rebuilding()
        if self._rebuilt and self._chosen is not None and not self._chosen.is_rebuilding:
            # From here on the files hold less than the tables say: a power cut must not find them believed.
            self._table_files.save(replace(self._chosen, is_rebuilding=True).encode())

    def _restore_from_files(self, topic: bytes, queue_id: int, log_start: int) -> None:
        """A queue the table does not know: its files tell the numbering of expired records, the log the
        rest."""
        queue = self._get_or_create(topic, queue_id)
        entries = list_segments(self._disk, queue.directory)
        starts = [entry.start for entry in entries]
        size = self._units_per_file * UNIT_SIZE
        is_whole = all(entry.size == size and entry.start % size == 0 for entry in entries)
        is_deleted = self._deletions.position_of(topic) > 0
        if entries and is_whole and not self._is_table_complete and not is_deleted:
            queue.start_at(entries[0].start // UNIT_SIZE)
            queue.next_offset = queue.tail_start = queue.written = (entries[-1].start + size) // UNIT_SIZE
            low = queue.expired_end(log_start)
            queue.min_offset = queue.next_offset = queue.tail_start = queue.written = queue.assign_next = low
            queue.wipe_from(low, starts)
            self._guessed[queue] = low
        else:
            queue.wipe_from(0, starts)
        if queue.is_empty:
            self._guessed.pop(queue, None)
            self._remove(topic, queue_id)

    def _found_on_disk(self) -> Iterator[tuple[bytes, int]]:
        for name in self._disk.listdir(self._root):
            topic = name.encode("utf-8", "replace")
            if not _PATH_SAFE.fullmatch(topic):
                continue
            for number in self._disk.listdir(f"{self._root}/{name}"):
                queue_id = int_or(number, None, 0, INT32_MAX)
                if queue_id is not None and str(queue_id) == number:
                    yield topic, queue_id

    def keep_numbering(self, topic: bytes, queue_id: int, wanted: int) -> None:
        """Numbers below `wanted` were given away, whatever the log still shows of them."""
        queue = self._get_or_create(topic, queue_id)
        if queue.is_empty:
            queue.start_at(wanted)
        elif queue.next_offset < wanted <= queue.next_offset + _GAP_MAX:
            queue.fill_to(wanted)
            self._dirty[queue] = None

    def keep_numbers(self, drafts: Sequence[Draft]) -> None:
        """Of damaged records whose numbers are known all the same."""
        for draft in drafts:
            if _is_queued(draft) and _can_be_queued(draft):
                self.keep_numbering(draft.topic, draft.queue_id, draft.queue_offset + 1)

    def finish_recovery(self) -> None:
        """Everything in the log was dispatched: queues built again get back the numbers their records had."""
        for queue, wanted in self._rebuilt.items():
            if queue.is_empty:
                queue.start_at(wanted)
            elif queue.next_offset < wanted:
                queue.fill_to(wanted)
                self._dirty[queue] = None
        self._rebuilt.clear()
        self._guessed.clear()
        self._restored_to = 0


def _number(draft: Draft, queue: ConsumeQueue | None) -> None:
    if queue is None:
        draft.queue_offset = 0
    else:
        draft.queue_offset = queue.assign_next
        queue.assign_next += 1


def _is_queued(draft: Draft) -> bool:
    """RocketMQ: prepared and rolled-back messages get no unit (CommitLogDispatcherBuildConsumeQueue)."""
    return draft.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def _can_be_queued(draft: Draft) -> bool:
    """Whether a record's numbers and its topic are such as a queue can have."""
    in_range = draft.queue_id >= 0 and 0 <= draft.queue_offset <= QUEUE_OFFSET_MAX
    return in_range and _PATH_SAFE.fullmatch(draft.topic) is not None
