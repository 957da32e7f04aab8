"""One consume queue: the units of one queue of a topic, its newest ones in memory until the flusher writes
them.

Owns a queue's bounds and its files (300,000 units of 20 bytes each by default, sparse, named by byte offset).
A unit says where a record is; the record itself is the truth. RocketMQ: ConsumeQueue.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Final

from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.hot.log.record import Draft
from aerobee.hot.log.units import encode_units, follow_on
from aerobee.runtime.seams import Disk, File
from aerobee.store.segment import is_zero, list_segments, segment_name, segment_starts
from aerobee.store.segments import sync_directory

UNIT: Final = struct.Struct(">qiq")
# What fills a place no record stands for. RocketMQ: ConsumeQueue.fillPreBlank.
FILL_SIZE: Final = 0x7FFFFFFF
FILL: Final = UNIT.pack(0, FILL_SIZE, 0)
# Units of a busy queue kept in memory after they were written, for the consumers right behind the producers.
KEPT_UNITS: Final = 1024
_TRAIL_SIZE: Final = 64 * 1024


class FileCache:
    """The few files that are open at a time, whatever the number of queues."""

    def __init__(self, disk: Disk, limit: int = 512) -> None:
        self.disk = disk
        self.limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()
        # Written but not yet given to a sync: these are not closed, whatever the limit says.
        self._held: dict[str, File] = {}
        # Directories that lost a name: a power cut could bring it back with its old content.
        self._lost_names: dict[str, None] = {}

    def get(self, path: str) -> File | None:
        """The file, None where there is none."""
        file = self._open.get(path)
        if file is None and (file := self._held.get(path)) is not None:
            self._keep(path, file)
        elif file is None:
            try:
                file = self.disk.open(path)
            except FileNotFoundError:
                return None
            self._keep(path, file)
        else:
            self._open.move_to_end(path)
        return file

    def get_or_create(self, directory: str, name: str, size: int) -> File:
        """The file at its full length, sparse."""
        path = f"{directory}/{name}"
        file = self.get(path)
        if file is None:
            self.disk.make_dirs(directory)
            file = self.disk.open(path, create=True)
            self._keep(path, file)
        if file.size() != size:
            file.truncate(size)
        self._held[path] = file
        return file

    def release(self) -> None:
        """What was written has been given to a sync, which keeps it open itself."""
        for path, file in self._held.items():
            if self._open.get(path) is not file:
                file.close()
        self._held.clear()

    def _keep(self, path: str, file: File) -> None:
        while len(self._open) >= self.limit:
            old_path, old = self._open.popitem(last=False)
            if self._held.get(old_path) is not old:
                old.close()
        self._open[path] = file

    def remove(self, path: str) -> None:
        for file in (self._open.pop(path, None), self._held.pop(path, None)):
            if file is not None:
                file.close()
        self.disk.unlink(path)
        self._lost_names[path.rpartition("/")[0]] = None

    def remove_dir(self, path: str) -> None:
        self.disk.remove_dir(path)
        self._lost_names[path.rpartition("/")[0]] = None

    def sync_removals(self) -> None:
        """What was removed is gone for good, also where a new file has its name."""
        for directory in self._lost_names:
            if self.disk.is_dir(directory):
                sync_directory(self.disk, directory)
        self._lost_names.clear()

    def close(self) -> None:
        self.release()
        while self._open:
            self._open.popitem()[1].close()


class ConsumeQueue:
    """The bounds and the units of one queue. Offsets count units from the queue's first message ever."""

    __slots__ = (
        "assign_next",
        "directory",
        "files",
        "floor",
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
        # The next message dispatched gets `next_offset`, the next one sent `assign_next`: at least as much.
        self.min_offset = 0
        self.next_offset = 0
        self.assign_next = 0
        # Units below `floor` were never here (the queue began above them); none is in a file below it.
        self.floor = 0
        # Units [tail_start, next_offset) are in memory, [floor, written) are in files.
        self.tail = bytearray()
        self.tail_start = 0
        self.written = 0
        self.min_known_for = -1
        # The file that was read last, by its first unit.
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
        """Take a unit. False where it was here already."""
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
        """Take the units of records of this queue, in log order. False where all were here already."""
        if not follow_on(drafts, self.next_offset):
            taken = [self.put(d.queue_offset, d.physical_offset, d.size, d.tags_code) for d in drafts]
            return any(taken)
        self.tail += encode_units(drafts)
        self.next_offset += len(drafts)
        self.assign_next = max(self.assign_next, self.next_offset)
        return True

    def fill_to(self, offset: int) -> None:
        """Places whose records are lost for good keep their numbers."""
        self.tail += FILL * (offset - self.next_offset)
        self.next_offset = offset
        self.assign_next = max(self.assign_next, offset)

    # ---- files ----

    def _name(self, offset: int) -> str:
        return segment_name((offset - offset % self.units_per_file) * UNIT_SIZE)

    def file_size(self, offset: int) -> int:
        """Of the file that has a unit's place; -1 where there is none."""
        file = self.files.get(f"{self.directory}/{self._name(offset)}")
        return -1 if file is None else file.size()

    def write_tail(self) -> list[File]:
        """Write the units that no file holds yet; the files to sync. What could not be written stays in
        memory."""
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

    def units(self, offset: int, count: int) -> bytes:
        """At most `count` units from `offset` on, as far as one file or memory holds them."""
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
        """Physical offset, size and tags code; None where there is no such unit."""
        data = self.units(offset, 1)
        return UNIT.unpack(data) if data else None

    def first_at_or_above(self, physical_offset: int) -> int:
        """The first offset whose record lies at or above a place in the log (or the next offset)."""
        low, high = self.floor, self.next_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            # Places without a record have no order of their own: the next one that has decides.
            probe = middle + 1
            while unit is not None and unit[1] == FILL_SIZE and probe < high:
                unit = self.unit(probe)
                probe += 1
            if unit is not None and (unit[1] == FILL_SIZE or unit[0] >= physical_offset):
                high = middle
            else:
                low = probe
        before = self.unit(low - 2) if low - 2 >= self.floor else None
        if before is not None and before[1] != FILL_SIZE and before[0] >= physical_offset:
            # A damaged unit has misled the search: it would hide every sound one before it.
            return next(at for at in range(self.floor, low) if (self.unit(at) or (-1,))[0] >= physical_offset)
        return low

    def expired_end(self, log_start: int) -> int:
        """One above the last unit that points below the log: units are written in order, so halving finds it."""
        low, high = self.floor, self.next_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit[1] > 0 and 0 <= unit[0] < log_start:
                low = middle + 1
            else:
                high = middle
        return low

    def problem(self, deleted: int) -> str | None:
        """What is wrong with the files, which should hold units up to `next_offset`. A topic of that name was deleted
        where the log had come to `deleted`."""
        first = self.min_offset
        while first < self.next_offset:
            base = first - first % self.units_per_file
            last = min(base + self.units_per_file, self.next_offset) - 1
            if self.file_size(base) != self.units_per_file * UNIT_SIZE:
                return "a file is missing or has another length"
            for offset in (first, last):
                unit = self.unit(offset)
                if unit is None or unit[1] <= 0:
                    return f"unit {offset} is not there"
                if unit[0] < deleted and unit[1] != FILL_SIZE:
                    return f"unit {offset} is of a topic of that name that was deleted"
            first = base + self.units_per_file
        return None

    def min_for(self, log_start: int) -> int:
        """The first offset whose record the log still has. RocketMQ: ConsumeQueue.correctMinOffset."""
        if self.min_known_for != log_start:
            self.min_offset = max(self.min_offset, self.floor, self.first_at_or_above(log_start))
            self.min_known_for = log_start
        return self.min_offset

    def cut(self, offset: int) -> list[File]:
        """Forget the units from `offset` on, also in the files; the files to sync."""
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
        if self.written > offset:
            touched = self.wipe_from(offset)
            self.written = offset
        self.assign_next = self.next_offset
        return touched

    def wipe_from(self, offset: int, starts: list[int] | None = None) -> list[File]:
        """Zero what the files hold from `offset` on: another reader (Apache) would take it for units.

        `starts` says where the files begin, where that is known: a start would list every directory twice.
        """
        touched: list[File] = []
        in_file = offset % self.units_per_file
        base = offset - in_file
        if starts is None:
            starts = segment_starts(self.files.disk, self.directory)
        for start in starts:
            if start > base * UNIT_SIZE or (start == base * UNIT_SIZE and not in_file):
                self.files.remove(f"{self.directory}/{segment_name(start)}")
        if in_file and (file := self.files.get(f"{self.directory}/{self._name(offset)}")) is not None:
            at = in_file * UNIT_SIZE
            while data := file.read(at, _TRAIL_SIZE):
                if is_zero(data):
                    break
                file.write(at, bytes(len(data)))
                at += len(data)
            touched.append(file)
        return touched

    def drop_files_below(self, offset: int) -> int:
        """Delete the files all of whose units lie below `offset`. The last file stays."""
        dropped = 0
        keep_from = min(offset, max(self.written - 1, 0))
        for entry in list_segments(self.files.disk, self.directory):
            if entry.start // UNIT_SIZE + self.units_per_file <= keep_from:
                self.files.remove(entry.path)
                dropped += 1
        if dropped:
            self.floor = max(self.floor, keep_from - keep_from % self.units_per_file)
        return dropped
