"""The key index against the log: every entry has its record and key, every key its entry, every chain its order.

Entries are written in log order, so one walk over the log compares them all; memory holds a stretch of entries and the
slots of one file. RocketMQ: IndexFile.putKey, IndexService.buildIndex.
"""

from __future__ import annotations

from aerobee.hot.log.index import encode_index_entry, index_hash, index_keys, index_tag_key, match_entries
from aerobee.hot.log.layout import INDEX_ENTRY_OFFSET_POS, INDEX_ENTRY_SIZE
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Draft
from aerobee.model.dialect import DialectError, loads
from aerobee.store.indexfile import ENTRY
from aerobee.store.offline.directory import StoreDirectory
from aerobee.store.offline.indexfiles import find_index_files
from aerobee.store.offline.indexparts import Chains, EntryReader, IndexEntry, Times
from aerobee.store.offline.problems import Findings, Problem
from aerobee.store.offline.walk import OfflineLog


class IndexChecker:
    """Compares the index with the log's records, which it is given in order; `finish` looks at what is left."""

    def __init__(self, store: StoreDirectory, log: OfflineLog, findings: Findings) -> None:
        self._store = store
        self._log = log
        self._findings = findings
        self.files = find_index_files(store)
        self.damages: list[tuple[int, int]] = []
        self.compared = 0
        self.behind = 0
        self._is_on = True
        self._entries = EntryReader(store, self.files, self.add)
        self._chains = Chains(store, self.files, self.add)
        self._times = Times(store, self.files, self.add)
        # Entries whose offset is no record's. Which record they belong to shows when a record lacks one.
        self._strays: list[IndexEntry] = []
        # Keys without an entry, which may still come out of order: hash, record, and whether it is a tag's.
        self._lacking: list[tuple[int, Draft, bool]] = []
        self._missing_at = -1
        self._missing = 0
        self._untagged = 0
        self._keyed = 0
        # Files that Aerobee noted and that are not there any more.
        self._lost = [name for name in self._noted() if name not in {view.name for view in self.files}]
        self._judge()

    def _noted(self) -> list[str]:
        try:
            value = loads(self._store.read(self._store.path("config", "indexFiles.json")))
            return sorted(name for name, end in value["files"].items() if end < 0 or end >= self._log.start)
        except (DialectError, KeyError, TypeError, AttributeError):
            return []

    def _judge(self) -> None:
        config = self._store.config
        if config is not None and not config.message_index_enable:
            self._is_on = False
            return
        for view in self.files:
            if not view.slot_count:
                self._findings.unseen.append(
                    f"{self._store.shown(view.path)}: {view.size} bytes long, so its slots cannot be counted: give the "
                    "broker's configuration (-c) or --set maxHashSlotNum=N --set maxIndexNum=N"
                )
                self._is_on = False

    def add(self, path: str, offset: int, what: str, count: int = 1) -> None:
        self._findings.add(
            Problem(part="index", path=self._store.shown(path), offset=offset, what=what, repairable=True, count=count)
        )

    # ---- records ----

    def take(self, drafts: list[Draft]) -> None:
        """Compare the entries of these records."""
        if not self._is_on:
            return
        position = 0
        while position < len(drafts):
            position = self._take_run(drafts, position)
            if position >= len(drafts):
                return
            draft = drafts[position]
            position += 1
            expected = [index_hash(key) for key in index_keys(draft)]
            found = self._entries_of(draft.physical_offset)
            if self._store.deletions.covers(draft.topic, draft.physical_offset):
                # Entries made before their topic was deleted stay; those that were lost are not made again.
                hashes = {entry.hashed for entry in found}
                expected = [hashed for hashed in expected if hashed in hashes]
            if not expected and not found:
                continue
            self._keyed += 1
            self._compare(draft, expected, found)

    def _take_run(self, drafts: list[Draft], position: int) -> int:
        """Pass over the drafts whose entries are exactly the next ones.

        Return the first that needs a closer look. A file's first and last entry need one, because its header speaks of
        them.
        """
        entries = self._entries
        if entries.peek() is None or entries.number == 1:
            return position
        header = self.files[entries.file].header
        slots = self._chains.slots_of(entries.file)
        end, taken = match_entries(
            drafts,
            position,
            entries.buf,
            entries.at,
            entries.number,
            header.count - 1,
            header.begin_timestamp,
            slots,
        )
        if taken:
            self._times.count_good(entries.file, taken)
            entries.skip(taken)
            self.compared += taken
            self._keyed += end - position
            if self._missing:
                self._tell_missing()
        return end

    def _entries_of(self, offset: int) -> list[IndexEntry]:
        """Return the entries of the record at `offset`. Entries before it in the index have no record."""
        found: list[IndexEntry] = []
        while True:
            entry = self._entries.peek()
            if entry is None:
                return found
            if entry.physical_offset > offset and not self._entries.is_outlier(entry):
                return found
            self._entries.skip()
            if entry.physical_offset == offset:
                found.append(entry)
            else:
                self._take_stray(entry)

    def _take_stray(self, entry: IndexEntry) -> None:
        self._chains.link(entry, entry.hashed)
        offset = entry.physical_offset
        if 0 <= offset < self._log.start or any(start <= offset < end for start, end in self.damages):
            return
        for lack in self._lacking:
            hashed, draft, is_tag = lack
            if hashed == entry.hashed:
                self._lacking.remove(lack)
                self._tell_entry(entry, entry._replace(physical_offset=draft.physical_offset), draft)
                if is_tag:
                    self._untagged -= 1
                elif self._missing:
                    self._missing -= 1
                return
        self._strays.append(entry)
        if len(self._strays) > 100:
            self._tell_stray(self._strays.pop(0))

    def _tell_stray(self, entry: IndexEntry) -> None:
        view = self.files[entry.file]
        what = f"entry {entry.number}: no record stands at {entry.physical_offset}"
        self.add(view.path, view.entry_at(entry.number) + INDEX_ENTRY_OFFSET_POS, what)

    def _compare(self, draft: Draft, expected: list[int], found: list[IndexEntry]) -> None:
        hashes = [entry.hashed for entry in found]
        self.compared += len(found)
        if hashes == expected:
            for entry in found:
                self._chains.link(entry, entry.hashed)
                self._times.take(entry, draft)
            if self._missing:
                self._tell_missing()
            return
        lacking = [hashed for hashed in expected if hashed not in hashes]
        for entry in found:
            self._times.take(entry, draft)
            right = entry.hashed
            if entry.hashed not in expected:
                right = lacking.pop(0) if lacking else -1
                self._tell_entry(entry, entry._replace(hashed=right), draft)
            self._chains.link(entry, right if right >= 0 else entry.hashed)
        lacking = self._claim_strays(draft, lacking)
        if found and self._missing:
            self._tell_missing()
        if not lacking:
            return
        is_tag = bool(found) and self._is_only_tag(draft, lacking)
        self._lacking = [*self._lacking[-32:], *((hashed, draft, is_tag) for hashed in lacking[:32])]
        if is_tag:
            self._untagged += 1  # releases before 5 index no tags
        else:
            self._missing_at = draft.physical_offset if self._missing_at < 0 else self._missing_at
            self._missing += len(lacking)

    def _claim_strays(self, draft: Draft, lacking: list[int]) -> list[int]:
        """Find the entries of this record whose offset is damaged."""
        left: list[int] = []
        for hashed in lacking:
            stray = next((entry for entry in self._strays if entry.hashed == hashed), None)
            if stray is None:
                left.append(hashed)
                continue
            self._strays.remove(stray)
            self._tell_entry(stray, stray._replace(physical_offset=draft.physical_offset), draft)
        return left

    def _tell_entry(self, entry: IndexEntry, right: IndexEntry, draft: Draft) -> None:
        view = self.files[entry.file]
        present = ENTRY.pack(*entry[:4])
        at = 0
        if right.hashed >= 0:
            wanted = encode_index_entry(*right[:4])
            at = next((i for i in range(INDEX_ENTRY_SIZE) if present[i] != wanted[i]), 0)
        what = f"entry {entry.number} is not that of its record {draft.physical_offset}"
        self.add(view.path, view.entry_at(entry.number) + at, what)

    def _is_only_tag(self, draft: Draft, lacking: list[int]) -> bool:
        tags = find_property(draft.properties, b"TAGS")
        if tags is None or len(lacking) > 1:
            return False
        key = index_tag_key(draft.topic.decode("utf-8", "replace"), tags.decode("utf-8", "replace"))
        return lacking[0] == index_hash(key)

    def _tell_missing(self) -> None:
        """Report keys without an entry: where later entries follow, they are not only late."""
        files = self.files
        path = files[min(self._entries.file, len(files) - 1)].path if files else self._store.path("index")
        what = f"no entry for {self._missing} keys of the record at {self._missing_at} and those behind it"
        if self._lost:
            path = self._store.path("index", self._lost.pop(0))
            what = f"the file is missing: {what}"
        self.add(path, 0, what, self._missing)
        self._missing, self._missing_at = 0, -1

    # ---- the end ----

    def finish(self, log_end: int) -> None:
        """Report what is left once the log was walked to `log_end`."""
        if not self._is_on:
            return
        while (entry := self._entries.peek()) is not None:
            self._entries.skip()
            if entry.physical_offset < log_end or self._store.is_settled:
                self._take_stray(entry)
        for stray in self._strays:
            self._tell_stray(stray)
        self._entries.close()
        self._chains.finish()
        self._times.finish()
        if self._untagged:
            self._findings.notes.append(f"{self._untagged} records have no tag in the index: an older release wrote it")
        if not self._missing:
            return
        if not self.files and not self._lost and self._store.is_settled:
            what = (
                f"no index file, though {self._keyed} records have keys (or is messageIndexEnable=false? then give -c)"
            )
            self.add(self._store.path("index"), 0, what, self._missing)
        elif self._store.is_settled:
            self._tell_missing()
        else:
            self.behind = self._missing
