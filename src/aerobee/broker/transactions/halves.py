"""The half messages that wait for their end: which they are, when to ask about each, and how far all are done.

A transaction is known by its *origin*, the place in the log of its first half message. A question is asked about a
new copy of the half message (RocketMQ keeps the count of questions in it), and the copy says its origin, so an end that
names an older copy still finds the one transaction there is. What is not in this table has ended.

Time is wall-clock milliseconds. RocketMQ: TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from aerobee.hot.properties import decode_properties
from aerobee.hot.record import Record
from aerobee.model.sysproperties import (
    CHECK_IMMUNITY_TIME,
    PRODUCER_GROUP,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
)

OFFSET_SEPARATOR: Final = ","
_HOUR_MS: Final = 3_600_000


class HalfState(Enum):
    """Where a half message stands. While something is being stored for it nothing else is begun."""

    PENDING = "pending"
    ENDING = "ending"
    RENEWING = "renewing"


class Due(Enum):
    """What to do with a half message whose time has come."""

    ASK = "ask"
    WAIT = "wait"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """transactionTimeOut, transactionCheckInterval, transactionCheckMax, fileReservedTime."""

    timeout_ms: int = 6_000
    interval_ms: int = 30_000
    checks_max: int = 15
    reserved_hours: int = 72


@dataclass(slots=True)
class Half:
    """The newest copy of one half message."""

    queue_offset: int
    physical_offset: int
    origin: int
    group: str
    stored_ms: int
    check_times: int
    immunity_ms: int | None
    next_ms: int = -1
    # Of the oldest copy that is known. Apache goes by the time of birth, which a client's wrong clock decides.
    first_stored_ms: int = -1
    state: HalfState = HalfState.PENDING
    # Ends that came while something was being stored, and whoever waits for the one under way.
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_copy(self) -> bool:
        return self.origin != self.physical_offset


def half_of(record: Record) -> tuple[Half, int]:
    """A record of the half topic, and the queue offset it was stored at before Apache put it back (-1: none)."""
    properties = decode_properties(record.properties)
    half = Half(
        record.queue_offset,
        record.physical_offset,
        origin_of(record),
        properties.get(PRODUCER_GROUP, ""),
        record.store_timestamp,
        number_of(properties.get(TRANSACTION_CHECK_TIMES), 0),
        immunity_ms_of(properties),
    )
    return half, number_of(properties.get(TRANSACTION_PREPARED_QUEUE_OFFSET), -1)


def origin_mark(origin: int) -> int:
    """What a copy says in its field. 0 says nothing there, and no record begins at 1: it stands for the log's start."""
    return origin or 1


def read_origin_mark(mark: int) -> int:
    """Likewise, of a positive field."""
    return 0 if mark == 1 else mark


def origin_of(record: Record) -> int:
    """The place of the transaction's first half message. Apache leaves the field at 0."""
    mark = record.prepared_transaction_offset
    return read_origin_mark(mark) if mark > 0 else record.physical_offset


def immunity_ms_of(properties: dict[str, str]) -> int | None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS, if it says a time. RocketMQ: getImmunityTime."""
    seconds = number_of(properties.get(CHECK_IMMUNITY_TIME), -1)
    return None if seconds < 0 else seconds * 1000


def number_of(text: str | None, default: int) -> int:
    """A whole number, or the default for nonsense."""
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def encode_op(queue_offsets: Iterable[int]) -> bytes:
    """The body of an op message: half messages that have ended."""
    return "".join(f"{offset}{OFFSET_SEPARATOR}" for offset in queue_offsets).encode()


def decode_op(body: bytes) -> list[int]:
    """Likewise; before 5.0 it was one number without a separator."""
    return [int(text) for text in body.decode("utf-8", "replace").split(OFFSET_SEPARATOR) if text.isdecimal()]


class HalfTable:
    """All pending half messages of a broker (one queue holds them all)."""

    def __init__(self, half_offset: int = 0, op_offset: int = 0) -> None:
        """Progress as saved: everything below has ended."""
        self.next_offset = half_offset
        self._op_offset = op_offset
        self._by_origin: dict[int, Half] = {}
        self._by_offset: dict[int, Half] = {}
        self._lowest: list[int] = []
        self._due: list[tuple[int, int]] = []
        # Op messages not yet behind the progress: queue offset to the highest half message each names.
        self._ops: dict[int, int] = {}
        # Only while starting: ended by an op message; ended by the copy that an end stored.
        self._removed: set[int] = set()
        self._ended: set[int] = set()
        self._without_op: list[int] = []
        # Ended before their newest copy was learnt of: origin to the queue offset of that copy.
        self._ended_ahead: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_origin)

    # -- start

    def starting(self, ops: Iterable[tuple[int, list[int]]], ended_origins: Iterable[int]) -> None:
        """What the log says: op messages (queue offset, what they name), and marks of stored ends. Then `learn` every
        half message, then `started`."""
        for op_offset, named in ops:
            self._removed.update(named)
            self.op_stored(op_offset, named)
        self._ended.update(ended_origins)

    def started(self) -> list[int]:
        """Half messages that have ended or have a newer copy and whose op message is missing: it must still be written,
        or Apache would ask about them."""
        without_op = [offset for offset in self._without_op if offset not in self._removed]
        self._removed.clear()
        self._ended.clear()
        self._without_op.clear()
        return without_op

    # -- what happens

    def learn(self, half: Half, prepared_offset: int, rules: CheckRules, now_ms: int) -> bool:
        """A record of the half queue, in order; whether it is pending."""
        self.next_offset = max(self.next_offset, half.queue_offset + 1)
        newest = self._ended_ahead.get(half.origin)
        if newest is not None:
            if half.queue_offset >= newest:
                del self._ended_ahead[half.origin]
            return False
        known = self._by_origin.get(half.origin)
        if half.queue_offset in self._removed or half.origin in self._ended or prepared_offset in self._removed:
            if half.origin in self._ended:
                self._without_op.append(half.queue_offset)
            if known is not None:
                self.finish(known)
            return False
        if known is not None:
            if known.queue_offset < half.queue_offset:
                self._without_op.append(known.queue_offset)
            self.renewed(known, half, rules, now_ms)
            return True
        half.first_stored_ms = half.stored_ms
        self._by_origin[half.origin] = half
        self._place(half, rules, now_ms)
        return True

    def renewed(self, half: Half, copy: Half, rules: CheckRules, now_ms: int) -> None:
        """A newer copy of it was stored (and may have been learnt of already)."""
        if copy.queue_offset <= half.queue_offset:
            return
        del self._by_offset[half.queue_offset]
        half.queue_offset = copy.queue_offset
        half.physical_offset = copy.physical_offset
        half.stored_ms = copy.stored_ms
        half.check_times = copy.check_times
        self._place(half, rules, now_ms)

    def find(self, origin: int) -> Half | None:
        """The transaction, if it has not ended."""
        return self._by_origin.get(origin)

    def finish(self, half: Half) -> None:
        """Its end is stored."""
        if half.queue_offset >= self.next_offset:
            self._ended_ahead[half.origin] = half.queue_offset
        del self._by_origin[half.origin]
        del self._by_offset[half.queue_offset]

    def op_stored(self, op_offset: int, named: list[int]) -> None:
        """An op message stands there."""
        if op_offset >= self._op_offset:
            self._ops[op_offset] = max(named, default=-1)

    # -- time

    def due(self, now_ms: int, count_max: int) -> list[Half]:
        """Half messages to look at now; each once, until `wait` or a new copy gives it another time."""
        found: list[Half] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < count_max:
            next_ms, queue_offset = heapq.heappop(self._due)
            half = self._by_offset.get(queue_offset)
            if half is not None and half.next_ms == next_ms and half.state is HalfState.PENDING:
                half.next_ms = -1
                found.append(half)
        return found

    @property
    def next_due_ms(self) -> float:
        """When `due` may find something; never before."""
        return self._due[0][0] if self._due else math.inf

    def wait(self, half: Half, next_ms: int) -> None:
        """Look at it again then."""
        half.next_ms = next_ms
        heapq.heappush(self._due, (next_ms, half.queue_offset))

    def decide(self, half: Half, now_ms: int, rules: CheckRules, *, reachable: bool) -> Due:
        """`reachable`: a member of its group is connected. Where none is, no question counts (RocketMQ #8311 counts
        them); the half message then waits until its record is about to expire."""
        if half.check_times >= rules.checks_max:
            return Due.GIVE_UP
        if now_ms - half.first_stored_ms > rules.reserved_hours * _HOUR_MS:
            return Due.GIVE_UP
        return Due.ASK if reachable else Due.WAIT

    # -- progress

    def lowest(self) -> int:
        """Every half message below this queue offset has ended, or has a newer copy."""
        while self._lowest and self._lowest[0] not in self._by_offset:
            heapq.heappop(self._lowest)
        return self._lowest[0] if self._lowest else self.next_offset

    def oldest(self) -> Half | None:
        """The pending half message that holds the progress back."""
        return self._by_offset.get(self.lowest())

    def progress(self) -> tuple[int, int]:
        """What to save: offsets of the half queue and of the op queue. RocketMQ keeps them as a consumer group's."""
        lowest = self.lowest()
        while self._ops.get(self._op_offset, lowest) < lowest:
            del self._ops[self._op_offset]
            self._op_offset += 1
        return lowest, self._op_offset

    def validate(self) -> None:
        """Every index says the same."""
        assert {half.origin: half for half in self._by_offset.values()} == self._by_origin
        assert all(offset == half.queue_offset for offset, half in self._by_offset.items())
        assert all(offset >= self.lowest() for offset in self._by_offset)
        timed = set(self._due)
        for half in self._by_offset.values():
            if half.state is HalfState.PENDING:
                assert (half.next_ms, half.queue_offset) in timed, f"{half} is never looked at"

    def _place(self, half: Half, rules: CheckRules, now_ms: int) -> None:
        self._by_offset[half.queue_offset] = half
        heapq.heappush(self._lowest, half.queue_offset)
        if half.check_times:
            delay_ms = rules.interval_ms
        else:
            delay_ms = rules.timeout_ms if half.immunity_ms is None else half.immunity_ms
        # The log's time never goes back, the clock may: nobody waits longer than the delay.
        self.wait(half, min(half.stored_ms, now_ms) + delay_ms)
