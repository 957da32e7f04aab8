"""The consume queues: where in the log the messages of each queue are, and who gives queue offsets away.

This module owns the bounds and units of each queue, the table of queues in memory, and the sink that fills them. A
queue's newest units are in memory until the flusher writes them (`queueflush.py`); its files hold 300,000 units of 20
bytes by default, are sparse, and are named by byte offset. A unit says where a record is; the record is the truth.
RocketMQ: ConsumeQueue, ConsumeQueueStore.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.layout import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIT_FILL_SIZE,
    UNIT_FORMAT,
    UNIT_SIZE,
)
from aerobee.hot.log.record import Draft
from aerobee.hot.log.units import encode_units, follow_on
from aerobee.runtime.seams import Disk, File
from aerobee.store.deletions import Deletions
from aerobee.store.diskrules import sync_file
from aerobee.store.dispatch import Sink
from aerobee.store.filecache import PATH_SAFE, FileCache
from aerobee.store.queueflush import QueueFlusher
from aerobee.store.queuerecovery import QueueRecovery, wipe_from
from aerobee.store.queuetable import QueueTable
from aerobee.store.segment import list_segments, segment_name
from aerobee.store.setaside import SetAsides

UNIT: Final = struct.Struct(UNIT_FORMAT)
# The unit of a place that no record stands for.
FILL: Final = UNIT.pack(0, UNIT_FILL_SIZE, 0)
_QUEUE_ID_MAX: Final = 0x7FFFFFFF
# Delivery marks have no room for more (docs/formats/delay.md), and no queue gets there.
QUEUE_OFFSET_MAX: Final = (1 << 56) - 1
# More missing records than this between two neighbours is a damaged number, not a gap.
_GAP_MAX: Final = 10_000_000
_RECENT: Final = 16


class ConsumeQueue:
    """The bounds and the units of one queue. Offsets count units from the queue's first message ever."""

    __slots__ = (
        "assign_next",
        "directory",
        "files",
        "first",
        "floor",
        "hidden",
        "min_known_for",
        "min_offset",
        "next_offset",
        "queue_id",
        "read_base",
        "read_path",
        "tail",
        "tail_start",
        "topic",
        "units_per_file",
        "written",
    )

    def __init__(self, files: FileCache, root: str, topic: bytes, queue_id: int, units_per_file: int) -> None:
        self.files = files
        self.topic = topic
        self.queue_id = queue_id
        self.directory = f"{root}/{topic.decode('ascii')}/{queue_id}"
        self.units_per_file = units_per_file
        # The next message dispatched gets `next_offset`, the next one sent gets `assign_next`, which is never less.
        self.min_offset = 0
        self.next_offset = 0
        self.assign_next = 0
        # Units below `floor` were never here (the queue began above them); none is in a file below it.
        self.floor = 0
        # Units [tail_start, next_offset) are in memory, [floor, written) are in files.
        self.tail = bytearray()
        self.tail_start = 0
        self.written = 0
        # Units below `hidden` are not served any more, though they may be here: the topic's own retention says so.
        self.hidden = 0
        # The first offset that is served.
        self.first = 0
        # The log start for which `min_offset` and `first` are right.
        self.min_known_for = -1
        # The first unit and the path of the file that was read last.
        self.read_base = -1
        self.read_path = ""

    def start_at(self, offset: int) -> None:
        """Begin (again) without units: the first one will be `offset`."""
        self.min_offset = self.next_offset = self.written = self.tail_start = self.floor = offset
        self.assign_next = max(self.assign_next, offset)
        self.tail.clear()
        self.min_known_for = -1

    @property
    def is_empty(self) -> bool:
        return self.next_offset == self.floor

    def put(self, offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Take a unit. Return False where the queue has it already."""
        if offset != self.next_offset:
            if offset < self.next_offset:
                return False
            if self.is_empty:
                self.start_at(offset)
            else:
                # Records between were damaged: their places stay empty, nobody else gets their numbers.
                self.tail += FILL * (offset - self.next_offset)
        self.tail += UNIT.pack(physical_offset, size, tags_code)
        self.next_offset = offset + 1
        self.assign_next = max(self.assign_next, offset + 1)
        return True

    def put_all(self, drafts: list[Draft]) -> bool:
        """Take the units of records of this queue, in log order. Return False where the queue has all of them."""
        if not follow_on(drafts, self.next_offset):
            taken = [self.put(d.queue_offset, d.physical_offset, d.size, d.tags_code) for d in drafts]
            return any(taken)
        self.tail += encode_units(drafts)
        self.next_offset += len(drafts)
        self.assign_next = max(self.assign_next, self.next_offset)
        return True

    def fill_to(self, offset: int) -> None:
        """Fill the places up to `offset`, whose records are lost for good: nobody else gets their numbers."""
        self.tail += FILL * (offset - self.next_offset)
        self.next_offset = offset
        self.assign_next = max(self.assign_next, offset)

    # ---- reading ----

    def units(self, offset: int, count: int) -> bytes:
        """Return at most `count` units from `offset` on, as far as one file or memory holds them."""
        count = min(count, self.next_offset - offset)
        if count <= 0 or offset < self.floor:
            return b""
        if offset >= self.tail_start:
            begin = (offset - self.tail_start) * UNIT_SIZE
            return bytes(self.tail[begin : begin + count * UNIT_SIZE])
        in_file = offset % self.units_per_file
        wanted = min(min(count, self.units_per_file - in_file), self.tail_start - offset)
        if offset - in_file != self.read_base:
            self.read_base = offset - in_file
            self.read_path = f"{self.directory}/{self._name(offset)}"
        file = self.files.get(self.read_path)
        if file is None:
            return b""
        data = file.read(in_file * UNIT_SIZE, wanted * UNIT_SIZE)
        if len(data) == wanted * UNIT_SIZE and wanted < count and offset + wanted == self.tail_start:
            data += self.tail[: (count - wanted) * UNIT_SIZE]
        return data[: len(data) - len(data) % UNIT_SIZE]

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags code; None where there is no such unit."""
        data = self.units(offset, 1)
        return UNIT.unpack(data) if data else None

    def first_at_or_above(self, physical_offset: int) -> int:
        """Return the first offset whose record lies at or above a place in the log (or the next offset)."""
        low, high = self.floor, self.next_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            # Places without a record have no order of their own: the next place with one decides.
            probe = middle + 1
            while unit is not None and unit[1] == UNIT_FILL_SIZE and probe < high:
                unit = self.unit(probe)
                probe += 1
            if unit is not None and (unit[1] == UNIT_FILL_SIZE or unit[0] >= physical_offset):
                high = middle
            else:
                low = probe
        before = self.unit(low - 2) if low - 2 >= self.floor else None
        if before is not None and before[1] != UNIT_FILL_SIZE and before[0] >= physical_offset:
            # A damaged unit has misled the search: it would hide every sound one before it.
            return next(at for at in range(self.floor, low) if (self.unit(at) or (-1,))[0] >= physical_offset)
        return low

    def min_for(self, log_start: int) -> int:
        """Return the first offset that is served: the log has its record. RocketMQ: ConsumeQueue.correctMinOffset."""
        if self.min_known_for != log_start:
            self.min_offset = max(self.min_offset, self.floor, self.first_at_or_above(log_start))
            self.first = max(self.min_offset, min(self.hidden, self.next_offset))
            self.min_known_for = log_start
        return self.first

    def kept_for(self, log_start: int) -> int:
        """Return the first offset whose record the log still has, served or not."""
        self.min_for(log_start)
        return self.min_offset

    def hide_below(self, offset: int) -> None:
        """Serve nothing below an offset, and everything from there on that the log has."""
        self.hidden = offset
        self.min_known_for = -1

    # ---- files ----

    def _name(self, offset: int) -> str:
        return segment_name((offset - offset % self.units_per_file) * UNIT_SIZE)

    def file_size(self, offset: int) -> int:
        """Return the size of the file that has a unit's place, -1 where there is none."""
        file = self.files.get(f"{self.directory}/{self._name(offset)}")
        return -1 if file is None else file.size()

    def write_tail(self) -> list[File]:
        """Write the units that no file holds yet. Return the files to sync. After an error the rest is in memory."""
        touched: list[File] = []
        while self.written < self.next_offset:
            in_file = self.written % self.units_per_file
            end = min(self.next_offset, self.written - in_file + self.units_per_file)
            begin = (self.written - self.tail_start) * UNIT_SIZE
            data = bytes(self.tail[begin : begin + (end - self.written) * UNIT_SIZE])
            file = self.files.get_or_create(self.directory, self._name(self.written), self.units_per_file * UNIT_SIZE)
            if self.written == self.floor and in_file:
                file.write(0, FILL * in_file)
            file.write(in_file * UNIT_SIZE, data)
            self.written = end
            touched.append(file)
        return touched

    def keep(self, count: int) -> None:
        """Forget all but the newest `count` of the written units in memory."""
        surplus = min(self.next_offset - count, self.written) - self.tail_start
        if surplus > 0:
            del self.tail[: surplus * UNIT_SIZE]
            self.tail_start += surplus

    def cut(self, offset: int) -> list[File]:
        """Forget the units from `offset` on, also in the files. Return the files to sync."""
        touched: list[File] = []
        if offset < self.next_offset:
            offset = max(offset, self.floor)
            in_tail = offset - self.tail_start
            if in_tail >= 0:
                del self.tail[in_tail * UNIT_SIZE :]
            else:
                self.tail.clear()
                self.tail_start = offset
            self.next_offset = offset
            self.min_offset = min(self.min_offset, offset)
            self.hide_below(min(self.hidden, offset))
        if self.written > offset:
            touched = wipe_from(self, offset)
            self.written = offset
        self.assign_next = self.next_offset
        return touched

    def drop_files_below(self, offset: int) -> int:
        """Delete the files all of whose units lie below `offset`. The last file stays. Return how many went."""
        dropped = 0
        keep_from = min(offset, max(self.written - 1, 0))
        for entry in list_segments(self.files.disk, self.directory):
            if entry.start // UNIT_SIZE + self.units_per_file <= keep_from:
                self.files.remove(entry.path)
                dropped += 1
        if dropped:
            self.floor = max(self.floor, keep_from - keep_from % self.units_per_file)
        return dropped


class ConsumeQueues(Sink):
    """The queues of every topic. One thread owns it."""

    name = "consumequeue"

    def __init__(
        self, disk: Disk, root: str, units_per_file: int, deletions: Deletions, asides: SetAsides | None = None
    ) -> None:
        self._disk = disk
        self.deletions = deletions
        # Takes the records that no queue can take.
        self._asides = asides
        self._root = f"{root}/consumequeue"
        self._units_per_file = units_per_file
        self._files = FileCache(disk)
        self.flusher = QueueFlusher(self, self._files, disk, root)
        self.recovery = QueueRecovery(self, disk, self._root, units_per_file)
        self._dirty = self.flusher.dirty
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        # Queues met last, by the low bits of their ids: finding them here costs a fifth of asking the dict.
        self._recent: list[ConsumeQueue | None] = [None] * _RECENT
        # Place (-1: none), size and store time of the last record dispatched.
        self._last_offset = -1
        self._last_size = 0
        self._last_timestamp = -1
        # Queues that are being built again, with the offset at which each goes on afterwards.
        self.rebuilt: dict[ConsumeQueue, int] = {}
        # Below this place in the log, only queues that are being built again lack anything.
        self.restored_to = 0
        # Queues whose beginning is known from their own files only, and what the files said. It may be wrong.
        self.guessed: dict[ConsumeQueue, int] = {}

    def bound(self, at_once: int, open_files: int) -> None:
        """Set other bounds than the usual ones: queues written in one step, files open at a time."""
        self.flusher.at_once = at_once
        self._files.limit = open_files

    # ---- finding ----

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        queue = self._recent[queue_id % _RECENT]
        if queue is None or queue.queue_id != queue_id or queue.topic != topic:
            queue = self._queues.get((topic, queue_id))
            if queue is not None:
                self._recent[queue_id % _RECENT] = queue
        return queue

    def remove(self, queue: ConsumeQueue) -> None:
        self._recent = [None] * _RECENT
        del self._queues[(queue.topic, queue.queue_id)]

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def topics(self) -> set[bytes]:
        return {topic for topic, _ in self._queues}

    def get_or_create(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        queue = self.find(topic, queue_id)
        if queue is None:
            if not PATH_SAFE.fullmatch(topic):
                raise InvalidArgumentError(f"topic {topic!r} cannot be a directory name")
            if not 0 <= queue_id <= _QUEUE_ID_MAX:
                raise InvalidArgumentError(f"queue id {queue_id} of topic {topic!r} is out of range")
            queue = ConsumeQueue(self._files, self._root, topic, queue_id, self._units_per_file)
            self._queues[(topic, queue_id)] = queue
        return queue

    @property
    def last(self) -> tuple[int, int, int] | None:
        """Return place, size and store time (-1: not known) of the last record dispatched."""
        if self._last_offset < 0:
            return None
        return self._last_offset, self._last_size, self._last_timestamp

    def set_last(self, last: tuple[int, int, int] | None) -> None:
        self._last_offset, self._last_size, self._last_timestamp = (-1, 0, -1) if last is None else last

    def table(self) -> QueueTable:
        """Return the queue table of now. Until queues are built again it says so, with the numbers they had."""
        table = QueueTable(
            position=0 if self._last_offset < 0 else self._last_offset + self._last_size,
            last=self.last,
            queues={
                (topic.decode("ascii"), queue_id): (queue.floor, queue.min_offset, queue.next_offset)
                for (topic, queue_id), queue in self._queues.items()
                if queue.next_offset
            },
            is_rebuilding=self.restored_to > 0,
        )
        for one, wanted in self.rebuilt.items() if table.is_rebuilding else ():
            key = one.topic.decode("ascii"), one.queue_id
            table.queues[key] = one.floor, one.min_offset, max(one.next_offset, wanted)
        return table

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
        """Return the queue that gives a draft its number; None for one that gets no unit."""
        return self.get_or_create(draft.topic, draft.queue_id) if _is_queued(draft) else None

    def unassign(self, drafts: list[Draft]) -> None:
        """Take back what `assign` gave: the write failed."""
        for draft in reversed(drafts):
            queue = self.find(draft.topic, draft.queue_id)
            if queue is not None and _is_queued(draft):
                queue.assign_next -= 1
                if queue.assign_next == 0:
                    self.remove(queue)

    def count_in(self, drafts: Sequence[Draft]) -> None:
        """Count the numbers of records as taken that are in the log but not dispatched yet."""
        for draft in drafts:
            if _is_queued(draft) and _can_be_queued(draft):
                queue = self.get_or_create(draft.topic, draft.queue_id)
                queue.assign_next = max(queue.assign_next, draft.queue_offset + 1)

    def keep_numbering(self, topic: bytes, queue_id: int, wanted: int) -> None:
        """Never give away a number below `wanted`: those were given away, whatever the log still shows of them."""
        queue = self.get_or_create(topic, queue_id)
        if queue.is_empty:
            queue.start_at(wanted)
        elif queue.next_offset < wanted <= queue.next_offset + _GAP_MAX:
            queue.fill_to(wanted)
            self._dirty[queue] = None

    def keep_numbers(self, drafts: Sequence[Draft]) -> None:
        """Keep the numbers of damaged records whose numbers are known all the same."""
        for draft in drafts:
            if _is_queued(draft) and _can_be_queued(draft):
                self.keep_numbering(draft.topic, draft.queue_id, draft.queue_offset + 1)

    # ---- sink ----

    def recover(self, log_start: int, log_end: int) -> None:
        self.recovery.recover(log_start, log_end)

    def position(self) -> int:
        return self.flusher.position

    def dispatch(self, drafts: list[Draft]) -> None:
        if not drafts:
            return
        if self.restored_to:
            self._dispatch_lacking(drafts)
        elif len(drafts) == 1:
            queue = self._taking(drafts[0])
            if queue is not None and queue.put_all(drafts):
                self._dirty[queue] = None
        else:
            self._dispatch_runs(drafts)
        self.passed(drafts[-1])

    def passed(self, last: Draft) -> None:
        """Note that everything up to this record was dispatched, or is for no queue."""
        if last.physical_offset > self._last_offset:
            self._last_offset = last.physical_offset
            self._last_size = last.size
            self._last_timestamp = last.store_timestamp

    def _dispatch_lacking(self, drafts: list[Draft]) -> None:
        """Dispatch records that only queues being built again lack: at the start, or when they may be shown.

        The table knows every queue below its place: a record there of another belongs to a topic that was deleted.
        """
        below = len(drafts)
        while below and drafts[below - 1].physical_offset >= self.restored_to:
            below -= 1
        self._dispatch_runs(drafts[:below], of_rebuilt=True)
        if drafts[-1].physical_offset + drafts[-1].size >= self.restored_to:
            self.recovery.finish()
        self._dispatch_runs(drafts[below:])

    def _dispatch_runs(self, drafts: list[Draft], of_rebuilt: bool = False) -> None:
        """Make the units of one queue together: a tick brings many records of few queues."""
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
            if of_rebuilt and queue not in self.rebuilt:
                if not queue.next_offset:
                    self.remove(queue)
            elif queue.put_all(run):
                self._dirty[queue] = None

    def _taking(self, draft: Draft) -> ConsumeQueue | None:
        """Return the queue that is still to take a record's unit, None where there is none."""
        if not _is_queued(draft):
            return None
        queue = self.find(draft.topic, draft.queue_id)
        if queue is None or draft.queue_offset < 0 or draft.queue_offset - queue.next_offset > _GAP_MAX:
            queue = self._checked(draft, queue)
            if queue is None:
                return None
        if self.guessed and queue in self.guessed:
            if queue.put(draft.queue_offset, draft.physical_offset, draft.size, draft.tags_code):
                self._dirty[queue] = None
            else:
                self._put_guessed(queue, draft)
            return None
        return queue

    def _put_guessed(self, queue: ConsumeQueue, draft: Draft) -> None:
        """Begin a queue at a record which the queue's files said had expired: the log is right."""
        if queue.next_offset == self.guessed[queue]:
            wipe_from(queue, 0)
            queue.start_at(draft.queue_offset)
            queue.assign_next = draft.queue_offset
            queue.put(draft.queue_offset, draft.physical_offset, draft.size, draft.tags_code)
            self._dirty[queue] = None
            del self.guessed[queue]

    def _checked(self, draft: Draft, queue: ConsumeQueue | None) -> ConsumeQueue | None:
        """Return the queue of an unusual record. Set the record aside and return None where no queue can take it."""
        if not 0 <= draft.queue_offset <= QUEUE_OFFSET_MAX:
            reason = f"queue offset {draft.queue_offset} is out of range"
        elif queue is not None and not queue.is_empty:
            reason = f"its queue offset is far above {queue.next_offset}, the next of its queue"
        else:
            try:
                return self.get_or_create(draft.topic, draft.queue_id)
            except InvalidArgumentError as error:
                reason = error.message
        self._set_aside(draft, reason)
        return None

    def _set_aside(self, draft: Draft, reason: str) -> None:
        if self._asides is not None:
            self._asides.add(self.name, reason, draft)

    def flush(self) -> list[File]:
        return self.flusher.flush()

    def flushed(self) -> None:
        self.flusher.flushed()

    def truncate(self, physical_offset: int) -> None:
        if physical_offset < self.restored_to:  # the numbers that queues had were those of records that are gone
            self.restored_to, self.rebuilt = physical_offset, dict.fromkeys(self.rebuilt, 0)
        last: tuple[int, int, int] | None = None
        for queue in self._queues.values():
            newest = queue.unit(queue.next_offset - 1)
            if newest is None or newest[0] + newest[1] > physical_offset or newest[1] == UNIT_FILL_SIZE:
                for file in queue.cut(queue.first_at_or_above(physical_offset)):
                    sync_file(file)
            newest = queue.unit(queue.next_offset - 1)
            if newest is not None and newest[1] != UNIT_FILL_SIZE and (last is None or newest[0] > last[0]):
                last = (newest[0], newest[1], -1)
            queue.assign_next = queue.next_offset
        if self._last_offset >= physical_offset:
            self.set_last(last)
        self.flusher.save()

    def close(self) -> None:
        self._files.close()
        self.flusher.close()

    # ---- deleting ----

    def drop_below(self, log_start: int) -> int:
        """Correct the bounds to a log that lost its beginning, and delete files that point at nothing any more."""
        dropped = 0
        for queue in self._queues.values():
            dropped += queue.drop_files_below(queue.kept_for(log_start))
        return dropped

    def delete_topics(self, topics: Collection[bytes]) -> None:
        """Forget topics and their numbering. That they were deleted is noted already."""
        gone = [queue for queue in self._queues.values() if queue.topic in topics]
        self.flusher.forget(gone)
        for queue in gone:
            self.remove(queue)
            self.rebuilt.pop(queue, None)
        for queue in gone:
            for entry in list_segments(self._disk, queue.directory):
                self._files.remove(entry.path)
            self._remove_empty(queue.directory)
            self._remove_empty(queue.directory.rpartition("/")[0])
        # A power cut must not bring old files back where a new topic of that name has written its own.
        self._files.sync_removals()

    def _remove_empty(self, directory: str) -> None:
        if self._disk.is_dir(directory) and not self._disk.listdir(directory):
            self._files.remove_dir(directory)


def _number(draft: Draft, queue: ConsumeQueue | None) -> None:
    if queue is None:
        draft.queue_offset = 0
    else:
        draft.queue_offset = queue.assign_next
        queue.assign_next += 1


def _is_queued(draft: Draft) -> bool:
    """Tell whether a record gets a unit. RocketMQ: CommitLogDispatcherBuildConsumeQueue."""
    return draft.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def _can_be_queued(draft: Draft) -> bool:
    """Tell whether a record's numbers and its topic are such as a queue can have."""
    in_range = draft.queue_id >= 0 and 0 <= draft.queue_offset <= QUEUE_OFFSET_MAX
    return in_range and PATH_SAFE.fullmatch(draft.topic) is not None
