"""What a broker knows of the batches of sinks: a machine fed with the records of the batch topic, in order.

A query has at most one batch prepared, and remembers the last one committed with its plan: Spark begins a batch when
the one before is committed everywhere. A batch that is prepared or committed takes no other plan. Rows that no plan
names are dropped with the commit, by an abort, or when nothing was heard of the query for its lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from aerobee.broker.batches.records import KEY_SIZE, Entry, Kind, Plan
from aerobee.broker.refusal import Refusal
from aerobee.protocol.codes import ResponseCode

KEYS_MAX: Final = 10_000_000
LEASE_MIN_MS: Final = 60_000
# A query is forgotten when nothing was heard of it for so long; one that has a name only for itself, after its lease.
FORGET_MS: Final = 30 * 86_400_000
NAMELESS: Final = "~"


@dataclass(slots=True)
class Chunk:
    """Rows of one queue, one record of the batch topic."""

    entry: Entry
    queue_offset: int
    physical_offset: int
    # Copies that the log holds already, of an end that a crash cut short.
    copied: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch that its plan may commit at any time."""

    batch: int
    plan: Plan
    queue_offset: int


@dataclass(slots=True)
class Keyed:
    """Keys of the newest batch."""

    batch: int
    first_offset: int
    # By topic, the broker groups that its keys are spread over.
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    digests: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class OpenKeys:
    """Keys of one record, and where it stands."""

    keyed: Keyed
    digests: list[bytes]
    physical_offset: int


@dataclass(slots=True)
class Query:
    """One query (or batch job)."""

    name: str
    used_ms: int
    lease_ms: int = 0
    committed: int = -1
    plan: Plan | None = None
    commit_offset: int = -1
    commit_ms: int = 0
    # Where the commit of what is pending stands: its copies lie behind.
    commit_physical: int = -1
    prepared: Prepared | None = None
    held: dict[int, dict[tuple[str, int], Chunk]] = field(default_factory=dict)
    # Committed, their copies not all stored; in the order of the copies.
    pending: dict[int, Chunk] = field(default_factory=dict)
    keyed: Keyed | None = None

    @property
    def keep_ms(self) -> int:
        return self.lease_ms if self.name.startswith(NAMELESS) else FORGET_MS

    def offsets(self) -> Iterator[int]:
        """Records that a start must read again."""
        if self.commit_offset >= 0:
            yield self.commit_offset
        if self.prepared is not None:
            yield self.prepared.queue_offset
        for chunks in self.held.values():
            for chunk in chunks.values():
                yield chunk.queue_offset
        for chunk in self.pending.values():
            yield chunk.queue_offset
        if self.keyed is not None:
            yield self.keyed.first_offset


class BatchTable:
    """Every query of one broker group."""

    def __init__(self, group: str, next_offset: int = 0) -> None:
        """`group`: our own name, by which plans name our part."""
        self.group = group
        self.next_offset = next_offset
        self.queries: dict[str, Query] = {}
        self.keys = 0
        # Keys whose rows are not known to be all stored, by serial. Only while starting.
        self.open_keys: dict[int, OpenKeys] = {}

    def query(self, name: str, now_ms: int) -> Query:
        found = self.queries.get(name)
        if found is None:
            found = self.queries[name] = Query(name, now_ms)
        found.used_ms = max(found.used_ms, now_ms)
        return found

    # -- records, in order

    def learn(self, entry: Entry, body: bytes, plan: Plan | None, place: tuple[int, int], now_ms: int) -> Query | None:
        """A record that is stored at (queue offset, physical offset)."""
        queue_offset, physical_offset = place
        self.next_offset = max(self.next_offset, queue_offset + 1)
        if entry.kind is Kind.DONE:
            if entry.sequence:
                self.cut(entry.serial, entry.rows)
            else:
                self.done(entry.serial)
            return None
        query = self.query(entry.query, now_ms)
        query.lease_ms = entry.lease_ms or query.lease_ms
        if entry.kind is Kind.ROWS:
            if entry.batch > query.committed:
                chunks = query.held.setdefault(entry.batch, {})
                # Sent again after a lost answer: the first one counts.
                chunks.setdefault((entry.attempt, entry.sequence), Chunk(entry, queue_offset, physical_offset))
        elif entry.kind is Kind.KEYS:
            self._learn_keys(query, entry, body, place)
        elif entry.kind is Kind.ABORT:
            self._learn_abort(query, entry)
        elif plan is not None and entry.kind is Kind.PREPARE:
            if entry.batch > query.committed:
                query.prepared = Prepared(entry.batch, plan, queue_offset)
        elif plan is not None:
            self._learn_commit(query, entry.batch, plan, place, now_ms)
        return query

    def _learn_commit(self, query: Query, batch: int, plan: Plan, place: tuple[int, int], now_ms: int) -> None:
        if batch < query.committed:
            return
        query.commit_offset, query.commit_ms = place[0], now_ms
        if batch == query.committed:
            return  # stored again, so that it is not lost with the oldest records
        query.committed, query.plan, query.commit_physical = batch, plan, place[1]
        held = query.held.get(batch, {})
        for attempt, count in sorted(plan.of(self.group).items()):
            for sequence in range(count):
                chunk = held.get((attempt, sequence))
                if chunk is not None:
                    query.pending[chunk.entry.serial] = chunk
        for old in [number for number in query.held if number <= batch]:
            del query.held[old]
        if query.prepared is not None and query.prepared.batch <= batch:
            query.prepared = None

    def _learn_abort(self, query: Query, entry: Entry) -> None:
        prepared = query.prepared
        if prepared is not None and entry.plan_id and prepared.plan.plan_id == entry.plan_id:
            query.prepared = prepared = None
        for batch in list(query.held):
            if (prepared is None or prepared.batch != batch) and entry.batch in (-1, batch):
                del query.held[batch]

    def done(self, serial: int) -> None:
        """The copies of a chunk, or the rows of keys, are all stored."""
        self.open_keys.pop(serial, None)
        for query in self.queries.values():
            if query.pending.pop(serial, None) is not None:
                return

    # -- questions

    def refuse_rows(self, name: str, batch: int) -> Refusal | None:
        """Why rows may not be held for this batch any more."""
        query = self.queries.get(name)
        if query is None:
            return None
        if batch <= query.committed:
            return _refusal(f"batch {batch} of query {name} is committed")
        if query.prepared is not None and query.prepared.batch == batch:
            return _refusal(f"batch {batch} of query {name} is prepared with other rows")
        return None

    def check_prepare(self, name: str, batch: int, plan: Plan) -> Refusal | bool:
        """Whether the plan is to be stored; False: it is already."""
        query = self.queries.get(name)
        known = self._known(query, batch)
        if known is not None:
            return False if known.plan_id == plan.plan_id else _refusal(f"batch {batch} has another plan already")
        if query is not None and batch <= query.committed:
            return _refusal(f"batch {batch} of query {name} is committed")
        held = query.held.get(batch, {}) if query is not None else {}
        for attempt, count in plan.of(self.group).items():
            missing = [sequence for sequence in range(count) if (attempt, sequence) not in held]
            if missing:
                return _refusal(f"{len(missing)} of {count} chunks of attempt {attempt} are not here any more")
        return True

    def check_commit(self, name: str, batch: int, plan: Plan) -> Refusal | bool:
        """Likewise. Only what is prepared may be committed."""
        query = self.queries.get(name)
        if query is not None and query.committed >= batch:
            if query.committed > batch or (query.plan is not None and query.plan.plan_id == plan.plan_id):
                return False
            return _refusal(f"batch {batch} of query {name} was committed with another plan")
        known = self._known(query, batch)
        if known is None:
            return _refusal(f"batch {batch} of query {name} is not prepared here")
        return True if known.plan_id == plan.plan_id else _refusal(f"batch {batch} has another plan")

    def check_abort(self, name: str, batch: int, plan_id: str) -> bool:
        """Whether an abort changes anything. Without a plan's id it drops only what no plan names."""
        query = self.queries.get(name)
        if query is None:
            return False
        prepared = query.prepared
        if prepared is not None and prepared.batch == batch:
            return bool(plan_id) and prepared.plan.plan_id == plan_id
        return batch in query.held

    def state_of(self, name: str, batch: int) -> tuple[str, Plan | None, int]:
        """("committed" | "prepared" | "open", its plan, the last batch committed)."""
        query = self.queries.get(name)
        if query is None:
            return "open", None, -1
        if batch <= query.committed:
            return "committed", query.plan if batch == query.committed else None, query.committed
        known = self._known(query, batch)
        return ("open" if known is None else "prepared"), known, query.committed

    def witnesses(self, name: str) -> list[str]:
        """The broker groups of the last plan that is committed."""
        query = self.queries.get(name)
        return [] if query is None or query.plan is None else sorted(query.plan.groups)

    def remaining(self, name: str) -> int:
        """Chunks committed whose copies are not all stored."""
        query = self.queries.get(name)
        return 0 if query is None else len(query.pending)

    @staticmethod
    def _known(query: Query | None, batch: int) -> Plan | None:
        if query is None:
            return None
        if query.prepared is not None and query.prepared.batch == batch:
            return query.prepared.plan
        return query.plan if query.committed == batch else None

    # -- keys

    def refuse_keys(self, entry: Entry, count: int) -> Refusal | None:
        """Why a chunk of keys may not be stored."""
        name, batch, groups = entry.query, entry.batch, entry.groups
        query = self.queries.get(name)
        keyed = None if query is None else query.keyed
        if keyed is not None and keyed.batch > batch:
            return _refusal(f"batch {batch} of query {name} is over: {keyed.batch} has begun")
        begun = keyed.groups.get(entry.topic, groups) if keyed is not None and keyed.batch == batch else groups
        if begun != groups:
            return _refusal(
                f"batch {batch} was begun over broker groups {', '.join(begun)}, these rows are spread over "
                f"{', '.join(groups)}"
            )
        if self.keys + count > KEYS_MAX:
            return _refusal(f"more than {KEYS_MAX} keys of unfinished batches: make the batches smaller")
        return None

    def new_keys(self, name: str, batch: int, digests: list[bytes]) -> list[bool]:
        """Which of a chunk's rows were not stored before; of rows with one key the first counts."""
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
        """What the keys of the batch are spread over."""
        query = self.queries.get(name)
        keyed = None if query is None else query.keyed
        return keyed.groups if keyed is not None and keyed.batch == batch else {}

    def _learn_keys(self, query: Query, entry: Entry, body: bytes, place: tuple[int, int]) -> None:
        keyed = query.keyed
        if keyed is not None and keyed.batch > entry.batch:
            return
        if keyed is None or keyed.batch < entry.batch:
            self.keys -= 0 if keyed is None else len(keyed.digests)
            keyed = query.keyed = Keyed(entry.batch, place[0])
        digests = [body[at : at + KEY_SIZE] for at in range(0, entry.rows * KEY_SIZE, KEY_SIZE)]
        keyed.groups.setdefault(entry.topic, entry.groups)
        before = len(keyed.digests)
        keyed.digests.update(digests)
        self.keys += len(keyed.digests) - before
        self.open_keys[entry.serial] = OpenKeys(keyed, digests, place[1])

    def cut(self, serial: int, rows: int) -> None:
        """Of the rows of these keys only so many are stored: a crash cut off the others."""
        found = self.open_keys.pop(serial, None)
        if found is not None:
            found.keyed.digests.difference_update(found.digests[rows:])
            self.keys = sum(len(query.keyed.digests) for query in self.queries.values() if query.keyed is not None)

    def rescan_from(self) -> int:
        """Where copies may begin whose chunk or keys are not known to be done; -1: there are none."""
        places = [query.commit_physical for query in self.queries.values() if query.pending]
        places += [found.physical_offset for found in self.open_keys.values()]
        return min(places, default=-1)

    # -- time

    def orphans(self, now_ms: int) -> list[Query]:
        """Queries that were not heard of for their lease and hold rows that no plan names."""
        return [
            query
            for query in self.queries.values()
            if query.held
            and now_ms - query.used_ms >= max(query.lease_ms, LEASE_MIN_MS)
            and any(query.prepared is None or batch != query.prepared.batch for batch in query.held)
        ]

    def old(self, now_ms: int, offset: int, age_ms: int) -> list[Query]:
        """Queries whose last commit must be stored again to be kept; those too long unused are forgotten."""
        found: list[Query] = []
        for query in list(self.queries.values()):
            is_idle = not query.held and not query.pending and query.prepared is None
            if is_idle and now_ms - query.used_ms > query.keep_ms:
                self.keys -= 0 if query.keyed is None else len(query.keyed.digests)
                del self.queries[query.name]
            elif query.commit_offset >= 0 and not query.pending:
                if query.commit_offset < offset or now_ms - query.commit_ms > age_ms:
                    found.append(query)
        return found

    def lowest(self) -> int:
        """Records below this queue offset say nothing any more."""
        return min((offset for query in self.queries.values() for offset in query.offsets()), default=self.next_offset)


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
