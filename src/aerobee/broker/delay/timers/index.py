"""The index of timed messages that wait, by time. It lies on disk, and is made again from the log where it is lost.

New entries stand in memory and in a journal, in the order of the timer queue without a gap. A journal that is full is
sorted by time into a *run*, a file that never changes; of each run only the next few entries are in memory. So memory
grows by some kilobytes for each RUN_SIZE waiting messages, and a start reads one journal and the head of each run.

The progress (ledger.py) knows which entries are done; the index does not. Journals are not synced: what is
missing of them is read again from the timer queue. See docs/formats/timers.md.
"""

from __future__ import annotations

import heapq
import struct
from typing import Final

from aerobee.broker.delay.timers.entries import ENTRY_SIZE, SKIP, TimerEntry, decode_entries, encode_entries
from aerobee.errors import StoreError
from aerobee.model.numbers import int_or
from aerobee.runtime.seams import Disk, File
from aerobee.store.statefile import StateFile

RUN_SIZE: Final = 16_384
_BLOCK: Final = 256
_RUN_HEADER: Final = struct.Struct(">8sqqq")
_MAGIC: Final = b"AERTIMR1"
_FIRST: Final = -(1 << 62)
FAR: Final = 1 << 62


class Run:
    """Entries of one stretch of the timer queue, sorted by time. `head` is the next entry."""

    __slots__ = ("_at", "_block", "_disk", "content", "count", "end", "head", "path", "start")

    def __init__(self, disk: Disk, path: str, start: int, end: int, count: int, content: bytes | None) -> None:
        """`content` is the file, until it is safely written."""
        self.path = path
        self.start = start
        self.end = end
        self.count = count
        self.head: TimerEntry | None = None
        self._disk = disk
        self.content = content
        self._at = 0
        self._block: list[TimerEntry] = []

    def seek(self, key: int) -> None:
        """Go to the first entry at or after a time."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._entries(middle, 1)[0].key < key:
                low = middle + 1
            else:
                high = middle
        self._at = low
        self._block = []
        self.advance()

    def advance(self) -> None:
        """Make the next entry the head."""
        if not self._block and self._at < self.count:
            self._block = self._entries(self._at, min(_BLOCK, self.count - self._at))
            self._block.reverse()
            self._at += len(self._block)
        self.head = self._block.pop() if self._block else None

    @property
    def left(self) -> int:
        """Entries from the head on."""
        return self.count - self._at + len(self._block) + (self.head is not None)

    def written(self) -> None:
        """Note that the file is written durably."""
        self.content = None

    @property
    def is_written(self) -> bool:
        return self.content is None

    def _entries(self, at: int, count: int) -> list[TimerEntry]:
        offset, size = _RUN_HEADER.size + at * ENTRY_SIZE, count * ENTRY_SIZE
        if self.content is not None:
            data = self.content[offset : offset + size]
        else:
            file = self._disk.open(self.path, write=False)
            try:
                data = file.read(offset, size)
            finally:
                file.close()
        found = decode_entries(data)
        if len(found) != count:
            raise StoreError(f"{self.path} is damaged at entry {at + len(found)}")
        return found


class TimerIndex:
    """All waiting entries. An entry that is taken out does not come back."""

    def __init__(self, disk: Disk, directory: str, *, run_size: int = RUN_SIZE) -> None:
        self.directory = directory
        # The timer queue is taken in up to this offset.
        self.next_offset = 0
        self.runs: list[Run] = []
        self._disk = disk
        self._run_size = run_size
        self._memory: list[TimerEntry] = []
        self._heads: list[tuple[int, int, Run]] = []
        self._journal: list[TimerEntry] = []
        self._journal_start = 0
        self._file: File | None = None
        self._file_count = 0
        # Journals whose run is being written.
        self._retired: dict[int, str] = {}

    # -- start and stop

    def load(self, journal_start: int, runs: list[int], queue_end: int) -> bool:
        """Load the journal, which begins at `journal_start`, and the runs, which must include `runs`.

        Return False, with nothing loaded, if a file is missing or damaged.
        """
        names = self._disk.listdir(self.directory)
        try:
            found = [self._load_run(name) for name in names if name.startswith("run-") and name[4:].isdecimal()]
        except StoreError:
            return False
        if not set(runs) <= {run.start for run in found}:
            return False
        self.next_offset = journal_start
        for run in found:
            if run.end > self.next_offset and run.start != self.next_offset:
                self._disk.unlink(run.path)  # the run before it was not written: both are read again from the queue
            else:
                self.runs.append(run)
                self.next_offset = max(self.next_offset, run.end)
        for name in names:
            start = int_or(name[8:], -1, 0) if name.startswith("journal-") else -1
            if start >= 0:
                self._load_journal(start, f"{self.directory}/{name}")
        self._journal_start = self.next_offset - len(self._journal)
        return self.next_offset <= queue_end

    def _load_run(self, name: str) -> Run:
        path = f"{self.directory}/{name}"
        file = self._disk.open(path, write=False)
        try:
            head, size = file.read(0, _RUN_HEADER.size), file.size()
        finally:
            file.close()
        if len(head) < _RUN_HEADER.size:
            raise StoreError(f"{path} is too short")
        magic, start, end, count = _RUN_HEADER.unpack(head)
        if magic != _MAGIC or size != _RUN_HEADER.size + count * ENTRY_SIZE:
            raise StoreError(f"{path} is not a file of timed messages, or it is damaged")
        return Run(self._disk, path, start, end, count, None)

    def _load_journal(self, start: int, path: str) -> None:
        """Take up entries that follow what is known; the rest of the file counts for nothing."""
        file = self._disk.open(path)
        try:
            entries = decode_entries(file.read(0, file.size()))
        finally:
            file.close()
        for number, entry in enumerate(entries):
            if entry.queue_offset == start + number == self.next_offset:
                self._remember(entry)
        self._disk.unlink(path)  # written again, as one with what follows

    def begin(self, resume_key: int, resume_all_from: int) -> int:
        """Go to where the progress stands, after `load`. Runs with offsets from `resume_all_from` on are read whole.
        Return how many entries wait, those already done included."""
        for run in self.runs:
            run.seek(_FIRST if run.end > resume_all_from else resume_key)
            self._push(run)
        return len(self._memory) + sum(run.left for run in self.runs)

    def clear(self, next_offset: int) -> None:
        """Forget everything, files too: the queue is read again from here."""
        self.close()
        for name in self._disk.listdir(self.directory):
            if name.startswith(("run-", "journal-")):
                self._disk.unlink(f"{self.directory}/{name}")
        self.runs, self._memory, self._heads, self._journal = [], [], [], []
        self._retired = {}
        self.next_offset = self._journal_start = next_offset

    def close(self) -> None:
        """Let go of the journal."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._file_count = 0

    @property
    def is_empty(self) -> bool:
        """Tell whether it holds no entry, not even one that is done."""
        return not (self._journal or self.runs or self._memory)

    # -- in

    def add(self, entry: TimerEntry) -> None:
        """Take up the next entry of the queue."""
        if entry.queue_offset != self.next_offset:
            raise ValueError(f"entry {entry.queue_offset}, expected {self.next_offset}")
        self._remember(entry)

    def _remember(self, entry: TimerEntry) -> None:
        self._journal.append(entry)
        self.next_offset += 1
        if not entry.flags & SKIP:
            heapq.heappush(self._memory, entry)

    # -- out

    def take(self, until_ms: int) -> TimerEntry | None:
        """Take out the earliest entry whose key is not after `until_ms`; None where there is none."""
        memory, heads = self._memory, self._heads
        if heads and (not memory or heads[0][:2] < memory[0][:2]):
            if heads[0][0] > until_ms:
                return None
            run = heads[0][2]
            entry = run.head
            assert entry is not None
            run.advance()
            if run.head is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (run.head.key, run.head.queue_offset, run))
            return entry
        if memory and memory[0].key <= until_ms:
            return heapq.heappop(memory)
        return None

    def next_key(self) -> int:
        """Return when something is to be done next; FAR where nothing waits."""
        key = self._memory[0].key if self._memory else FAR
        return min(key, self._heads[0][0]) if self._heads else key

    # -- files

    def flush(self, flushed_offset: int, frontier_ms: int) -> None:
        """Write entries whose records are flushed into the journal; make a run of a full one. No entry up to
        `frontier_ms` is waiting. Raises on a full disk, and can be called again."""
        whole = min(len(self._journal), self._run_size)
        while whole > self._file_count and self._journal[whole - 1].end > flushed_offset:
            whole -= 1
        if whole > self._file_count:
            if self._file is None:
                if not self._disk.is_dir(self.directory):
                    self._disk.make_dirs(self.directory)
                self._file = self._disk.open(self._journal_path(self._journal_start), create=True)
            self._file.write(self._file_count * ENTRY_SIZE, encode_entries(self._journal[self._file_count : whole]))
            self._file_count = whole
        if whole >= self._run_size:
            self._retire(whole, frontier_ms)
        for run in self.runs:
            if not run.is_written and run.start not in self._retired:
                self._retired[run.start] = run.path
                self._write_run(run)

    @property
    def is_full(self) -> bool:
        """A run can be made of the journal: one at a time, or the broker would stand still for the sorting."""
        return len(self._journal) >= self._run_size

    def _retire(self, count: int, frontier_ms: int) -> None:
        """Make a run of the first `count` entries of the journal. Those after them begin a new journal."""
        entries, self._journal = self._journal[:count], self._journal[count:]
        self.close()
        start, self._journal_start = self._journal_start, self._journal_start + count
        kept = sorted(entry for entry in entries if not entry.flags & SKIP)
        content = _RUN_HEADER.pack(_MAGIC, start, start + count, len(kept)) + encode_entries(kept)
        path = f"{self.directory}/run-{start:020d}"
        run = Run(self._disk, path, start, start + count, len(kept), content)
        run.seek(frontier_ms + 1)
        self.runs.append(run)
        self._push(run)
        # Entries that the run does not cover stay in memory: later ones, and those that came after their time.
        in_run = range(start, start + count)
        self._memory = [e for e in self._memory if e.queue_offset not in in_run or e.key <= frontier_ms]
        heapq.heapify(self._memory)

    def _write_run(self, run: Run) -> None:
        state = StateFile(self._disk, run.path, keep_backup=False, sealed=False)
        content = run.content
        assert content is not None, f"{run.path} is written already"

        def saved(error: OSError | StoreError | None) -> None:
            self._retired.pop(run.start, None)
            if error is None:
                run.written()
                journal = self._journal_path(run.start)
                if self._disk.exists(journal):
                    self._disk.unlink(journal)

        state.submit(content, saved)

    def finished(self) -> list[Run]:
        """Return runs of which nothing waits. Their files may go once the progress is saved without them."""
        return [run for run in self.runs if run.head is None and run.is_written]

    def drop(self, runs: list[Run]) -> None:
        """Delete the files of these runs: the progress without them is saved."""
        for run in runs:
            self.runs.remove(run)
            if self._disk.exists(run.path):
                self._disk.unlink(run.path)

    def manifest(self, without: list[Run]) -> tuple[int, list[int]]:
        """Return, for the progress, from where on a journal must tell, and which runs must exist."""
        gone = {run.start for run in without}
        unwritten = [run.start for run in self.runs if not run.is_written]
        runs = [run.start for run in self.runs if run.is_written and run.start not in gone]
        return min([self._journal_start, *unwritten]), runs

    def _push(self, run: Run) -> None:
        if run.head is not None:
            heapq.heappush(self._heads, (run.head.key, run.head.queue_offset, run))

    def _journal_path(self, start: int) -> str:
        return f"{self.directory}/journal-{start:020d}"
