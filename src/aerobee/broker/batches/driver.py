"""The driver of batches: it journals each request, and acts on a request only once its record is stored.

The copies of a committed chunk, and the record that says they are stored, are one write. A write that a crash cuts
short leaves some copies without that record. A start counts those copies, from the commit on, and writes the rest. So
every row of a committed batch is stored once, however often the broker is killed. A row that no record can hold any
more (its topic was deleted, or an older broker took it) is set aside: the journal says so, it is counted, and whoever
asks about the batch is told. The rows behind it, and other queries, go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from aerobee.broker.batches.copies import Copies, Origin, Parts, Place
from aerobee.broker.batches.limits import ENDS_BYTES_MAX, PLAN_BYTES_MAX, TURNS_MAX, refuse_plan
from aerobee.broker.batches.query import BatchChunk, Query
from aerobee.broker.batches.records import (
    CUT,
    FIRST_SERIAL,
    SET_ASIDE,
    BatchDriver,
    BatchEntry,
    BatchPlan,
    Kind,
    decode_plan,
    entry_draft,
    read_entry,
)
from aerobee.broker.batches.table import BatchTable
from aerobee.broker.log import STORED, Journal, Mark, Puts, SendSettings, read_soon, scan_marks
from aerobee.broker.offsets import OffsetTable, offset_key
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics import Catalog, ensure_topic
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.layout import MULTI_TAGS
from aerobee.hot.log.record import VERIFY_RECORD, Draft, Record, decode_record
from aerobee.model.names import AUTO_CREATE_TOPIC, BATCH_TOPIC
from aerobee.model.topic import MULTI_TAG, TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

BATCH_GROUP: Final = "CID_RMQ_SYS_AEROBEE_BATCH"
_LOOK_INTERVAL_MS: Final = 1_000
_RETRY_MS: Final = 1_000
# A commit that is further back, or older, is stored again. So a start reads no more records than these, and
# retention does not take the commit.
_SPAN_MAX: Final = 10_000
_AGE_MAX_MS: Final = 12 * 3_600_000
# How many of these, and of abandoned queries, are handled at one look.
_RENEWED_MAX: Final = 200

_log = get_log("broker.batch")

# (code, remark, rows that were new)
Told = Callable[[int, str, int], None]


class Batches:
    """The batches of one broker. Call `open` after the store is open, and `tick` often; the rest serves requests."""

    def __init__(
        self,
        broker_name: str,
        store: MessageStore,
        puts: Puts,
        catalog: Catalog,
        offsets: OffsetTable,
        place: Place,
        settings: SendSettings,
        unique_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        """`offsets` is the table in which the place is kept from which a start reads."""
        self._broker_name = broker_name
        self._store = store
        self._puts = puts
        self._catalog = catalog
        self._host = settings.store_host
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._copies = Copies(place, settings.cluster, unique_id)
        self._journal = Journal(
            BATCH_TOPIC, "batches", store, puts, offsets, offset_key(BATCH_TOPIC, BATCH_GROUP),
            lambda: ensure_topic(catalog, BATCH_TOPIC, 1),
        )  # fmt: skip
        self.table = BatchTable(broker_name)
        self._serial = FIRST_SERIAL
        self._work: deque[BatchChunk] = deque()
        self._working = False
        self._retry_ms = 0
        # Ends and keys of one query are done one after another. How many wait, and the bytes of all that are not over.
        self._turns: dict[str, deque[Callable[[], None]]] = {}
        self._turns_waiting = 0
        self._turn_bytes = 0
        # Rows set aside since the start.
        self.set_aside = 0
        self._next_look_ms = 0
        # While starting or following: how much of the journal was learnt, and the copies of each open chunk or key.
        self._learnt_to = 0
        self._counted: Counter[int] = Counter()
        # Keys of which a crash left only some rows: a record must say so.
        self._cuts: list[tuple[int, int]] = []

    # -- start

    def open(self, *, following: bool = False) -> int:
        """Take up what the log says; how many chunks wait to be copied. With `following` that waits for `lead`."""
        store, journal = self._store, self._journal
        self.table = BatchTable(self._broker_name, journal.first_offset)
        self._learnt_to = journal.replay(self._learn_record)
        rescan_from = self.table.rescan_from()
        if rescan_from >= 0:
            marks = scan_marks(store, rescan_from, store.dispatched_offset)
            self._counted = Counter(mark.value for mark in marks if mark.value >= FIRST_SERIAL)
        if not following:
            self.lead()
        return len(self._work)

    def follow(self, marks: Iterable[Mark], now_ms: int) -> None:
        """Take up records and copies that the master stored. Call it often while following."""
        table = self.table
        self._learnt_to = self._journal.replay(self._learn_record, self._learnt_to)
        for mark in marks:
            if mark.value >= FIRST_SERIAL and table.is_open(mark.value):
                self._counted[mark.value] += 1
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + _LOOK_INTERVAL_MS
            self._counted = Counter({serial: count for serial, count in self._counted.items() if table.is_open(serial)})
            # The master stores again what it needs. What is older by far than that, it has forgotten.
            table.forget_unused(now_ms - 2 * _AGE_MAX_MS)
            self._journal.keep(table.lowest)

    def lead(self) -> None:
        """Go on with what is committed and not copied. Everything that the log holds was learnt."""
        table = self.table
        # Numbers of chunks must be new among the records that a start reads.
        self._serial = max(self._serial, FIRST_SERIAL + self._journal.end_offset + 1)
        waiting = [chunk for query in table.queries.values() for chunk in query.pending.values()]
        copied, self._counted = self._counted, Counter()
        for chunk in waiting:
            chunk.copied = copied[chunk.entry.serial]
        for serial in list(table.open_keys):
            self._cuts.append((serial, copied[serial]))
            table.cut(serial, copied[serial])
        self._work.extend(waiting)
        now_ms = self._clock.now_ms()
        for query in table.queries.values():
            if query.held:  # its driver could not reach us meanwhile
                query.used_ms = now_ms

    def _learn_record(self, record: Record) -> None:
        entry = read_entry(record)
        if entry is None:
            raise ValueError("it says nothing about batches that this version understands")
        self._serial = max(self._serial, entry.serial + 1)
        plan = decode_plan(record.body) if entry.kind in (Kind.PREPARE, Kind.COMMIT) else None
        place = (record.queue_offset, record.physical_offset)
        self.table.learn(entry, record.body, plan, place, record.store_timestamp)

    # -- requests

    def begin(self, query: str, driver: BatchDriver, lease_ms: int, told: Told) -> None:
        """Let a driver take over the query. It is answered when that is stored."""
        entry = BatchEntry(Kind.BEGIN, query, lease_ms=lease_ms, epoch=driver.epoch, run=driver.run)
        self._in_turn(query, 0, told, lambda told: self._end(entry, None, b"", told))

    def topics_of(self, query: str) -> list[str]:
        """Return the topics of the rows that are held, or not copied yet, for a query."""
        found = self.table.queries.get(query)
        return [] if found is None else found.topics()

    def rows(
        self, entry: BatchEntry, config: TopicConfig, body: bytes, origin: Origin, keys: list[bytes] | None, told: Told
    ) -> None:
        """Hold rows, or store them at once where they have keys."""
        parts = self._copies.check(config, entry.queue_id, body, self._store.config.max_message_size)
        if isinstance(parts, Refusal):
            told(parts.code, parts.remark, 0)
        elif keys is not None and len(keys) != len(parts):
            told(ResponseCode.MESSAGE_ILLEGAL, f"{len(keys)} keys for {len(parts)} rows", 0)
        elif keys is not None:
            self._in_turn(entry.query, len(body), told, lambda told: self._keyed(entry, parts, origin, keys, told))
        else:
            self._held(entry, body, len(parts), origin, told)

    def _held(self, entry: BatchEntry, body: bytes, count: int, origin: Origin, told: Told) -> None:
        refusal = self.table.refuse_rows(entry.query, entry.batch, entry.driver)
        if refusal is not None:
            told(refusal.code, refusal.remark, 0)
            return
        entry = replace(entry, rows=count, serial=self._next_serial())
        self._store_entry(entry, body, None, lambda code, remark: told(code, remark, count), origin.born_host)

    def _keyed(self, entry: BatchEntry, parts: Parts, origin: Origin, keys: list[bytes], told: Told) -> None:
        refusal = self.table.refuse_keys(entry, len(keys))
        if refusal is not None:
            told(refusal.code, refusal.remark, 0)
            return
        new = self.table.new_keys(entry.query, entry.batch, keys)
        parts = [part for part, is_new in zip(parts, new, strict=True) if is_new]
        digests = b"".join([key for key, is_new in zip(keys, new, strict=True) if is_new])
        self.table.query(entry.query, self._clock.now_ms())
        if not parts:
            self._said_before(told)
            return
        serial = self._next_serial()
        entry = replace(entry, rows=len(parts), serial=serial)
        drafts, reason = self._copies.drafts(replace(origin, serial=serial), parts)
        if len(drafts) < len(parts):
            told(ResponseCode.MESSAGE_ILLEGAL, f"a row cannot be stored: {reason}", 0)
            return
        self._store_entry(
            entry, digests, None, lambda code, remark: told(code, remark, len(parts)), origin.born_host, drafts
        )  # fmt: skip

    def end(self, entry: BatchEntry, body: bytes, told: Told) -> None:
        """Prepare, commit or abort. Answered when that is stored; a commit's copies follow."""
        if len(body) > PLAN_BYTES_MAX:
            told(ResponseCode.MESSAGE_ILLEGAL, f"a plan of {len(body)} bytes: {PLAN_BYTES_MAX} are the most", 0)
            return
        try:
            plan = decode_plan(body) if body else None
        except ValueError as error:
            told(ResponseCode.ILLEGAL_OPERATION, str(error), 0)
            return
        if plan is None and entry.kind is not Kind.ABORT:
            told(ResponseCode.ILLEGAL_OPERATION, "there is no plan", 0)
            return
        text = b""
        if plan is not None:
            text = plan.encode()
            refusal = refuse_plan(plan, len(text))
            if refusal is not None:
                told(refusal.code, refusal.remark, 0)
                return
            entry = replace(entry, plan_id=plan.plan_id)
        self._in_turn(entry.query, len(text), told, lambda told: self._end(entry, plan, text, told))

    def _end(self, entry: BatchEntry, plan: BatchPlan | None, text: bytes, told: Told) -> None:
        table, name, batch, driver = self.table, entry.query, entry.batch, entry.driver
        wanted: Refusal | bool
        if entry.kind is Kind.BEGIN:
            wanted = table.check_begin(name, driver)
        elif plan is None or entry.kind is Kind.ABORT:
            wanted = table.check_abort(name, batch, entry.plan_id, driver)
        elif entry.kind is Kind.PREPARE:
            wanted = table.check_prepare(name, batch, plan, driver, len(text))
        else:
            wanted = table.check_commit(name, batch, plan, driver)
        if isinstance(wanted, Refusal):
            told(wanted.code, wanted.remark, 0)
        elif not wanted:
            self._said_before(told)
        else:
            self._store_entry(entry, text, plan, lambda code, remark: told(code, remark, 0), self._host)

    def _said_before(self, told: Told) -> None:
        """Answer a repeat as safely as the first time: what it says is stored already."""
        self._puts.when_safe(self._store.log_end, lambda code, remark: told(code, remark, 0))

    def heard(self, query: str, driver: BatchDriver, lease_ms: int) -> Refusal | None:
        """Renew the lease of a query whose driver was heard of. Return why the caller is not its driver.

        A question without an epoch is anybody's, and renews nothing where the query has a driver.
        """
        found = self.table.queries.get(query)
        if found is None or (not driver.epoch and found.driver.epoch):
            return self.table.refuse_driver(query, driver) if driver.epoch else None
        refusal = self.table.refuse_driver(query, driver)
        if refusal is None:
            found.used_ms = max(found.used_ms, self._clock.now_ms())
            found.lease_ms = lease_ms or found.lease_ms
        return refusal

    # -- the log

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _store_entry(
        self,
        entry: BatchEntry,
        body: bytes,
        plan: BatchPlan | None,
        done: Callable[[int, str], None],
        born_host: bytes,
        rows: list[Draft] | None = None,
    ) -> None:
        """Store a record; with keys also their rows and the record that says they are stored, all in one write."""
        now_ms, store_host = self._clock.now_ms(), self._host
        draft = entry_draft(entry, body, now_ms, born_host, store_host)
        behind: list[Draft] = []
        if rows:
            behind = [
                *rows,
                entry_draft(BatchEntry(Kind.DONE, serial=entry.serial), b"", now_ms, store_host, store_host),
            ]

        def stored(code: int, remark: str) -> None:
            if code in STORED:
                place = (draft.queue_offset, draft.physical_offset)
                self._work.extend(self.table.learn(entry, body, plan, place, self._clock.now_ms()))
                if behind:
                    self.table.done(entry.serial)
                self._go_on()
            done(code, remark)

        self._journal.write([draft, *behind], stored)

    def _go_on(self) -> None:
        """Write the copies of the next committed chunk; one write at a time."""
        if self._working or not self._work or not self._store.is_open:
            return
        chunk = self._work[0]
        self._working = True

        store, offset = self._store, chunk.physical_offset

        def read(data: bytes | StoreError | None) -> None:
            if isinstance(data, bytes):
                self._copy(chunk, data)
            elif data is not None or offset >= store.dispatched_offset:
                self._later("rows of a committed batch are not read yet", str(data or ""))
            else:
                self._finish(chunk, [], chunk.entry.rows - chunk.copied, "their record is damaged")

        read_soon(store, offset, store.message_at(offset), read)

    def _later(self, event: str, reason: str) -> None:
        self._warn.warning("store", event, reason=reason)
        self._working = False
        self._retry_ms = self._clock.now_ms() + _RETRY_MS

    def _copy(self, chunk: BatchChunk, data: bytes) -> None:
        entry = chunk.entry
        if entry.queue_id < 0:
            self._finish(chunk, [], entry.rows - chunk.copied, f"there is no queue {entry.queue_id}")
            return
        if self._store.deletions.covers(entry.topic.encode(), chunk.physical_offset):
            self._finish(chunk, [], entry.rows - chunk.copied, f"topic {entry.topic} was deleted since they came")
            return
        catalog = self._catalog
        config = catalog.find(entry.topic)
        if config is None:
            # The topic was made for these rows, and a crash lost it before its file was saved.
            model = catalog.find(AUTO_CREATE_TOPIC)
            queues = 1 if model is None else model.write_queue_nums
            config = ensure_topic(catalog, entry.topic, max(queues, entry.queue_id + 1))
        try:
            record = decode_record(data, 0, VERIFY_RECORD)
            parts = decode_batch(record.body, entry.rows)
        except AerobeeError as error:
            self._finish(chunk, [], entry.rows - chunk.copied, error.message)
            return
        sys_flag = MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0
        origin = Origin(
            entry.topic, entry.queue_id, sys_flag, record.born_timestamp, record.born_host, self._host,
            entry.serial,
        )  # fmt: skip
        drafts, reason = self._copies.drafts(origin, parts)
        self._finish(chunk, drafts[chunk.copied :], len(parts) - len(drafts), reason)

    def _finish(self, chunk: BatchChunk, drafts: list[Draft], set_aside: int, reason: str) -> None:
        """Store the copies, and the record that says so and how many rows were set aside, in one write."""
        host, serial = self._host, chunk.entry.serial
        said = BatchEntry(Kind.DONE, serial=serial)
        if set_aside > 0:
            said = BatchEntry(Kind.DONE, serial=serial, sequence=SET_ASIDE, rows=set_aside)

        def done(code: int, remark: str) -> None:
            if code in STORED:
                self._copied(chunk, max(0, set_aside), reason)
            elif code == ResponseCode.MESSAGE_ILLEGAL and drafts:
                # Trying again would not help: the others go on without these rows.
                self._finish(chunk, [], set_aside + len(drafts), remark)
            else:
                self._later("rows of a committed batch wait: not stored", remark)

        self._journal.write([*drafts, entry_draft(said, b"", self._clock.now_ms(), host, host)], done)

    def _copied(self, chunk: BatchChunk, set_aside: int, reason: str) -> None:
        self.table.done(chunk.entry.serial, set_aside)
        if set_aside:
            self._say_aside(chunk, set_aside, reason)
        self._work.popleft()
        self._working = False
        self._go_on()

    def _say_aside(self, chunk: BatchChunk, rows: int, reason: str) -> None:
        entry = chunk.entry
        self.set_aside += rows
        where = f"topic {entry.topic} queue {entry.queue_id}"
        said = f"{rows} rows of batch {entry.batch} of query {entry.query} for {where} cannot be stored: {reason}"
        self._journal.set_aside(said, chunk.queue_offset, chunk.physical_offset)

    # -- turns

    def _in_turn(self, query: str, size: int, told: Told, work: Callable[[Told], None]) -> None:
        """Do the work when what came before for the query is over; what it tells, once, ends it."""
        bytes_after = self._turn_bytes + size
        if self._turns_waiting >= TURNS_MAX or (self._turn_bytes and bytes_after > ENDS_BYTES_MAX):
            told(ResponseCode.SYSTEM_BUSY, "[PCBUSY_CLEAN_QUEUE]too many ends of batches wait to be stored", 0)
            return
        self._turn_bytes = bytes_after

        def over(code: int, remark: str, stored: int) -> None:
            self._turn_bytes -= size
            told(code, remark, stored)
            self._turn_over(query)

        turns = self._turns.get(query)
        if turns is None:
            self._turns[query] = deque()
            work(over)
        else:
            self._turns_waiting += 1
            turns.append(lambda: work(over))

    def _turn_over(self, query: str) -> None:
        turns = self._turns[query]
        if turns:
            self._turns_waiting -= 1
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
        for query in self.table.orphans(now_ms)[:_RENEWED_MAX]:
            if query.name not in self._turns:
                _log.warning("rows of a batch that nobody ends are rolled back", query=query.name)
                self._in_turn(query.name, 0, _untold, partial(self._abandon, query.name))
        span = max(_SPAN_MAX, 4 * len(self.table.queries))
        for query in self.table.old(now_ms, self.table.next_offset - span, _AGE_MAX_MS, _RENEWED_MAX):
            if query.name not in self._turns:
                self._in_turn(query.name, 0, _untold, partial(self._renew, query))
        self._journal.keep(self.table.lowest)

    def _say_cuts(self, now_ms: int) -> None:
        cuts, self._cuts = self._cuts, []
        host = self._host
        entries = [BatchEntry(Kind.DONE, serial=serial, sequence=CUT, rows=rows) for serial, rows in cuts]

        def done(code: int, remark: str) -> None:
            if code not in STORED:
                self._cuts += cuts

        self._journal.write([entry_draft(entry, b"", now_ms, host, host) for entry in entries], done)

    def _abandon(self, name: str, told: Told) -> None:
        entry = BatchEntry(Kind.ABORT, name, -1)
        self._store_entry(entry, b"", None, lambda code, remark: told(code, remark, 0), self._host)

    def _renew(self, query: Query, told: Told) -> None:
        """Store the driver and the last commit of a query again, in one write."""
        used_ms, plan, host, now_ms = query.used_ms, query.plan, self._host, self._clock.now_ms()
        epoch, run = query.driver
        entries: list[tuple[BatchEntry, BatchPlan | None]] = []
        if query.begin_offset >= 0:
            entries.append((BatchEntry(Kind.BEGIN, query.name, epoch=epoch, run=run, past=query.past), None))
        if plan is not None:
            entry = BatchEntry(
                Kind.COMMIT, query.name, query.committed, rows=query.set_aside, plan_id=plan.plan_id,
                lease_ms=query.lease_ms, epoch=epoch, run=run,
            )  # fmt: skip
            entries.append((entry, plan))
        texts = [b"" if plan is None else plan.encode() for _, plan in entries]
        drafts = [entry_draft(entry, text, now_ms, host, host) for (entry, _), text in zip(entries, texts, strict=True)]

        def done(code: int, remark: str) -> None:
            if code in STORED:
                for (entry, plan), text, draft in zip(entries, texts, drafts, strict=True):
                    place = (draft.queue_offset, draft.physical_offset)
                    self.table.learn(entry, text, plan, place, self._clock.now_ms())
                query.used_ms = used_ms  # storing it again is no use of it
            told(code, remark, 0)

        self._journal.write(drafts, done)

    @property
    def pending(self) -> int:
        """Chunks committed and not yet copied."""
        return len(self._work)


def _untold(code: int, remark: str, stored: int) -> None:
    """Do nothing: nobody asked."""
