"""Consume queues against the log: every unit has its record, every record its unit, in order.

The log is walked once, and each queue's units are compared as their records go by: both are in log order, so memory
holds a window of each. RocketMQ: ConsumeQueue, ReputMessageService.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.hot.log.layout import (
    RECORD_QUEUE_OFFSET_POS,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIT_FILL_SIZE,
    UNIT_SIZE,
)
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Draft
from aerobee.hot.log.units import decode_units, encode_unit, encode_units
from aerobee.model.numbers import int_or
from aerobee.store.offline.directory import QueueFiles, StoreDirectory, find_queues, queue_file_size
from aerobee.store.offline.problems import Findings, Problem
from aerobee.store.offline.queuefiles import EMPTY, QueueUnits
from aerobee.store.offline.walk import OfflineLog
from aerobee.store.recordhead import head_of, topic_of

_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_LMQ_PREFIX: Final = b"%LMQ%"
_RECORD_SIZE_MAX: Final = 64 * 1024 * 1024
# An entry of Apache's consumequeue_ext/ (`enableConsumeQueueExt`): size 2, tags code 8, store time 8, bytes of the
# filter bit map 2, bit map. The queue unit holds the entry's address instead of a tags code: its offset plus Java's
# smallest long. A tags code is an int, so whatever lies below the ints is an address. RocketMQ: ConsumeQueueExt.
_EXT_HEAD: Final = struct.Struct(">hqqh")
_EXT_ADDRESS_BASE: Final = -(2**63)
_EXT_ADDRESS_MAX: Final = -(2**31) - 1


@dataclass(slots=True)
class _Missing:
    """Records without a unit. They become a problem once it is sure that their units will not come later."""

    number: int
    physical_offset: int
    count: int


class _Queue:
    """Where one queue's comparison stands."""

    def __init__(self, units: QueueUnits, topic: bytes, queue_id: int) -> None:
        self.units = units
        self.topic = topic
        self.queue_id = queue_id
        self.next = units.first  # the first unit not compared yet
        self.highest = -1  # number of the last record seen
        self.missing: _Missing | None = None


class QueueChecker:
    """Compares the queues with the log's records, which it is given in order; `finish` looks at what is left."""

    def __init__(self, store: StoreDirectory, log: OfflineLog, findings: Findings) -> None:
        self._store = store
        self._log = log
        self._findings = findings
        found = find_queues(store)
        self.file_size = queue_file_size(store, found)
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        for files in found:
            units = QueueUnits(store.disk, files, self.file_size)
            key = (files.topic.encode(), files.queue_id)
            self._queues[key] = _Queue(units, *key)
            self._check_lengths(files)
        self._batch_topics = set(store.disk.listdir(store.path("batchconsumequeue")))
        if self._batch_topics:
            findings.unseen.append("batchconsumequeue/ is not looked at: queues of type BatchCQ are not supported")
        self._must_reach = _must_reach(store)
        self._deleted = store.deletions.positions()
        # Stretches of the log without sound records. Units that point there are no problem of their own.
        self.damages: list[tuple[int, int]] = []
        self.compared = 0
        self.behind = 0
        self.orphans = 0
        self.beyond = 0
        self._first_beyond: tuple[_Queue, int] | None = None
        self._log_end = 1 << 63
        self.scheduled_known = store.config is not None

    def __len__(self) -> int:
        return sum(bool(queue.units.end) for queue in self._queues.values())

    def _check_lengths(self, queue: QueueFiles) -> None:
        for position, file in enumerate(queue.files):
            if file.size != self.file_size and not (self._store.is_live and position == len(queue.files) - 1):
                what = f"the file is {file.size} bytes long, not {self.file_size}"
                self._add(file.path, min(file.size, self.file_size), what)

    def _add(self, path: str, offset: int, what: str, count: int = 1) -> None:
        self._findings.add(
            Problem(part="queue", path=self._store.shown(path), offset=offset, what=what, repairable=True, count=count)
        )

    # ---- records ----

    def take(self, drafts: Sequence[Draft]) -> None:
        """Compare the units of these records."""
        groups: dict[tuple[bytes, int], list[Draft]] = {}
        for draft in drafts:
            if draft.sys_flag & TRANSACTION_MASK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
                continue
            if draft.physical_offset < self._deleted.get(draft.topic, 0):
                self.orphans += 1
                continue
            group = groups.get((draft.topic, draft.queue_id))
            if group is None:
                groups[draft.topic, draft.queue_id] = [draft]
            else:
                group.append(draft)
            if b"INNER_MULTI_DISPATCH\x01" in draft.properties:
                self._take_light(draft)
        for key, group in groups.items():
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = self._without_files(*key)
            self._compare(queue, group)

    def _without_files(self, topic: bytes, queue_id: int) -> _Queue:
        name = topic.decode("utf-8", "replace")
        directory = f"{self._store.path('consumequeue')}/{name}/{queue_id}"
        files = QueueFiles(name, queue_id, directory, [])
        return _Queue(QueueUnits(self._store.disk, files, self.file_size), topic, queue_id)

    def _compare(self, queue: _Queue, drafts: list[Draft]) -> None:
        position = 0
        while position < len(drafts):
            if drafts[position].queue_offset == 0 and queue.highest >= 0:
                self._begin_again(queue)
            run = _run_length(drafts, position)
            if drafts[position].queue_offset == queue.next:
                expected = encode_units(drafts[position : position + run])
                present = queue.units.read(queue.next, run)
                if present == expected:
                    same = run
                else:
                    same = _first_difference(present, expected) // UNIT_SIZE
                queue.next += same
                position += same
                self.compared += same
                if same:
                    queue.highest = queue.next - 1
                    self._tell_missing(queue)
                if same == run:
                    continue
            self._compare_one(queue, drafts[position])
            position += 1

    def _begin_again(self, queue: _Queue) -> None:
        """Begin the queue again: its topic was deleted and made again. What came before belongs to the deleted one."""
        if queue.missing is not None:
            self.orphans += queue.missing.count
            queue.missing = None
        queue.next = queue.units.first
        queue.highest = -1

    def _compare_one(self, queue: _Queue, draft: Draft) -> None:
        number = draft.queue_offset
        if number <= queue.highest:
            path, at = self._log.place_of(draft.physical_offset)
            what = f"record with queue offset {number} stands behind that with {queue.highest}"
            self._findings.add(
                Problem(
                    part="log",
                    path=self._store.shown(path),
                    offset=at + RECORD_QUEUE_OFFSET_POS,
                    what=what,
                    physical_offset=draft.physical_offset,
                    physical_end=draft.physical_offset + draft.size,
                )
            )
            return
        queue.highest = number
        expected = encode_unit(draft.physical_offset, draft.size, draft.tags_code)
        present = queue.units.read(number, 1)
        if present == EMPTY or not queue.units.has_place(number):
            self._note_missing(queue, draft)
            return
        if present != expected and not self._is_right(queue, draft, present):
            if self._is_of_later_topic(queue, draft, present):
                self.orphans += 1
                return
            at = _first_difference(present, expected)
            path, offset = queue.units.place_of(number, at)
            self._add(
                path, offset, f"unit {number} of {_name(queue)} is not that of its record {draft.physical_offset}"
            )
        else:
            self.compared += 1
        if number > queue.next:
            self._check_unclaimed(queue, queue.next, number)
        queue.next = max(queue.next, number + 1)
        self._tell_missing(queue)

    def _is_right(self, queue: _Queue, draft: Draft, present: bytes) -> bool:
        """Tell whether a unit with another tags code is right all the same."""
        physical_offset, size, tags_code = decode_units(present)[0]
        if physical_offset != draft.physical_offset or size != draft.size:
            return False
        if tags_code <= _EXT_ADDRESS_MAX:
            return self._ext_agrees(queue, draft, tags_code)
        if queue.topic == _SCHEDULE_TOPIC and not self.scheduled_known:
            # Delivery times depend on messageDelayLevel, which may have been changed: any whole seconds are accepted.
            delay_ms = tags_code - draft.store_timestamp
            return 0 <= delay_ms < 1 << 36 and delay_ms % 1000 == 0
        return False

    def _ext_agrees(self, queue: _Queue, draft: Draft, address: int) -> bool:
        directory = queue.units.directory.replace("/consumequeue/", "/consumequeue_ext/", 1)
        offset = address - _EXT_ADDRESS_BASE
        for file in self._store.list_files(directory):
            if file.start <= offset < file.end:
                data = self._store.disk.open(file.path, write=False)
                try:
                    head = data.read(offset - file.start, _EXT_HEAD.size)
                finally:
                    data.close()
                if len(head) < _EXT_HEAD.size:
                    return False
                _, tags_code, store_timestamp, _ = _EXT_HEAD.unpack(head)
                return bool(tags_code == draft.tags_code and store_timestamp == draft.store_timestamp)
        return False

    def _is_of_later_topic(self, queue: _Queue, draft: Draft, present: bytes) -> bool:
        """Tell whether a unit belongs to a record further on: the topic was deleted and made again."""
        physical_offset, size, _ = decode_units(present)[0]
        if physical_offset <= draft.physical_offset:
            return False
        return self._is_record_of(queue, draft.queue_offset, physical_offset, size)

    def _is_record_of(self, queue: _Queue, number: int, physical_offset: int, size: int) -> bool:
        """Tell whether the log has the very record that a unit means."""
        data = self._log.reader.read(physical_offset, min(size, _RECORD_SIZE_MAX))
        head = head_of(data)
        if head is None:
            return False
        if queue.topic.startswith(_LMQ_PREFIX):
            return head.physical_offset == physical_offset and head.size == size
        return head.is_at(physical_offset, size, queue.queue_id, number) and topic_of(data) == queue.topic

    def _take_light(self, draft: Draft) -> None:
        """Compare the light queues (LMQ) that a record is also in. RocketMQ: MultiDispatchUtils."""
        names = (find_property(draft.properties, b"INNER_MULTI_DISPATCH") or b"").split(b",")
        numbers = (find_property(draft.properties, b"INNER_MULTI_QUEUE_OFFSET") or b"").split(b",")
        for name, number in zip(names, numbers, strict=False):
            queue = self._queues.get((name, 0))
            if queue is None or int_or(number, None, 0) != queue.next:
                continue  # without `next` the unit is compared with the others that no record claims
            physical_offset, size, _ = queue.units.unit(queue.next)
            if (physical_offset, size) == (draft.physical_offset, draft.size):
                queue.next += 1
                self.compared += 1

    # ---- records without unit ----

    def _note_missing(self, queue: _Queue, draft: Draft) -> None:
        if draft.topic.decode("utf-8", "replace") in self._batch_topics or queue.units.is_cut(draft.queue_offset):
            return  # the queue is not looked at, or was reported already
        if draft.physical_offset >= self._must_reach:
            self.behind += 1
        elif queue.missing is None:
            queue.missing = _Missing(draft.queue_offset, draft.physical_offset, 1)
        else:
            queue.missing.count += 1

    def _tell_missing(self, queue: _Queue) -> None:
        """Report missing units: where a later unit is there, they are not only late."""
        missing, queue.missing = queue.missing, None
        if missing is not None:
            path, offset = queue.units.place_of(missing.number)
            last = missing.number + missing.count - 1
            names = f"unit {missing.number}" if missing.count == 1 else f"units {missing.number} to {last}"
            verb = "is" if missing.count == 1 else "are"
            what = f"{names} of {_name(queue)} {verb} missing; the record stands at {missing.physical_offset}"
            self._add(path, offset, what, missing.count)

    # ---- units without record ----

    def _check_unclaimed(self, queue: _Queue, first: int, end: int) -> None:
        """Check the units between two records: they may be expired, fillings, or of damaged records."""
        bad: _Missing | None = None
        for start in range(first, end, 3000):
            several = decode_units(queue.units.read(start, min(3000, end - start)))
            for number, (physical_offset, size, _) in enumerate(several, start):
                if self._is_excused(queue, number, physical_offset, size):
                    self._tell_unclaimed(queue, bad)
                    bad = None
                elif bad is None:
                    bad = _Missing(number, physical_offset, 1)
                else:
                    bad.count += 1
        self._tell_unclaimed(queue, bad)

    def _is_excused(self, queue: _Queue, number: int, physical_offset: int, size: int) -> bool:
        if size == UNIT_FILL_SIZE or (size > 0 and 0 <= physical_offset < self._log.start):
            return True
        if size <= 0:
            return False
        if physical_offset < self._deleted.get(queue.topic, 0):
            # A crash may leave such units, and the next start removes them. A broker that stopped in order has done so.
            return not self._store.is_settled
        if physical_offset >= self._log_end or any(start <= physical_offset < end for start, end in self.damages):
            return True
        # A live broker wrote the unit after its record went by here, or it is a light queue's.
        return self._is_record_of(queue, number, physical_offset, size)

    def _tell_unclaimed(self, queue: _Queue, bad: _Missing | None) -> None:
        if bad is not None:
            path, offset = queue.units.place_of(bad.number)
            names = f"unit {bad.number}" if bad.count == 1 else f"units {bad.number} to {bad.number + bad.count - 1}"
            if bad.physical_offset == 0 and queue.units.read(bad.number, 1) == EMPTY:
                what = f"{names} of {_name(queue)}: empty, with later ones behind"
            else:
                what = f"{names} of {_name(queue)}: no record of this queue stands at {bad.physical_offset}"
            self._add(path, offset, what, bad.count)

    # ---- the end ----

    def finish(self, log_end: int, topics: set[str] | None) -> None:
        """Report what is left once the log was walked to `log_end`.

        `topics` are those that exist, None where that is not known.
        """
        self._log_end = log_end
        for queue in self._queues.values():
            if queue.missing is not None:
                name = queue.topic.decode("utf-8", "replace")
                if topics is not None and name not in topics and not queue.units.end:
                    self.orphans += queue.missing.count
                    queue.missing = None
                else:
                    self._tell_missing(queue)
            self._check_rest(queue, log_end)
        if self._first_beyond is not None and self._store.is_settled:
            queue, number = self._first_beyond
            path, offset = queue.units.place_of(number)
            place = queue.units.unit(number)[0]
            what = f"unit {number} of {_name(queue)} points at {place}, behind the log's end"
            self._add(path, offset, what, self.beyond)

    def _check_rest(self, queue: _Queue, log_end: int) -> None:
        """Check the units behind that of the last record."""
        last, is_after_gap = -1, False
        for start, count in queue.units.stretches(queue.next):
            data = queue.units.read(start, count)
            if data.count(0) == len(data):
                is_after_gap = True
                continue
            for number, (physical_offset, size, tags_code) in enumerate(decode_units(data), start):
                if size <= 0:
                    if physical_offset or size or tags_code:
                        self._tell_garbage(queue, number)
                    is_after_gap = True
                    continue
                # An expired unit cannot follow empty ones: these bytes were never a unit.
                is_expired = 0 <= physical_offset < self._log.start and size != UNIT_FILL_SIZE
                if is_after_gap and (is_expired or not self._is_excused(queue, number, physical_offset, size)):
                    self._tell_garbage(queue, number)
                    continue
                last = number
                if physical_offset >= log_end and 0 < size < UNIT_FILL_SIZE:
                    self.beyond += 1
                    self._first_beyond = self._first_beyond or (queue, number)
        if last >= queue.next:
            self._check_unclaimed(queue, queue.next, last + 1)

    def _tell_garbage(self, queue: _Queue, number: int) -> None:
        data = queue.units.read(number, 1)
        path, offset = queue.units.place_of(number, len(data) - len(data.lstrip(b"\0")))
        self._add(path, offset, f"unit {number} of {_name(queue)}, behind the last one, is neither empty nor a unit")

    def claim_at(self, log_end: int) -> int:
        """Return the end of the record that should stand at the log's end, if some queue's next unit names one."""
        for queue in self._queues.values():
            if queue.next < queue.units.end:
                physical_offset, size, _ = queue.units.unit(queue.next)
                if physical_offset == log_end and 0 < size < UNIT_FILL_SIZE and queue.next > queue.units.first:
                    return physical_offset + size
        return 0


def _must_reach(store: StoreDirectory) -> int:
    """Return the place below which every record must have its unit."""
    if store.is_settled:
        return 1 << 63
    marks = [0]
    if store.checkpoint is not None:
        marks.append(store.checkpoint.logics_physical_offset)
    if store.table is not None and store.is_ours and not store.table.is_rebuilding:
        marks.append(store.table.position)
    return max(marks)


def _run_length(drafts: list[Draft], position: int) -> int:
    """Return how many drafts from here on have numbers without a gap."""
    base = drafts[position].queue_offset - position
    end = position + 1
    while end < len(drafts) and drafts[end].queue_offset - end == base:
        end += 1
    return end - position


def _first_difference(left: bytes, right: bytes) -> int:
    """Return the first byte in which two strings of equal length differ; their length where they do not."""
    low, high = 0, len(left)
    while low < high:
        middle = (low + high) // 2
        if left[low : middle + 1] == right[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def _name(queue: _Queue) -> str:
    return f"{queue.topic.decode('utf-8', 'replace')}/{queue.queue_id}"
