"""The index: from topic and key to the physical offsets of records. RocketMQ: IndexService (5.5.0).

Keys are `topic#uniqueKey`, `topic#key` for each word of KEYS, and `topic#T#tag`. Files of `index/` are
named by the store time of their first record. The index is derived: which files make it up is noted in
`config/indexFiles.json` (ours; Apache ignores it), so that a file that went missing is noticed and built
again from the log.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from aerobee.errors import DiskFullError, StoreError
from aerobee.hot.log.index import IndexPut
from aerobee.hot.log.layout import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Draft
from aerobee.model.fields import int_of
from aerobee.model.numbers import parse_int
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Disk, File
from aerobee.store.config import StoreConfig
from aerobee.store.diskrules import sync_directory
from aerobee.store.dispatch import Sink
from aerobee.store.indexfile import IndexFile, Walk, key_hash
from aerobee.store.statefile import StateFile

INDEX_TAG_TYPE: Final = "T"
_TAGS: Final = b"TAGS"
# The end of the year 9999.
_NAMED_MAX: Final = 253_402_300_799_999
_NAME_SIZE: Final = 17
_RECORD_EXTRA: Final = 65536
_TIME_MAX: Final = 2**63 - 1
# The limit of records that wait for their entries: so few that making the entries does not hold up the sends.
_WAITING_MAX: Final = 256
_WAITING_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class IndexResult:
    """Physical offsets, newest first. Hashes can collide: whoever reads a record compares its key."""

    offsets: tuple[int, ...]
    last_update_timestamp: int
    last_update_offset: int


def index_keys(draft: Draft, topic: str) -> list[str]:
    """Return the keys under which a record is found. RocketMQ: IndexService.buildIndex."""
    if draft.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return []
    keys = []
    if draft.uniq_key:
        keys.append(f"{topic}#{draft.uniq_key}")
    if draft.keys:
        keys.extend(f"{topic}#{word}" for word in draft.keys.split(" ") if word)
    tags = find_property(draft.properties, _TAGS)
    if tags:
        keys.append(f"{topic}#{INDEX_TAG_TYPE}#{tags.decode('utf-8', 'replace')}")
    return keys


class _QueryRun:
    """A query whose reads come from the reader thread.

    It is an object because a function that asks for itself to be called would hold itself, and the request it answers,
    until the collector looks at everything.
    """

    def __init__(self, disk: Disk, walk: Walk, done: Callable[[OSError | None], None]) -> None:
        self._disk = disk
        self._walk = walk
        self._done = done

    def step(self, data: bytes | OSError | None) -> None:
        if isinstance(data, OSError):
            self._walk.close()
            self._done(data)
            return
        try:
            file, offset, size = next(self._walk) if data is None else self._walk.send(data)
        except StopIteration:
            self._done(None)
            return
        self._disk.read(file, offset, size, self.step)


class MessageIndex(Sink):
    """The sink that builds the index, and the queries. One thread owns it."""

    name = "index"

    def __init__(self, disk: Disk, root: str, config: StoreConfig) -> None:
        self._disk = disk
        self._directory = join(root, "index")
        self._config = config
        self._manifest = StateFile(disk, join(root, "config", "indexFiles.json"))
        self._files: list[IndexFile] = []
        self._unsettled: list[IndexFile] = []  # files with entries that a crash would take
        self._flushing: list[IndexFile] = []
        self._end = -1  # offset of the last record that has an entry
        self._waiting: list[Draft] = []
        self._key = 0  # the first key without an entry, of the first record that waits
        self.problems: list[str] = []  # what `recover` found wrong, in words

    def reconfigure(self, config: StoreConfig) -> None:
        """Take a new limit for queries. The size of new files stays that of the files there are."""
        self._config = config

    # Sink

    def recover(self, log_start: int, log_end: int) -> None:
        """Open the files; drop what is damaged, what follows a gap, and what the log no longer has."""
        self.problems = []
        self._waiting = []
        self._key = 0
        self._disk.make_dirs(self._directory)
        noted = self._read_manifest()
        present = [name for name in self._disk.listdir(self._directory) if _is_file_name(name)]
        self._files = []
        broken = False
        for name in sorted({*(noted or {}), *present}):
            if name not in present:
                expired = noted is not None and 0 <= noted[name] < log_start
                if not expired and not broken:
                    self.problems.append(f"{self._directory}/{name} is missing: built again from the log")
                    broken = True
            elif broken:
                self._disk.unlink(join(self._directory, name))
            else:
                # Without a manifest (Apache wrote the files), a gap larger than any record shows a missing file.
                reach = self._config.max_message_size + _RECORD_EXTRA if noted is None else _TIME_MAX
                broken = not self._open_existing(name, log_start, reach)
        self._cut(log_end)
        if not self._seal_older():
            self._cut(log_end)
        self._write_manifest()

    def _open_existing(self, name: str, log_start: int, reach: int) -> bool:
        """Take a file up. Return False where it is unusable and was removed."""
        path = join(self._directory, name)
        file = IndexFile(self._disk, path, self._config.max_hash_slot_num, self._config.max_index_num)
        problem = file.problem
        if problem is None and self._files and not self._files[-1].full:
            problem = f"{self._files[-1].name} before it lost entries"
        before = self._files[-1].header.end_offset if self._files else log_start
        if problem is None and not file.empty and file.header.begin_offset - before > reach:
            problem = f"nothing is indexed between {before} and {file.header.begin_offset}"
        if problem is None and not file.empty:
            self._files.append(file)
            return True
        if problem is not None:
            self.problems.append(f"{path}: {problem}: built again from the log")
        file.close()
        self._disk.unlink(path)
        return False  # an empty file too: a crash may have taken its entries, and later files do not have them

    def _seal_older(self) -> bool:
        """Give each older file the slots that a crash kept it from writing.

        Return False where a damaged file, and with it all that follow, had to go.
        """
        unsealed: list[IndexFile] = []
        for position, file in enumerate(self._files[:-1]):
            if file.sealed:
                continue
            if file.begin_writing():
                file.save()
                if file.sealed:
                    file.release_slots()
                else:
                    unsealed.append(file)  # no room for its slots: they stay in memory, and a later flush tries again
                continue
            self.problems.append(f"{file.path}: {file.problem}: built again from the log")
            for later in reversed(self._files[position:]):
                self._drop(later)
            return False
        self._unsettled[:0] = unsealed
        return True

    def position(self) -> int:
        """Return the place of the last record with a durable entry, -1 for an empty index.

        Dispatching from that record on gives the whole index.
        """
        settled = [file for file in self._files if file not in self._unsettled]
        found = settled[-1].header.end_offset if settled else -1
        for file in self._unsettled:
            if file.durable.count > 1:
                found = file.durable.end_offset
            if not file.settled:
                break
        return found

    @property
    def end_timestamp(self) -> int:
        """Return the store time of the last record with an entry, for the checkpoint's indexMsgTimestamp."""
        return self._files[-1].header.end_timestamp if self._files else 0

    def dispatch(self, drafts: list[Draft]) -> None:
        """Take records in; those that have their entries are passed over.

        The entries are made later, many at once: a query and a flush make them first.
        """
        taken = drafts
        waiting = self._waiting
        if waiting and taken and taken[0].physical_offset <= waiting[-1].physical_offset:
            known = waiting[-1].physical_offset
            taken = [draft for draft in taken if draft.physical_offset > known]
        waiting.extend(taken)
        if len(waiting) >= _WAITING_MAX or (
            taken and taken[-1].physical_offset - waiting[0].physical_offset >= _WAITING_BYTES_MAX
        ):
            self._drain_if_possible()

    def _drain_if_possible(self) -> None:
        """Make the entries of waiting records.

        What cannot be written now keeps waiting, and `flush` raises the error.
        """
        with contextlib.suppress(OSError, DiskFullError):
            self._drain()

    def _drain(self) -> None:
        """Make the entries of the records that wait."""
        waiting, first = self._waiting, 0
        while first < len(waiting) and waiting[first].physical_offset < self._end:
            first += 1
        if first < len(waiting) and waiting[first].physical_offset == self._end and not self._key:
            self._put_again(waiting[first])
            first += 1
        put = IndexPut(waiting[first:] if first else waiting)
        put.key = self._key
        try:
            while put.has_entries():
                newest = self._writable(put.drafts[put.draft].store_timestamp)
                newest.put_all(put)
                if put.end_offset >= 0:
                    self._end = put.end_offset
        finally:
            self._key = put.key
            del waiting[: first + put.draft]
        if self._files:
            self._files[-1].write_if_large()

    def _put_again(self, draft: Draft) -> None:
        """Add the missing entries of the last record that has one: a crash may have left only some of them."""
        for hashed in IndexPut([]).hashes(draft):
            if not self._holds(hashed, draft.physical_offset):
                self._writable(draft.store_timestamp).put(hashed, draft.physical_offset, draft.store_timestamp)

    def _holds(self, hashed: int, offset: int) -> bool:
        for file in self._files[-2:]:
            found: list[int] = []
            _run(file.walk(hashed, 1, 0, _TIME_MAX, found))
            if found and found[0] == offset:
                return True
        return False

    def _writable(self, store_timestamp: int) -> IndexFile:
        if self._files and not self._files[-1].full:
            newest = self._files[-1]
        else:
            name = _file_name(store_timestamp)
            if self._files and name <= self._files[-1].name:
                name = str(parse_int(self._files[-1].name) + 1)
            path = join(self._directory, name)
            slots, entries = self._config.max_hash_slot_num, self._config.max_index_num
            newest = IndexFile(self._disk, path, slots, entries, create=True)
            self._files.append(newest)
            self._write_manifest()
        if newest not in self._unsettled:
            self._unsettled.append(newest)
        return newest

    def flush(self) -> list[File]:
        """Write what memory holds. This is meant for the thorough interval: with many keys it writes all slots."""
        self._drain()
        self._flushing = [file for file in self._unsettled if file.flush()]
        return [file.file for file in self._flushing]

    def flushed(self) -> None:
        """Note that the files were synced."""
        for file in self._flushing:
            file.flushed()
        self._flushing = []
        for file in self._unsettled[:-1]:
            if file.sealed:
                file.release_slots()
                self._unsettled.remove(file)

    def truncate(self, physical_offset: int) -> None:
        """Forget the entries of records at or beyond this offset: the log ends there now."""
        self._drain()
        self._flushing = []
        self._cut(physical_offset)
        for file in self._unsettled:
            file.save()
        self._write_manifest()

    def _cut(self, physical_offset: int) -> None:
        while self._files:
            newest = self._files[-1]
            usable = newest.cut(physical_offset) and newest.begin_writing()
            if usable and not newest.empty:
                break
            if not usable:
                self.problems.append(f"{newest.path}: {newest.problem}: built again from the log")
            self._drop(newest)
        self._end = self._files[-1].header.end_offset if self._files else -1
        self._unsettled = [file for file in self._unsettled if file in self._files[:-1]] + self._files[-1:]

    def _drop(self, file: IndexFile) -> None:
        file.close()
        self._disk.unlink(file.path)
        self._files.remove(file)
        if file in self._unsettled:
            self._unsettled.remove(file)

    def delete_expired(self, log_start: int) -> int:
        """Remove files whose records are all gone, never the newest. RocketMQ: IndexService.deleteExpiredFile."""
        self._drain_if_possible()
        count = 0
        while len(self._files) > 1 and self._files[0].header.end_offset < log_start:
            self._drop(self._files[0])
            count += 1
        if count:
            self._write_manifest()
        return count

    def close(self) -> None:
        """Make everything durable and let the files go."""
        try:
            self._drain()
            for file in self._unsettled:
                file.save()
        finally:
            for file in self._files:
                file.close()
            self._files = []
            self._unsettled = []

    # Queries

    def query(
        self,
        topic: str,
        key: str,
        limit: int,
        begin: int = 0,
        end: int = _TIME_MAX,
        index_type: str | None = None,
    ) -> IndexResult:
        """Return the records that carry a key, read on this thread. RocketMQ: IndexService.queryOffset."""
        found: list[int] = []
        _run(self._walk(topic, key, limit, (begin, end), index_type, found))
        return self._result(found)

    def submit_query(
        self,
        topic: str,
        key: str,
        limit: int,
        span: tuple[int, int],
        index_type: str | None,
        done: Callable[[IndexResult | OSError], None],
    ) -> None:
        """Query as `query` does, with every read off the caller's thread."""
        found: list[int] = []
        walk = self._walk(topic, key, limit, span, index_type, found)
        _QueryRun(self._disk, walk, lambda error: done(self._result(found) if error is None else error)).step(None)

    def _result(self, found: list[int]) -> IndexResult:
        newest = self._files[-1].header if self._files else None
        offsets = tuple(dict.fromkeys(found))
        if newest is None:
            return IndexResult(offsets, 0, 0)
        return IndexResult(offsets, newest.end_timestamp, newest.end_offset)

    def _walk(
        self,
        topic: str,
        key: str,
        limit: int,
        span: tuple[int, int],
        index_type: str | None,
        found: list[int],
    ) -> Walk:
        self._drain_if_possible()
        begin, end = span
        limit = min(limit, self._config.max_msgs_num_batch)
        typed = f"{INDEX_TAG_TYPE}#" if index_type == INDEX_TAG_TYPE else ""
        hashed = key_hash(f"{topic}#{typed}{key}")
        for file in reversed(list(self._files)):
            if file.matches_time(begin, end):
                yield from file.walk(hashed, limit, begin, end, found)
            if file.header.begin_timestamp < begin or len(found) >= limit:
                return

    # Which files there are

    def _read_manifest(self) -> dict[str, int] | None:
        """Return the offset of the last record in each file, by name; -1 where the file was still taking entries."""
        try:
            return self._manifest.load(_decode_manifest)
        except StoreError as error:
            # The manifest is derived like the index itself. So unlike other state it is no reason to refuse the start.
            self.problems.append(f"{error.message}: each index file is checked by itself")
            return None

    def _write_manifest(self) -> None:
        # The directory is synced before the manifest stops naming a removed file: a power cut could bring it back.
        sync_directory(self._disk, self._directory)
        files = {file.name: file.header.end_offset if file.full else -1 for file in self._files}
        self._manifest.save(json.dumps({"files": files}, indent=1).encode())


def _decode_manifest(content: bytes) -> dict[str, int]:
    files: Any = json.loads(content)["files"]
    return {str(name): int_of(files, name) for name in files}


def _is_file_name(name: str) -> bool:
    return len(name) == _NAME_SIZE and name.isascii() and name.isdecimal()


def _run(walk: Walk) -> None:
    """Answer each request of a walk at once."""
    try:
        file, offset, size = next(walk)
        while True:
            file, offset, size = walk.send(file.read(offset, size))
    except StopIteration:
        return


def _file_name(store_timestamp: int) -> str:
    """Return the name yyyyMMddHHmmssSSS, in UTC so that names never run backwards."""
    # A record may hold any number: one that is no time still gets a name.
    shown = min(max(store_timestamp, 0), _NAMED_MAX)
    moment = datetime.fromtimestamp(shown // 1000, UTC)
    return f"{moment:%Y%m%d%H%M%S}{shown % 1000:03d}"
