"""One query (or batch job) as a broker knows it: its driver, its last commit, and what is held, prepared or pending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from aerobee.broker.batches.limits import FORGET_MS, LEASE_MAX_MS, LEASE_MIN_MS, PAST_MAX
from aerobee.broker.batches.records import NOBODY, BatchDriver, BatchEntry, BatchPlan

NAMELESS: Final = "~"


@dataclass(slots=True)
class BatchChunk:
    """Rows of one queue, one record of the batch topic."""

    entry: BatchEntry
    queue_offset: int
    physical_offset: int
    # Copies that the log holds already, where a crash cut the write short.
    copied: int = 0


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch that its plan may commit at any time."""

    batch: int
    plan: BatchPlan
    queue_offset: int


@dataclass(slots=True)
class Keyed:
    """Keys of the newest batch."""

    batch: int
    first_offset: int
    # The broker groups that its keys are spread over, by topic.
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    digests: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class OpenKeys:
    """The keys of one record, and the place of the record."""

    keyed: Keyed
    digests: list[bytes]
    physical_offset: int
    # Those that a later record has, too: their rows came again after a crash had cut these off.
    again: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Query:
    """One query."""

    name: str
    used_ms: int
    lease_ms: int = 0
    # Only this driver may change the query. `past` names the runs before it, the newest first.
    driver: BatchDriver = NOBODY
    past: tuple[str, ...] = ()
    begin_offset: int = -1
    begin_ms: int = 0
    committed: int = -1
    plan: BatchPlan | None = None
    plan_size: int = 0
    commit_offset: int = -1
    commit_ms: int = 0
    # The place of the commit whose copies are pending: they lie behind it.
    commit_physical: int = -1
    # Rows of the last commit that could not be stored for their readers.
    set_aside: int = 0
    prepared: PreparedBatch | None = None
    prepared_size: int = 0
    held: dict[int, dict[tuple[str, int], BatchChunk]] = field(default_factory=dict)
    # The lowest queue offset of the rows held, by batch.
    held_offsets: dict[int, int] = field(default_factory=dict)
    # Chunks that are committed and whose copies are not all stored, in the order of the copies.
    pending: dict[int, BatchChunk] = field(default_factory=dict)
    # A queue offset not above that of any pending chunk.
    pending_offset: int = -1
    keyed: Keyed | None = None

    @property
    def keep_ms(self) -> int:
        has_nothing = self.committed < 0 and self.keyed is None
        return self.lease if has_nothing or self.name.startswith(NAMELESS) else FORGET_MS

    @property
    def lease(self) -> int:
        """How long it may be silent, in milliseconds."""
        return min(max(self.lease_ms, LEASE_MIN_MS), LEASE_MAX_MS)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.held and not self.pending and self.prepared is None

    @property
    def chunks(self) -> int:
        return len(self.pending) + sum(len(chunks) for chunks in self.held.values())

    def topics(self) -> list[str]:
        """Return the topics of its rows that consumers do not see yet."""
        held = (chunk for chunks in self.held.values() for chunk in chunks.values())
        return sorted({chunk.entry.topic for chunk in (*held, *self.pending.values()) if chunk.entry.topic})

    def is_old(self, offset: int, stored_ms: int) -> bool:
        """Tell whether its driver or its last commit was stored below that place, or before that time."""
        return (0 <= self.begin_offset and (self.begin_offset < offset or self.begin_ms < stored_ms)) or (
            0 <= self.commit_offset and (self.commit_offset < offset or self.commit_ms < stored_ms)
        )

    def begin(self, driver: BatchDriver, past: tuple[str, ...], queue_offset: int, now_ms: int) -> None:
        """Note a driver that is stored, for the first time or again."""
        if driver < self.driver:
            return
        if driver.run != self.driver.run and self.driver.run:
            past = (self.driver.run, *self.past)
        elif driver.run == self.driver.run and self.past:
            past = self.past
        self.driver, self.past = driver, past[:PAST_MAX]
        self.begin_offset, self.begin_ms = queue_offset, now_ms

    def hold(self, chunk: BatchChunk) -> bool:
        """Hold a chunk. Tell whether it is new: of one that was sent again after a lost answer the first counts."""
        entry = chunk.entry
        chunks = self.held.setdefault(entry.batch, {})
        if (entry.attempt, entry.sequence) in chunks:
            return False
        chunks[entry.attempt, entry.sequence] = chunk
        offset = self.held_offsets.get(entry.batch, chunk.queue_offset)
        self.held_offsets[entry.batch] = min(offset, chunk.queue_offset)
        return True

    def drop(self, batch: int) -> int:
        """Give up the rows held for a batch. Return how many chunks they were."""
        self.held_offsets.pop(batch, None)
        return len(self.held.pop(batch, {}))

    def offsets(self) -> Iterator[int]:
        """Yield the queue offsets of records that a start must read again."""
        if self.begin_offset >= 0:
            yield self.begin_offset
        if self.commit_offset >= 0:
            yield self.commit_offset
        if self.prepared is not None:
            yield self.prepared.queue_offset
        yield from self.held_offsets.values()
        if self.pending:
            yield self.pending_offset
        if self.keyed is not None:
            yield self.keyed.first_offset
