"""What a broker knows of the batches of sinks: a machine fed with the records of the batch topic, in order.

A query has one driver: the newest that began here. What any other says is refused. It has at most one batch prepared,
and remembers the last one committed with its plan: Spark begins a batch when the one before is committed everywhere. A
batch that is prepared or committed takes no other plan. Rows that no plan names are dropped with the commit, by an
abort, or when nothing was heard of the query for its lease.
"""

from __future__ import annotations

from aerobee.broker.batches.limits import (
    CHUNKS_MAX,
    CROWDED_KEEP_MS,
    EPOCH_STEP_MAX,
    KEYED_TOPICS_MAX,
    KEYS_MAX,
    OPEN_BATCHES_MAX,
    PLANS_BYTES_MAX,
    QUERIES_MAX,
    QUERY_CHUNKS_MAX,
)
from aerobee.broker.batches.query import BatchChunk, Keyed, OpenKeys, PreparedBatch, Query
from aerobee.broker.batches.records import (
    ALL_DONE,
    KEY_SIZE,
    NOBODY,
    SET_ASIDE,
    BatchDriver,
    BatchEntry,
    BatchPlan,
    Kind,
)
from aerobee.broker.refusal import Refusal
from aerobee.protocol.codes import ResponseCode


class BatchTable:
    """Every query of one broker group."""

    def __init__(self, group: str, next_offset: int = 0) -> None:
        """`group` is the name of this broker's group in plans."""
        self.group = group
        self.next_offset = next_offset
        self.queries: dict[str, Query] = {}
        # Sums over all queries: keys, chunks held or pending, bytes of plans.
        self.keys = 0
        self.chunks = 0
        self.plan_bytes = 0
        # The query of each pending chunk, by serial.
        self._pending: dict[int, Query] = {}
        # Keys whose rows may not all be stored, by serial; only while starting.
        self.open_keys: dict[int, OpenKeys] = {}

    def query(self, name: str, now_ms: int) -> Query:
        found = self.queries.get(name)
        if found is None:
            found = self.queries[name] = Query(name, now_ms)
        found.used_ms = max(found.used_ms, now_ms)
        return found

    # -- records, in order

    def learn(
        self, entry: BatchEntry, body: bytes, plan: BatchPlan | None, place: tuple[int, int], now_ms: int
    ) -> list[BatchChunk]:
        """Take up a record stored at `place` (queue offset, physical offset). Return the chunks that it lets copy."""
        queue_offset, physical_offset = place
        self.next_offset = max(self.next_offset, queue_offset + 1)
        if entry.kind is Kind.DONE:
            self._learn_done(entry)
            return []
        query = self.query(entry.query, now_ms)
        query.lease_ms = entry.lease_ms or query.lease_ms
        if entry.kind is Kind.BEGIN:
            query.begin(entry.driver, entry.past, queue_offset, now_ms)
        elif entry.kind is Kind.ROWS:
            if entry.batch > query.committed and query.hold(BatchChunk(entry, queue_offset, physical_offset)):
                self.chunks += 1
        elif entry.kind is Kind.KEYS:
            self._learn_keys(query, entry, body, place)
        elif entry.kind is Kind.ABORT:
            self._learn_abort(query, entry)
        elif plan is not None and entry.kind is Kind.PREPARE:
            if entry.batch > query.committed:
                self._prepare(query, PreparedBatch(entry.batch, plan, queue_offset), len(body))
        elif plan is not None:
            return self._learn_commit(query, entry, plan, len(body), place, now_ms)
        return []

    def _prepare(self, query: Query, prepared: PreparedBatch | None, size: int) -> None:
        self.plan_bytes += size - query.prepared_size
        query.prepared, query.prepared_size = prepared, size

    def _learn_commit(
        self, query: Query, entry: BatchEntry, plan: BatchPlan, size: int, place: tuple[int, int], now_ms: int
    ) -> list[BatchChunk]:
        batch = entry.batch
        if batch < query.committed:
            return []
        query.commit_offset, query.commit_ms = place[0], now_ms
        query.set_aside = max(entry.rows, query.set_aside if batch == query.committed else 0)
        if batch == query.committed:
            return []  # stored again, so that it is not lost with the oldest records
        self.plan_bytes += size - query.plan_size
        query.committed, query.plan, query.plan_size = batch, plan, size
        held = query.held.get(batch, {})
        found = [
            chunk
            for attempt, count in sorted(plan.of(self.group).items())
            for sequence in range(min(count, len(held)))
            if (chunk := held.get((attempt, sequence))) is not None
        ]
        if not query.pending:
            query.commit_physical = place[1]
        offsets = [chunk.queue_offset for chunk in found]
        if query.pending:
            offsets.append(query.pending_offset)
        query.pending_offset = min(offsets, default=-1)
        for chunk in found:
            query.pending[chunk.entry.serial] = chunk
            self._pending[chunk.entry.serial] = query
        self.chunks += len(found)
        for old in [number for number in query.held if number <= batch]:
            self.chunks -= query.drop(old)
        if query.prepared is not None and query.prepared.batch <= batch:
            self._prepare(query, None, 0)
        return found

    def _learn_abort(self, query: Query, entry: BatchEntry) -> None:
        prepared = query.prepared
        if prepared is not None and entry.plan_id and prepared.plan.plan_id == entry.plan_id:
            self._prepare(query, None, 0)
            prepared = None
        for batch in list(query.held):
            if (prepared is None or prepared.batch != batch) and entry.batch in (-1, batch):
                self.chunks -= query.drop(batch)

    def _learn_done(self, entry: BatchEntry) -> None:
        if entry.sequence == ALL_DONE:
            self.done(entry.serial)
        elif entry.sequence == SET_ASIDE:
            self.done(entry.serial, set_aside=entry.rows)
        else:
            self.cut(entry.serial, entry.rows)

    def done(self, serial: int, set_aside: int = 0) -> None:
        """Note that the copies of a chunk, or the rows of keys, are stored, except for those that were set aside."""
        self.open_keys.pop(serial, None)
        query = self._pending.pop(serial, None)
        if query is not None:
            del query.pending[serial]
            query.set_aside += set_aside
            self.chunks -= 1

    def is_open(self, serial: int) -> bool:
        """Tell whether copies of a chunk, or rows of keys, are not known to be stored all."""
        return serial in self._pending or serial in self.open_keys

    # -- drivers

    def driver_of(self, name: str) -> BatchDriver:
        query = self.queries.get(name)
        return NOBODY if query is None else query.driver

    def is_replaced(self, name: str, run: str) -> bool:
        """Tell whether that run was the driver here once and is no more."""
        query = self.queries.get(name)
        return query is not None and run in query.past

    def refuse_driver(self, name: str, driver: BatchDriver) -> Refusal | None:
        """Return why what this driver says does not count."""
        known = self.driver_of(name)
        if driver == known:
            return None
        if driver < known:
            return _fenced(
                f"driver epoch {driver.epoch} of query {name} was replaced: epoch {known.epoch} (run {known.run}) has "
                "begun"
            )
        return _fenced(f"driver epoch {driver.epoch} of query {name} has not begun here, only epoch {known.epoch} has")

    def check_begin(self, name: str, driver: BatchDriver) -> Refusal | bool:
        """Tell whether the driver is to be stored; False where it is already."""
        query = self.queries.get(name)
        known = self.driver_of(name)
        if driver == known:
            return False
        if not driver.run or driver < known or (query is not None and driver.run in query.past):
            return _fenced(
                f"driver run {driver.run} (epoch {driver.epoch}) of query {name} was replaced by run {known.run} "
                f"(epoch {known.epoch})"
            )
        if driver.epoch > known.epoch + EPOCH_STEP_MAX:
            return _refusal(f"epoch {driver.epoch} of query {name} is too far ahead of {known.epoch}")
        return self.refuse_query(name) or True

    def refuse_query(self, name: str) -> Refusal | None:
        """Return why a query that is not known yet may not be made."""
        if name in self.queries or len(self.queries) < QUERIES_MAX:
            return None
        return _refusal(f"{QUERIES_MAX} queries are known here already: query {name} cannot begin")

    # -- questions

    def refuse_rows(self, name: str, batch: int, driver: BatchDriver) -> Refusal | None:
        """Return why rows may not be held for this batch any more."""
        refusal = self.refuse_driver(name, driver) or self.refuse_query(name)
        if refusal is not None:
            return refusal
        if self.chunks >= CHUNKS_MAX:
            return _busy(f"{CHUNKS_MAX} chunks of rows are held or being copied here already")
        query = self.queries.get(name)
        if query is None:
            return None
        if batch <= query.committed:
            return _refusal(f"batch {batch} of query {name} is committed")
        if query.prepared is not None and query.prepared.batch == batch:
            return _refusal(f"batch {batch} of query {name} is prepared with other rows")
        if batch not in query.held and len(query.held) >= OPEN_BATCHES_MAX:
            return _refusal(f"query {name} has rows of {OPEN_BATCHES_MAX} unfinished batches already")
        if query.chunks >= QUERY_CHUNKS_MAX:
            return _refusal(
                f"query {name} has {QUERY_CHUNKS_MAX} chunks here already: make the batches smaller, or requestBytes "
                "larger"
            )
        return None

    def check_prepare(
        self, name: str, batch: int, plan: BatchPlan, driver: BatchDriver, size: int = 0
    ) -> Refusal | bool:
        """Tell whether the plan (of so many bytes) is to be stored; False where it is already."""
        refusal = self.refuse_driver(name, driver) or self.refuse_query(name)
        if refusal is not None:
            return refusal
        if plan.epoch > driver.epoch:
            return _refusal(f"a plan of epoch {plan.epoch}, brought by a driver of epoch {driver.epoch}")
        query = self.queries.get(name)
        known = self._known(query, batch)
        if known is not None:
            return False if known.plan_id == plan.plan_id else _refusal(f"batch {batch} has another plan already")
        if query is not None and batch <= query.committed:
            return _refusal(f"batch {batch} of query {name} is committed")
        held = query.held.get(batch, {}) if query is not None else {}
        for attempt, count in plan.of(self.group).items():
            # The first missing chunk ends the search, so that it looks at no more chunks than are held.
            for sequence in range(count):
                if (attempt, sequence) not in held:
                    return _refusal(f"chunk {sequence} of {count} of attempt {attempt} is not here any more")
        if self.plan_bytes + 2 * size > PLANS_BYTES_MAX:
            return _busy(f"{self.plan_bytes} bytes of plans are remembered here already")
        return True

    def check_commit(self, name: str, batch: int, plan: BatchPlan, driver: BatchDriver) -> Refusal | bool:
        """Tell whether the commit is to be stored. Only what is prepared may be committed."""
        refusal = self.refuse_driver(name, driver)
        if refusal is not None:
            return refusal
        query = self.queries.get(name)
        if query is not None and query.committed >= batch:
            if query.committed > batch or (query.plan is not None and query.plan.plan_id == plan.plan_id):
                return False
            return _refusal(f"batch {batch} of query {name} was committed with another plan")
        known = self._known(query, batch)
        if known is None:
            return _refusal(f"batch {batch} of query {name} is not prepared here")
        return True if known.plan_id == plan.plan_id else _refusal(f"batch {batch} has another plan")

    def check_abort(self, name: str, batch: int, plan_id: str, driver: BatchDriver) -> Refusal | bool:
        """Tell whether an abort changes anything. Without a plan's id it drops only what no plan names."""
        refusal = self.refuse_driver(name, driver)
        if refusal is not None:
            return refusal
        query = self.queries.get(name)
        if query is None:
            return False
        prepared = query.prepared
        if prepared is not None and prepared.batch == batch:
            return bool(plan_id) and prepared.plan.plan_id == plan_id
        return batch in query.held

    def state_of(self, name: str, batch: int) -> tuple[str, BatchPlan | None, int]:
        """Return "committed", "prepared" or "open", the plan of the batch, and the last batch committed."""
        query = self.queries.get(name)
        if query is None:
            return "open", None, -1
        if batch <= query.committed:
            return "committed", query.plan if batch == query.committed else None, query.committed
        known = self._known(query, batch)
        return ("open" if known is None else "prepared"), known, query.committed

    def witnesses(self, name: str) -> list[str]:
        """Return the broker groups of the last plan that was committed."""
        query = self.queries.get(name)
        return [] if query is None or query.plan is None else sorted(query.plan.groups)

    def remaining(self, name: str) -> int:
        """Return how many committed chunks have copies that are not stored yet."""
        query = self.queries.get(name)
        return 0 if query is None else len(query.pending)

    def set_aside(self, name: str, batch: int) -> int:
        """Return how many rows of the last committed batch could not be stored for their readers."""
        query = self.queries.get(name)
        return query.set_aside if query is not None and query.committed == batch else 0

    @staticmethod
    def _known(query: Query | None, batch: int) -> BatchPlan | None:
        if query is None:
            return None
        if query.prepared is not None and query.prepared.batch == batch:
            return query.prepared.plan
        return query.plan if query.committed == batch else None

    # -- keys

    def refuse_keys(self, entry: BatchEntry, count: int) -> Refusal | None:
        """Return why a chunk of keys may not be stored."""
        name, batch, groups = entry.query, entry.batch, entry.groups
        refusal = self.refuse_driver(name, entry.driver) or self.refuse_query(name)
        if refusal is not None:
            return refusal
        query = self.queries.get(name)
        keyed = None if query is None else query.keyed
        if keyed is not None and keyed.batch > batch:
            return _refusal(f"batch {batch} of query {name} is over: {keyed.batch} has begun")
        spread = keyed.groups if keyed is not None and keyed.batch == batch else {}
        begun = spread.get(entry.topic, groups)
        if begun != groups:
            return _refusal(
                f"batch {batch} was begun over broker groups {', '.join(begun)}, these rows are spread over "
                f"{', '.join(groups)}"
            )
        if len(spread) >= KEYED_TOPICS_MAX and entry.topic not in spread:
            return _refusal(f"batch {batch} of query {name} has keys of {KEYED_TOPICS_MAX} topics already")
        if self.keys + count > KEYS_MAX:
            return _refusal(f"more than {KEYS_MAX} keys of unfinished batches: make the batches smaller")
        return None

    def new_keys(self, name: str, batch: int, digests: list[bytes]) -> list[bool]:
        """Tell, for each row of a chunk, whether it is new; of rows with one key the first counts."""
        query = self.queries.get(name)
        keyed = None if query is None else query.keyed
        seen = keyed.digests if keyed is not None and keyed.batch == batch else set()
        fresh: set[bytes] = set()
        found: list[bool] = []
        for digest in digests:
            is_new = digest not in seen and digest not in fresh
            fresh.add(digest)
            found.append(is_new)
        return found

    def keyed_groups(self, name: str, batch: int) -> dict[str, tuple[str, ...]]:
        """Return the broker groups that the keys of the batch are spread over, by topic."""
        query = self.queries.get(name)
        keyed = None if query is None else query.keyed
        return keyed.groups if keyed is not None and keyed.batch == batch else {}

    def _learn_keys(self, query: Query, entry: BatchEntry, body: bytes, place: tuple[int, int]) -> None:
        keyed = query.keyed
        if keyed is not None and keyed.batch > entry.batch:
            return
        if keyed is None or keyed.batch < entry.batch:
            self.keys -= 0 if keyed is None else len(keyed.digests)
            keyed = query.keyed = Keyed(entry.batch, place[0])
        digests = [body[at : at + KEY_SIZE] for at in range(0, len(body) - KEY_SIZE + 1, KEY_SIZE)]
        keyed.groups.setdefault(entry.topic, entry.groups)
        # Where a crash left only some rows of a record, the others may come again before another says how many it left.
        for one in self.open_keys.values():
            if one.keyed is keyed:
                one.again.update(digests)
        before = len(keyed.digests)
        keyed.digests.update(digests)
        self.keys += len(keyed.digests) - before
        self.open_keys[entry.serial] = OpenKeys(keyed, digests, place[1])

    def cut(self, serial: int, rows: int) -> None:
        """Note that only so many rows of these keys are stored: a crash cut off the others."""
        found = self.open_keys.pop(serial, None)
        if found is not None:
            found.keyed.digests.difference_update(set(found.digests[rows:]) - found.again)
            self.keys = sum(len(query.keyed.digests) for query in self.queries.values() if query.keyed is not None)

    def rescan_from(self) -> int:
        """Return where copies may begin whose chunk or keys are not known to be done; -1 where there are none."""
        places = [query.commit_physical for query in self.queries.values() if query.pending]
        places += [found.physical_offset for found in self.open_keys.values()]
        return min(places, default=-1)

    # -- time

    def orphans(self, now_ms: int) -> list[Query]:
        """Return queries that hold rows which no plan names, and that were silent for longer than their lease."""
        return [
            query
            for query in self.queries.values()
            if query.held
            and now_ms - query.used_ms >= query.lease
            and any(query.prepared is None or batch != query.prepared.batch for batch in query.held)
        ]

    def old(self, now_ms: int, offset: int, age_ms: int, count_max: int) -> list[Query]:
        """Return queries whose driver and last commit must be stored again. Forget those that were long unused."""
        found: list[Query] = []
        for query in list(self.queries.values()):
            unused_ms = now_ms - query.used_ms
            if query.is_idle and unused_ms > query.keep_ms:
                self._forget(query)
            elif not query.pending and len(found) < count_max and query.is_old(offset, now_ms - age_ms):
                found.append(query)
        excess = len(self.queries) - QUERIES_MAX * 9 // 10
        if excess > 0:
            crowd = [query for query in self.queries.values() if query.is_idle]
            crowd.sort(key=lambda query: query.used_ms)
            for query in crowd[:excess]:
                if now_ms - query.used_ms > min(query.keep_ms, CROWDED_KEEP_MS):
                    self._forget(query)
        return [query for query in found if query.name in self.queries]

    def forget_unused(self, now_ms: int) -> None:
        """Forget queries that were long unused at that time: for a broker that follows, and renews nothing."""
        for query in list(self.queries.values()):
            if query.is_idle and now_ms - query.used_ms > query.keep_ms:
                self._forget(query)

    def _forget(self, query: Query) -> None:
        self.keys -= 0 if query.keyed is None else len(query.keyed.digests)
        self.plan_bytes -= query.plan_size + query.prepared_size
        del self.queries[query.name]

    def lowest(self) -> int:
        """Return the queue offset below which no record is needed any more."""
        return min((offset for query in self.queries.values() for offset in query.offsets()), default=self.next_offset)


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def _fenced(remark: str) -> Refusal:
    """Return a refusal of the driver, not of what it says: it tells nothing about the plan."""
    return Refusal(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, remark)


def _busy(remark: str) -> Refusal:
    """Return a refusal that is temporary: the client may try again."""
    return Refusal(ResponseCode.SYSTEM_BUSY, remark)
