"""What an index file says about itself: header, chains of entries, slots, times. The checks that need no key."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from aerobee.hot.log.index import seconds_since
from aerobee.hot.log.layout import (
    INDEX_BEGIN_OFFSET_POS,
    INDEX_COUNT_POS,
    INDEX_END_OFFSET_POS,
    INDEX_ENTRY_PREVIOUS_POS,
    INDEX_ENTRY_SECONDS_POS,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
)
from aerobee.hot.log.record import Draft
from aerobee.runtime.seams import File
from aerobee.store.indexfile import ENTRY
from aerobee.store.offline.directory import StoreDirectory
from aerobee.store.offline.indexfiles import IndexFileView, read_entries, read_slots


class IndexEntry(NamedTuple):
    """One entry, and where it stands."""

    hashed: int
    physical_offset: int
    seconds: int
    older: int
    number: int
    file: int


class Tell(Protocol):
    """A function that takes a problem: file, first bad byte, sentence."""

    def __call__(self, path: str, offset: int, what: str, count: int = 1) -> None: ...


def first_bad(said: int, right: int, size: int) -> int:
    """Return the first byte in which two big-endian numbers differ."""
    differs = ((said ^ right) & ((1 << size * 8) - 1)).to_bytes(size, "big")
    return next((position for position in range(size) if differs[position]), 0)


class EntryReader:
    """Reads all entries of all files in order, and compares each file's header with its length and its entries."""

    def __init__(self, store: StoreDirectory, files: list[IndexFileView], tell: Tell) -> None:
        self._store = store
        self._files = files
        self._tell = tell
        self.file = -1
        # Entries at hand: `buf` from `at` on, the first of them is `number`.
        self.buf = b""
        self.at = 0
        self.number = 1
        self._open: File | None = None

    def peek(self) -> IndexEntry | None:
        """Return the next entry; None behind the last."""
        while self.at >= len(self.buf):
            self.buf, self.at = b"", 0
            if self._open is not None:
                self.buf = read_entries(self._open, self._files[self.file], self.number)
            if not self.buf and not self._next_file():
                return None
        hashed, offset, seconds, older = ENTRY.unpack_from(self.buf, self.at)
        return IndexEntry(hashed, offset, seconds, older, self.number, self.file)

    def skip(self, count: int = 1) -> None:
        """Pass over entries that were dealt with."""
        self.at += count * INDEX_ENTRY_SIZE
        self.number += count

    def _next_file(self) -> bool:
        self.close()
        while self.file + 1 < len(self._files):
            self.file += 1
            view = self._files[self.file]
            try:
                self._open = self._store.disk.open(view.path, write=False)
            except FileNotFoundError:
                continue  # deleted with its records
            if self._check_header(view, self._open):
                self.number = 1
                return True
            self.close()
        return False

    def _check_header(self, view: IndexFileView, file: File) -> bool:
        """Tell whether the entries can be read as the header says."""
        header = view.header
        wanted = view.entry_at(view.entry_count)
        if view.size != wanted:
            self._tell(view.path, min(view.size, wanted), f"the file is {view.size} bytes long, not {wanted}")
        if not 0 < header.count <= view.entry_count:
            what = f"the header counts {header.count} entries, the file has room for {view.entry_count}"
            self._tell(view.path, INDEX_COUNT_POS, what)
            return False
        if header.count == 1 or self._store.is_live:
            return True
        guess = f" (its {view.slot_count} slots are guessed: give -c if that is wrong)" if view.is_guess else ""
        first = ENTRY.unpack(file.read(view.entry_at(1), INDEX_ENTRY_SIZE).ljust(INDEX_ENTRY_SIZE, b"\0"))
        last = ENTRY.unpack(file.read(view.entry_at(header.count - 1), INDEX_ENTRY_SIZE).ljust(INDEX_ENTRY_SIZE, b"\0"))
        if last == (0, 0, 0, 0):
            what = f"the header counts {header.count - 1} entries, the last of them is empty{guess}"
            self._tell(view.path, INDEX_COUNT_POS, what)
            return True
        for at, name, said, found in (
            (INDEX_BEGIN_OFFSET_POS, "begin", header.begin_offset, first[1]),
            (INDEX_END_OFFSET_POS, "end", header.end_offset, last[1]),
        ):
            if said != found:
                what = f"{name} offset {said} in the header is not that of the entries, {found}{guess}"
                self._tell(view.path, at + first_bad(said, found, 8), what)
        # With Apache's broker store time may have gone back; with ours it cannot.
        begin, end = header.begin_timestamp, header.end_timestamp
        if self._store.is_ours and begin > end:
            self._tell(view.path, first_bad(begin, end, 8), f"begin time {begin} lies behind end time {end}")
        return True

    def is_outlier(self, entry: IndexEntry) -> bool:
        """Tell whether the next entry's offset, which runs ahead, is out of order, and so damaged.

        Two that follow must agree: of two neighbours either may be the damaged one.
        """
        following = [
            ENTRY.unpack_from(self.buf, at)[1]
            for at in (self.at + INDEX_ENTRY_SIZE, self.at + 2 * INDEX_ENTRY_SIZE)
            if at + INDEX_ENTRY_SIZE <= len(self.buf)
        ]
        if len(following) < 2:
            following.append(self._files[entry.file].header.end_offset)
        return all(entry.physical_offset > later for later in following)

    def close(self) -> None:
        """Let the file go."""
        if self._open is not None:
            self._open.close()
            self._open = None


class Chains:
    """Checks that each entry names the one before it in its slot, and each slot its newest entry."""

    def __init__(self, store: StoreDirectory, files: list[IndexFileView], tell: Tell) -> None:
        self._store = store
        self._files = files
        self._tell = tell
        self._file = -1
        self._slots: list[int] = []

    def slots_of(self, file: int) -> list[int]:
        """Return the newest entry of each slot so far.

        Whoever adds entries without `link` keeps the list up to date.
        """
        if file != self._file:
            self._check_slots()
            self._file = file
            self._slots = [0] * self._files[file].slot_count
        return self._slots

    def link(self, entry: IndexEntry, hashed: int) -> None:
        """Take the next entry in order; `hashed` is the hash of its record's key."""
        slots = self.slots_of(entry.file)
        slot = hashed % len(slots)
        right = slots[slot]
        if entry.older != right:
            view = self._files[entry.file]
            at = view.entry_at(entry.number) + INDEX_ENTRY_PREVIOUS_POS + first_bad(entry.older, right, 4)
            what = f"entry {entry.number} names {entry.older} as the entry before it in its slot, which is {right}"
            self._tell(view.path, at, what)
        slots[slot] = entry.number

    def finish(self) -> None:
        """Check the slots: all entries were linked."""
        self._check_slots()

    def _check_slots(self) -> None:
        if self._file < 0:
            return
        view = self._files[self._file]
        # Aerobee writes the slots of its newest file when it is full or closed, and says 0 until then.
        is_newest = self._file == len(self._files) - 1
        if not view.header.slots_used or (is_newest and self._store.is_live):
            return
        try:
            file = self._store.disk.open(view.path, write=False)
        except FileNotFoundError:
            return
        try:
            found = read_slots(file, view)
        finally:
            file.close()
        used = len(self._slots) - self._slots.count(0)
        if view.header.slots_used != used:
            what = f"the header counts {view.header.slots_used} slots in use, the entries use {used}"
            self._tell(view.path, 32 + first_bad(view.header.slots_used, used, 4), what)
        if found != self._slots and len(found) == len(self._slots):
            self._compare_slots(view, found)

    def _compare_slots(self, view: IndexFileView, found: list[int]) -> None:
        for slot, (said, right) in enumerate(zip(found, self._slots, strict=True)):
            # After a crash a slot may name an entry that is not counted yet: readers pass over it.
            is_early = view.header.count <= said < view.entry_count and self._store.has_abort
            if said != right and not is_early:
                at = INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE + first_bad(said, right, 4)
                self._tell(view.path, at, f"slot {slot} names entry {said}, its newest is {right}")


class Times:
    """Checks the times of entries, which count from the file's first record. One bad header makes all look bad."""

    def __init__(self, store: StoreDirectory, files: list[IndexFileView], tell: Tell) -> None:
        self._store = store
        self._files = files
        self._tell = tell
        self._file = -1
        self._good = 0
        self._bad: list[tuple[IndexEntry, int]] = []

    def count_good(self, file: int, count: int) -> None:
        """Count entries of a file that were found right elsewhere."""
        if file != self._file:
            self.finish()
            self._file = file
        if self._good >= 0:
            self._good += count

    def take(self, entry: IndexEntry, draft: Draft) -> None:
        """Compare with the record's store time."""
        self.count_good(entry.file, 0)
        view = self._files[entry.file]
        header = view.header
        seconds = seconds_since(header.begin_timestamp, draft.store_timestamp)
        if entry.number == 1:
            if header.begin_timestamp != draft.store_timestamp:
                at = first_bad(header.begin_timestamp, draft.store_timestamp, 8)
                what = f"begin time {header.begin_timestamp} in the header is not that of its first record"
                self._tell(view.path, at, what)
                self._good = -1
            seconds = 0
        if entry.number == header.count - 1:
            self._check_end(view, draft)
        if self._good < 0:
            return
        if entry.seconds == seconds:
            self._good += 1
        elif len(self._bad) < 1000:
            self._bad.append((entry, seconds))

    def _check_end(self, view: IndexFileView, draft: Draft) -> None:
        """Check the header's end. A cut index knows its last record's time to the second only."""
        said = view.header.end_timestamp
        if not 0 <= said - draft.store_timestamp < 1000 and not self._store.is_live:
            at = 8 + first_bad(said, draft.store_timestamp, 8)
            self._tell(view.path, at, f"end time {said} in the header is not that of its last record")

    def finish(self) -> None:
        """Report the bad times of a file whose entries were all seen."""
        bad, good = self._bad, self._good
        self._bad, self._good = [], 0
        if not bad:
            return
        view = self._files[self._file]
        if not good and len(bad) > 1:
            what = f"begin time {view.header.begin_timestamp} in the header fits none of its entries"
            self._tell(view.path, 0, what, len(bad))
            return
        for entry, seconds in bad:
            at = view.entry_at(entry.number) + INDEX_ENTRY_SECONDS_POS + first_bad(entry.seconds, seconds, 4)
            what = f"entry {entry.number} says {entry.seconds} s after the first record, its record says {seconds}"
            self._tell(view.path, at, what)
