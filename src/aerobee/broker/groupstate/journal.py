"""The driver of a group's state: a leader journals what changed in its tables, a follower applies what is dispatched.

A leader compares its tables with the image of what the journal says, so that no way of changing a table can be
forgotten. Changes of administrators are written with the next tick or at once, where somebody waits for them. Consume
offsets and the progress of delays are gathered for a second. A snapshot is written in pieces when a leader begins,
later after so many bytes of the log, and every hour: so a start reads few records, and retention does not take them.

The deletion of a topic is done when its record is dispatched, by leader and follower alike, before anything behind it
is: all replicas delete the same records.

The files of Apache's in `config/` are saved as ever, with a mark. A file without the mark was written by another broker
(Apache's, or ours without replicas): then the file wins over the journal, and the leader journals the difference.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from aerobee.broker.groupstate.entries import DECODERS
from aerobee.broker.groupstate.image import StateImage
from aerobee.broker.groupstate.records import (
    END_CODE,
    PIECE_SIZE,
    TOPIC,
    Entries,
    StateKind,
    StateRecord,
    pieces,
    read_state,
    size_of,
    state_draft,
)
from aerobee.broker.groupstate.sections import Section, Sections
from aerobee.broker.log import queue_records
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.log.record import VERIFY_RECORD, Draft, Record, decode_record
from aerobee.hot.log.units import decode_units
from aerobee.model.topic import TopicConfig
from aerobee.runtime.seams import Clock
from aerobee.store.deleting import delete_topics_below
from aerobee.store.messagestore import MessageStore
from aerobee.store.setaside import UNUSABLE
from aerobee.store.statefile import SENSELESS
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

GATHER_S: Final = 1.0
SNAPSHOT_BYTES: Final = 64 << 20
SNAPSHOT_S: Final = 3600.0
# How long somebody waits for a change to be confirmed.
_CONFIRM_S: Final = 5.0
# Pieces of a snapshot in one tick.
_PIECES_MAX: Final = 4
_UNITS_MAX: Final = 1024
# What a record of a change has besides its entries, with room to spare.
_HEAD_SIZE: Final = 1024
_READER: Final = "group state"
_log = get_log("broker.groupstate")

Confirmed = Callable[[StoreError | None], None]


class StateJournal:
    """The state of one replica. `watch` before the store is opened, `open` when the tables are loaded."""

    def __init__(
        self,
        store: MessageStore,
        sections: Sections,
        host: bytes,
        clock: Clock,
        *,
        settings: Callable[[dict[str, str]], object] = lambda values: None,
    ) -> None:
        """`host` is the broker's address in records. `settings` takes the settings that the master was given."""
        self.image = StateImage(sections.all)
        self._store = store
        self._sections = sections
        self._host = host
        self._clock = clock
        self._settings = settings
        self._warn = RateLimitedLog(_log, clock)
        self._is_open = False
        self.is_leading = False
        self._next_gather_s = 0.0
        # The versions of sections that were compared last.
        self._versions: dict[str, object] = {}
        # The entries that the snapshot under way still lacks, and the queue offset of its begin.
        self._snapshot: deque[tuple[str, str]] | None = None
        self._snapshot_begin = -1
        # Where the log began and ended with the last snapshot (-1: there is none), and when that was.
        self._snapshot_start = -1
        self._snapshot_end = -1
        self._snapshot_s = 0.0

    # -- start

    def watch(self) -> None:
        """Follow the records of the state topic from the first dispatch on. Call it before the store is opened."""
        self._store.dispatcher.watch(TOPIC, self._dispatched)
        self._sections.owners.on_new = self.write_urgent

    def open(self) -> None:
        """Take up the state that the journal tells, in every table whose file another broker did not write."""
        begin, end = self._last_snapshot()
        for _, record in queue_records(self._store, TOPIC, 0, begin):
            if record is not None:
                self._learn(record, live=False)
        self._snapshot_end = end
        for section in self._sections.all.values():
            if section.file is not None:
                if end >= 0 and section.file.was_journalled:
                    self._install(section)
                elif end >= 0:
                    _log.warning(
                        "another broker wrote the file: it counts, not the journal", file=section.file.file_name
                    )
            elif section.name == "owners" and not self.image.sections["owners"]:
                # The group was kept before owners were journalled: what the file says counts.
                continue
            elif section.name != "progress":
                self._install(section)
        for section in self._sections.all.values():
            if section.file is not None:
                section.file.is_journalled = True
        self._is_open = True

    def open_progress(self) -> None:
        """Tell the features that follow how far the master is. Call it after they are opened."""
        self._install(self._sections.all["progress"])

    def _last_snapshot(self) -> tuple[int, int]:
        """Return the queue offset from which a replay begins, and the end of the last whole snapshot in the log."""
        store = self._store
        low, queue = store.min_offset(TOPIC, 0), store.queues.find(TOPIC, 0)
        stop = store.max_offset(TOPIC, 0)
        while queue is not None and stop > low:
            start = max(low, stop - _UNITS_MAX)
            at, found = start, []
            while at < stop:
                units = decode_units(queue.units(at, stop - at))
                found += [(at + n, place) for n, (place, _, code) in enumerate(units) if code == END_CODE]
                at += max(1, len(units))
            for offset, place in reversed(found):
                for _, record in queue_records(store, TOPIC, 0, offset, 1):
                    said = None if record is None else self._read(record)
                    if said is not None and said.kind is StateKind.END and low <= said.begin < offset:
                        return said.begin, place
            stop = start
        return low, -1

    def _install(self, section: Section) -> None:
        """Make a table equal to what the journal says of it."""
        image, live = self.image.sections[section.name], dict(section.read())
        for key in live.keys() - image.keys():
            section.write(key, None)
        for key, value in image.items():
            if live.get(key) != value:
                self._write(section, key, value)

    # -- records

    def _dispatched(self, draft: Draft) -> None:
        """Take up a record that was just dispatched."""
        store = self._store
        try:
            record = decode_record(store.log.segments.read(draft.physical_offset, draft.size), 0, VERIFY_RECORD)
        except UNUSABLE as error:
            store.asides.add(_READER, error, draft)
            return
        said = self._read(record)
        if said is not None and said.kind is StateKind.DELETE:
            delete_topics_below(store, [topic.encode() for topic in said.topics], draft.physical_offset)
        if said is not None and self._is_open and not self.is_leading:
            self._apply(said, record, live=True)

    def _learn(self, record: Record, *, live: bool) -> None:
        said = self._read(record)
        if said is not None:
            self._apply(said, record, live=live)

    def _read(self, record: Record) -> StateRecord | None:
        try:
            if record.queue_id != 0:
                raise ValueError("the group's state stands in queue 0")
            return read_state(record)
        except UNUSABLE as error:
            self._store.asides.add(_READER, error, record)
            return None

    def _apply(self, said: StateRecord, record: Record, *, live: bool) -> None:
        """Take what a record says into the image and, with `live`, into the tables."""
        if said.kind is StateKind.BEGIN:
            self.image.begin()
        elif said.kind is StateKind.END:
            for name, key in self.image.end():
                if live:
                    self._write(self._sections.all[name], key, None)
            self._snapshot_end = record.physical_offset
        elif said.kind is StateKind.DELETE:
            for topic in said.topics:
                for name, key in self._entries_of(topic):
                    self._put(name, key, None, live=live)
        elif said.kind is StateKind.SETTINGS and live:
            self._settings(dict(said.values))
        for name, entries in said.entries.items():
            for key, value in entries.items() if name in DECODERS else ():
                try:
                    decoded = None if value is None else DECODERS[name](key, value)
                except SENSELESS as error:
                    self._store.asides.add(_READER, f"{name}/{key[:100]}: {error}", record)
                    continue
                self._put(name, key, decoded, live=live)

    def _put(self, name: str, key: str, value: Any, *, live: bool) -> None:
        self.image.put(name, key, value)
        if live:
            self._write(self._sections.all[name], key, value)

    def _write(self, section: Section, key: str, value: Any) -> None:
        try:
            section.write(key, value)
        except SENSELESS as error:
            self._warn.warning(
                section.name, "an entry of the group's state cannot be used here", section=section.name,
                entry=key[:100], reason=str(error)[:200],
            )  # fmt: skip

    def _entries_of(self, topic: str) -> list[tuple[str, str]]:
        """Return the entries that go with a topic."""
        prefix = f"{topic}@"
        found = [("topics", topic)]
        for name in ("offsets", "resets", "numbers"):
            found += [(name, key) for key in self.image.sections[name] if key.startswith(prefix)]
        return found

    # -- leading

    def lead(self) -> None:
        """Journal from now on. Everything that the log holds was dispatched."""
        self.image.forget_begin()
        self._sections.lead(self.image.sections)
        self._versions.clear()
        self._next_gather_s = 0.0
        self._snapshot_end = -1
        self.is_leading = True

    def tick(self, now_s: float) -> None:
        """Journal what changed, and go on with the snapshot. Call it often while leading."""
        if self.is_leading and self._store.is_open:
            gather = now_s >= self._next_gather_s
            if self._journal_changes(gather=gather) and gather:
                self._next_gather_s = now_s + GATHER_S
            self._go_on(now_s)

    def write_urgent(self) -> None:
        """Journal changes of administrators and of owners now: what is stored next stands behind them."""
        if self.is_leading and self._store.is_open:
            self._journal_changes(gather=False)

    def flush(self) -> bool:
        """Journal everything that changed, now. Return False where the log refused it."""
        return self._journal_changes(gather=True)

    def _journal_changes(self, *, gather: bool) -> bool:
        found: list[tuple[str, str, object]] = []
        values: list[tuple[str, str, Any]] = []
        versions: dict[str, object] = {}
        for section in self._sections.all.values():
            if section.in_snapshots or not (gather or section.at_once):
                continue
            version = section.version()
            if version is not None and version == self._versions.get(section.name):
                continue
            for key, value in self.image.changed(section.name, section.read()).items():
                kept = None if value is None else section.keep(value)
                encoded = None if value is None else section.encode(value)
                if self._is_written(section.name, key, encoded):
                    found.append((section.name, key, encoded))
                    values.append((section.name, key, kept))
            versions[section.name] = version
        if found:
            records = [StateRecord(StateKind.CHANGE, entries) for entries in pieces(found, self._piece_size)]
            if self._append(records) is None:
                return False
            for name, key, kept in values:
                self.image.put(name, key, kept)
        self._versions.update(versions)
        return True

    def _is_written(self, name: str, key: str, encoded: object) -> bool:
        """Tell whether an entry can be journalled. What no record can hold must not keep back the others."""
        try:
            size = size_of(key, encoded)
        except ValueError as error:
            self._warn.warning(
                name, "an entry of the group's state cannot be journalled", entry=repr(key)[:100], reason=error
            )
            return False
        if size > self._store.config.max_message_size - _HEAD_SIZE:
            self._warn.warning(
                name, "an entry of the group's state is too long for a record", entry=key[:100], size=size
            )
            return False
        return True

    @property
    def _piece_size(self) -> int:
        return min(PIECE_SIZE, self._store.config.max_message_size // 4)

    def _append(self, records: Iterable[StateRecord]) -> list[Draft] | None:
        """Store records, all or none; None where the log refused them. They are tried again."""
        now_ms = self._clock.now_ms()
        drafts = [state_draft(record, self._host, now_ms) for record in records]
        try:
            self._store.append(drafts)
        except AerobeeError as error:
            self._warn.warning(
                "append", "the group's state was not journalled now: a later tick tries again", reason=error
            )
            return None
        return drafts

    # -- snapshots

    def _go_on(self, now_s: float) -> None:
        if self._snapshot is None and self._is_snapshot_due(now_s):
            numbers = self._sections.all["numbers"].read()
            for key, value in self.image.changed("numbers", numbers).items():
                self.image.put("numbers", key, value)
            self._snapshot_start = self._store.log_start
            begun = self._append([StateRecord(StateKind.BEGIN)])
            if begun is not None:
                self._snapshot_begin = begun[0].queue_offset
                self._snapshot = deque(self.image)
        for _ in range(_PIECES_MAX):
            if self._snapshot is None:
                return
            self._write_piece(now_s)

    def _is_snapshot_due(self, now_s: float) -> bool:
        if self._snapshot_end < 0 or self._snapshot_start != self._store.log_start:
            return True  # where the log lost its beginning, the numbers of some queues stand nowhere else
        grown = self._store.log_end - self._snapshot_end
        bytes_max = min(SNAPSHOT_BYTES, self._store.config.mapped_file_size_commit_log // 2)
        return grown >= bytes_max or (grown > 0 and now_s - self._snapshot_s >= SNAPSHOT_S)

    def _write_piece(self, now_s: float) -> None:
        """Write entries as they are now. What changes later is journalled apart, and stands behind them."""
        assert self._snapshot is not None
        entries: Entries = {}
        count = size = 0
        for name, key in self._snapshot:
            value = self.image.sections[name].get(key)
            if value is not None:
                encoded = entries.setdefault(name, {})[key] = self._sections.all[name].encode(value)
                size += size_of(key, encoded)
            count += 1
            if size >= self._piece_size:
                break
        if entries:
            if self._append([StateRecord(StateKind.CHANGE, entries)]) is None:
                return
        for _ in range(count):
            self._snapshot.popleft()
        if self._snapshot:
            return
        if self._append([StateRecord(StateKind.END, begin=self._snapshot_begin)]) is not None:
            self._snapshot = None
            self._snapshot_end, self._snapshot_s = self._store.log_end, now_s

    # -- what others ask for

    def confirm(self, done: Confirmed) -> None:
        """Journal what changed, and call back when all replicas in sync have it."""
        if not self.flush():
            done(
                StoreError("the group's journal refused the change: it holds on this broker only, until it is written")
            )
        else:
            self._when_confirmed(done)

    def put_topic(self, config: TopicConfig) -> None:
        """Journal a topic at once, so that whoever confirms a message of it knows it. What the log refuses now is left
        to `tick`."""
        name, section = config.topic_name, self._sections.all["topics"]
        if not self.is_leading or not self._store.is_open:
            return
        encoded = section.encode(config)
        if self._is_written(section.name, name, encoded):
            if self._append([StateRecord(StateKind.CHANGE, {section.name: {name: encoded}})]) is not None:
                self.image.put(section.name, name, section.keep(config))

    def delete_topics(self, topics: list[str]) -> None:
        """Journal that topics are deleted, with everything that the log holds of them before this record.

        Raise StoreError where the log refuses the record; nothing has happened then.
        """
        known = [(name, key) for topic in topics for name, key in self._entries_of(topic)]
        now_ms = self._clock.now_ms()
        self._store.append([state_draft(StateRecord(StateKind.DELETE, topics=tuple(topics)), self._host, now_ms)])
        for name, key in known:
            self.image.put(name, key, None)

    def change_settings(self, values: dict[str, str]) -> None:
        """Journal settings that an administrator gave to the master."""
        self._append([StateRecord(StateKind.SETTINGS, values=values)])

    def _when_confirmed(self, done: Confirmed) -> None:
        store, end = self._store, self._store.log_end
        if end <= store.confirmed_offset:
            done(None)
            return

        def late() -> None:
            if waiter is not None:
                waiter.cancel()
            done(StoreError("the group's replicas have not confirmed the change in time: it may still take effect"))

        def safe(error: StoreError | None) -> None:
            timer.cancel()
            done(error)

        timer = asyncio.get_running_loop().call_later(_CONFIRM_S, late)
        waiter = store.on_safe(end, safe)
