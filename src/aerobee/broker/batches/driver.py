"""Batches of sinks on one broker: stores what is said about them, then does it; nothing counts before it is stored.

The copies of a committed chunk and the record that says they are there are one write. A write that a crash cuts short
leaves some copies and no such record: at a start those copies are counted, from the commit on, and the rest is written.
So every row of a committed batch is there once, however often it is killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aerobee.broker.batches.copies import Copies, Origin, Parts, Place
from aerobee.broker.batches.records import (
    FIRST_SERIAL,
    TOPIC,
    Entry,
    Kind,
    Plan,
    decode_plan,
    entry_draft,
    read_entry,
)
from aerobee.broker.batches.table import BatchTable, Chunk, Query
from aerobee.broker.handlers.later import STORED
from aerobee.broker.handlers.retrytopics import ensure_topic
from aerobee.broker.logtail import queue_records, scan_marks
from aerobee.broker.offsets import offset_key
from aerobee.broker.refusal import Refusal
from aerobee.broker.state import BrokerState
from aerobee.errors import StoreError
from aerobee.hot.batch import decode_batch
from aerobee.hot.layout import MULTI_TAGS
from aerobee.hot.record import VERIFY_RECORD, Draft, Record, decode_record
from aerobee.model.names import BATCH_TOPIC
from aerobee.model.topic import MULTI_TAG
from aerobee.protocol.codes import ResponseCode
from aerobee.store.setaside import UNUSABLE
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

BATCH_GROUP: Final = "CID_RMQ_SYS_AEROBEE_BATCH"
_LOOK_INTERVAL_MS: Final = 1_000
_RETRY_MS: Final = 1_000
# A commit further back, or older, is stored again: a start reads no more, and retention does not take it.
_SPAN_MAX: Final = 10_000
_AGE_MAX_MS: Final = 12 * 3_600_000

_log = get_log("broker.batch")

# (code, remark, rows that were new)
Told = Callable[[int, str, int], None]


class Batches:
    """`open` after the store is open, `tick` often, the rest for the requests."""

    def __init__(self, state: BrokerState, place: Place) -> None:
        self._state = state
        self._store = state.store
        self._puts = state.puts
        self._clock = state.clock
        self._warn = RateLimitedLog(_log, state.clock)
        self._copies = Copies(place, lambda: state.config.cluster_name, state.unique_id)
        self.table = BatchTable(state.name)
        self._serial = FIRST_SERIAL
        self._work: deque[Chunk] = deque()
        self._working = False
        self._retry_ms = 0
        # Ends and keys of one query, one after another.
        self._turns: dict[str, deque[Callable[[], None]]] = {}
        self._next_look_ms = 0
        # (how far all is said again later, where the log ended then)
        self._kept: tuple[int, int] | None = None
        # Keys of which a crash left only some rows, to be said in the log.
        self._cuts: list[tuple[int, int]] = []

    # -- start

    def open(self) -> int:
        """Take up what the log says; how many chunks wait to be copied."""
        store, name = self._store, self._state.name
        saved = self._state.offsets.table.get(offset_key(BATCH_TOPIC, BATCH_GROUP), {}).get(0, 0)
        start = min(max(saved, store.min_offset(TOPIC, 0)), store.max_offset(TOPIC, 0))
        self.table = table = BatchTable(name, start)
        for _, record in queue_records(store, TOPIC, 0, start):
            if record is not None:
                try:
                    self._learn_record(record)
                except UNUSABLE as error:
                    store.asides.add("batches", error, record)
        # Numbers of chunks must be new among the records that a start reads.
        self._serial = max(self._serial, FIRST_SERIAL + store.max_offset(TOPIC, 0) + 1)
        waiting = [chunk for query in table.queries.values() for chunk in query.pending.values()]
        rescan_from = table.rescan_from()
        if rescan_from >= 0:
            marks = scan_marks(store, rescan_from, store.dispatched_offset)
            copied = Counter(mark.value for mark in marks if mark.value >= FIRST_SERIAL)
            for chunk in waiting:
                chunk.copied = copied[chunk.entry.serial]
            for serial in list(table.open_keys):
                self._cuts.append((serial, copied[serial]))
                table.cut(serial, copied[serial])
        self._work.extend(waiting)
        now_ms = self._clock.now_ms()
        for query in table.queries.values():
            if query.held:  # whoever wrote them could not reach us
                query.used_ms = now_ms
        return len(waiting)

    def _learn_record(self, record: Record) -> None:
        entry = read_entry(record)
        if entry is None:
            return
        self._serial = max(self._serial, entry.serial + 1)
        plan = None
        if entry.kind in (Kind.PREPARE, Kind.COMMIT):
            try:
                plan = decode_plan(record.body)
            except ValueError:
                return
        place = (record.queue_offset, record.physical_offset)
        self.table.learn(entry, record.body, plan, place, record.store_timestamp)

    # -- requests

    def rows(self, entry: Entry, body: bytes, origin: Origin, keys: list[bytes] | None, told: Told) -> None:
        """Rows to be held, or with keys to be stored at once."""
        parts = self._copies.check(entry.topic, entry.queue_id, body, self._store.config.max_message_size)
        if isinstance(parts, Refusal):
            told(parts.code, parts.remark, 0)
        elif keys is not None and len(keys) != len(parts):
            told(ResponseCode.MESSAGE_ILLEGAL, f"{len(keys)} keys for {len(parts)} rows", 0)
        elif keys is not None:
            self._in_turn(entry.query, lambda: self._keyed(entry, parts, origin, keys, told))
        else:
            self._held(entry, body, len(parts), origin, told)

    def _held(self, entry: Entry, body: bytes, count: int, origin: Origin, told: Told) -> None:
        refusal = self.table.refuse_rows(entry.query, entry.batch)
        if refusal is not None:
            told(refusal.code, refusal.remark, 0)
            return
        entry = replace(entry, rows=count, serial=self._next_serial())
        self._store_entry(entry, body, None, lambda code, remark: told(code, remark, count), origin.born_host)

    def _keyed(self, entry: Entry, parts: Parts, origin: Origin, keys: list[bytes], told: Told) -> None:
        refusal = self.table.refuse_keys(entry, len(keys))
        if refusal is not None:
            told(refusal.code, refusal.remark, 0)
            self._turn_over(entry.query)
            return
        new = self.table.new_keys(entry.query, entry.batch, keys)
        parts = [part for part, is_new in zip(parts, new, strict=True) if is_new]
        digests = b"".join([key for key, is_new in zip(keys, new, strict=True) if is_new])
        self.table.query(entry.query, self._clock.now_ms())
        if not parts:
            self._said_before(entry.query, told)
            return
        serial = self._next_serial()
        entry = replace(entry, rows=len(parts), serial=serial)
        drafts = self._copies.drafts(replace(origin, serial=serial), parts)

        def done(code: int, remark: str) -> None:
            told(code, remark, len(parts))
            self._turn_over(entry.query)

        self._store_entry(entry, digests, None, done, origin.born_host, drafts)

    def end(self, query: str, batch: int, action: Kind, body: bytes, lease_ms: int, told: Told) -> None:
        """Prepare, commit or abort. Answered when that is stored; a commit's copies follow."""
        try:
            plan = decode_plan(body) if body else None
        except ValueError as error:
            told(ResponseCode.ILLEGAL_OPERATION, str(error), 0)
            return
        if plan is None and action is not Kind.ABORT:
            told(ResponseCode.ILLEGAL_OPERATION, "there is no plan", 0)
            return
        entry = Entry(action, query, batch, plan_id=plan.plan_id if plan is not None else "", lease_ms=lease_ms)
        self._in_turn(query, lambda: self._end(entry, plan, told))

    def _end(self, entry: Entry, plan: Plan | None, told: Told) -> None:
        table, name, batch = self.table, entry.query, entry.batch
        wanted: Refusal | bool
        if plan is None or entry.kind is Kind.ABORT:
            wanted = table.check_abort(name, batch, entry.plan_id)
        elif entry.kind is Kind.PREPARE:
            wanted = table.check_prepare(name, batch, plan)
        else:
            wanted = table.check_commit(name, batch, plan)
        if wanted is not True:
            if isinstance(wanted, Refusal):
                told(wanted.code, wanted.remark, 0)
                self._turn_over(name)
            else:
                self._said_before(name, told)
            return

        def done(code: int, remark: str) -> None:
            told(code, remark, 0)
            self._turn_over(name)

        body = plan.encode() if plan is not None else b""
        self._store_entry(entry, body, plan, done, self._state.store_host)

    def _said_before(self, query: str, told: Told) -> None:
        """It is stored already: answered as safely as the first time."""

        def done(code: int, remark: str) -> None:
            told(code, remark, 0)
            self._turn_over(query)

        self._puts.when_safe(self._store.log_end, done)

    def status(self, query: str, batch: int, lease_ms: int) -> tuple[str, Plan | None, int, int]:
        """(state, plan, last batch committed, chunks still being copied). Whoever asks, lives."""
        found = self.table.queries.get(query)
        if found is not None:
            found.used_ms = max(found.used_ms, self._clock.now_ms())
            found.lease_ms = lease_ms or found.lease_ms
        return *self.table.state_of(query, batch), self.table.remaining(query)

    # -- the log

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _store_entry(
        self,
        entry: Entry,
        body: bytes,
        plan: Plan | None,
        done: Callable[[int, str], None],
        born_host: bytes,
        rows: list[Draft] | None = None,
    ) -> None:
        """One write: the record, and with keys their rows and the record that says they are there."""
        now_ms, store_host = self._clock.now_ms(), self._state.store_host
        if self._state.catalog.find(BATCH_TOPIC) is None:
            ensure_topic(self._state.catalog, BATCH_TOPIC, 1)
        draft = entry_draft(entry, body, now_ms, born_host, store_host)
        behind: list[Draft] = []
        if rows:
            behind = [*rows, entry_draft(Entry(Kind.DONE, serial=entry.serial), b"", now_ms, store_host, store_host)]

        def stored(code: int, remark: str) -> None:
            if code in STORED:
                place = (draft.queue_offset, draft.physical_offset)
                query = self.table.learn(entry, body, plan, place, self._clock.now_ms())
                if behind:
                    self.table.done(entry.serial)
                if query is not None and entry.kind is Kind.COMMIT:
                    known = {chunk.entry.serial for chunk in self._work}
                    self._work.extend(chunk for serial, chunk in query.pending.items() if serial not in known)
                    self._go_on()
            done(code, remark)

        self._puts.put([draft, *behind], stored)

    def _go_on(self) -> None:
        """The copies of the next committed chunk; one write at a time."""
        if self._working or not self._work or not self._store.is_open:
            return
        chunk = self._work[0]
        self._working = True

        store, offset = self._store, chunk.physical_offset

        def read(data: bytes | StoreError | None) -> None:
            if isinstance(data, bytes):
                self._copy(chunk, decode_record(data, 0, VERIFY_RECORD))
            elif data is not None or offset >= store.dispatched_offset:
                self._later("rows of a committed batch are not read yet", str(data or ""))
            else:
                _log.error("rows of a committed batch are lost: their record is damaged", rows=chunk.entry.rows)
                self._copied(chunk)

        if offset >= store.log_end - store.reads.hot_bytes:
            read(store.run(store.message_at(offset)))
        else:
            store.run(store.message_at(offset), read)

    def _later(self, event: str, reason: str) -> None:
        self._warn.warning("store", event, reason=reason)
        self._working = False
        self._retry_ms = self._clock.now_ms() + _RETRY_MS

    def _copy(self, chunk: Chunk, record: Record) -> None:
        entry, host = chunk.entry, self._state.store_host
        config = self._state.catalog.find(entry.topic)
        sys_flag = MULTI_TAGS if config is not None and config.topic_filter_type == MULTI_TAG else 0
        origin = Origin(
            entry.topic, entry.queue_id, sys_flag, record.born_timestamp, record.born_host, host, entry.serial
        )  # fmt: skip
        parts = decode_batch(record.body, entry.rows)[chunk.copied :]
        said = entry_draft(Entry(Kind.DONE, serial=entry.serial), b"", self._clock.now_ms(), host, host)

        def done(code: int, remark: str) -> None:
            if code in STORED:
                self._copied(chunk)
            else:
                self._later("rows of a committed batch wait: not stored", remark)

        self._puts.put([*self._copies.drafts(origin, parts), said], done)

    def _copied(self, chunk: Chunk) -> None:
        self.table.done(chunk.entry.serial)
        self._work.popleft()
        self._working = False
        self._go_on()

    # -- turns

    def _in_turn(self, query: str, work: Callable[[], None]) -> None:
        turns = self._turns.get(query)
        if turns is not None:
            turns.append(work)
            return
        self._turns[query] = deque()
        work()

    def _turn_over(self, query: str) -> None:
        turns = self._turns[query]
        if turns:
            asyncio.get_running_loop().call_soon(turns.popleft())
        else:
            del self._turns[query]

    # -- time

    def tick(self, now_ms: int) -> None:
        """Go on with copies; roll back what was abandoned; keep what must be kept, and how far a start must read."""
        if not self._store.is_open:
            return
        if now_ms >= self._retry_ms:
            self._go_on()
        if self._cuts:
            self._say_cuts(now_ms)
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + _LOOK_INTERVAL_MS
        for query in self.table.orphans(now_ms):
            if query.name not in self._turns:
                _log.warning("rows of a batch that nobody ends are rolled back", query=query.name)
                self._in_turn(query.name, lambda name=query.name: self._abandon(name))  # type: ignore[misc]
        for query in self.table.old(now_ms, self.table.next_offset - _SPAN_MAX, _AGE_MAX_MS):
            if query.name not in self._turns and query.plan is not None:
                self._in_turn(query.name, lambda found=query: self._renew(found))  # type: ignore[misc]
        self._keep()

    def _say_cuts(self, now_ms: int) -> None:
        cuts, self._cuts = self._cuts, []
        host = self._state.store_host
        entries = [Entry(Kind.DONE, serial=serial, sequence=1, rows=rows) for serial, rows in cuts]

        def done(code: int, remark: str) -> None:
            if code not in STORED:
                self._cuts += cuts

        self._puts.put([entry_draft(entry, b"", now_ms, host, host) for entry in entries], done)

    def _abandon(self, name: str) -> None:
        entry = Entry(Kind.ABORT, name, -1)
        self._store_entry(entry, b"", None, lambda code, remark: self._turn_over(name), self._state.store_host)

    def _renew(self, query: Query) -> None:
        used_ms, plan = query.used_ms, query.plan
        assert plan is not None

        def done(code: int, remark: str) -> None:
            query.used_ms = used_ms  # nobody used it
            self._turn_over(query.name)

        entry = Entry(Kind.COMMIT, query.name, query.committed, plan_id=plan.plan_id, lease_ms=query.lease_ms)
        self._store_entry(entry, plan.encode(), plan, done, self._state.store_host)

    def _keep(self) -> None:
        """Into the table of consume offsets, which is saved by others: only what a power cut cannot take."""
        if self._kept is None:
            self._kept = (self.table.lowest(), self._store.log_end)
        lowest, end = self._kept
        if self._store.flushed_offset >= end:
            self._kept = None
            if lowest:
                self._state.offsets.table.setdefault(offset_key(BATCH_TOPIC, BATCH_GROUP), {})[0] = lowest

    @property
    def pending(self) -> int:
        """Chunks committed and not yet copied."""
        return len(self._work)
