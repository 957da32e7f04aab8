"""The table of half messages that wait for their end: when to ask about each, and how far all are done.

A transaction is known by its *origin*, the place in the log of its first half message. A question is asked about a
new copy of the half message (RocketMQ keeps the count of questions in it), and the copy says its origin, so an end that
names an older copy still finds the one transaction there is. What is not in this table has ended.

Time is wall-clock milliseconds. RocketMQ: TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from aerobee.broker.log import real_place
from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Record
from aerobee.model.numbers import INT32_MAX, int_or, parse_int
from aerobee.model.sysproperties import (
    CHECK_IMMUNITY_TIME,
    PRODUCER_GROUP,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
)

OFFSET_SEPARATOR: Final = ","
REMOVE_TAG: Final = "d"
# No broker names more in one op message: half messages further back are stored again.
OP_NAMES_MAX: Final = 200_000
_OP_BODY: Final = re.compile(rb"[0-9]{1,18}(?:,[0-9]{1,18})*,?")
_HOUR_MS: Final = 3_600_000


class HalfState(Enum):
    """The state of a half message. While something is being stored for it nothing else is begun."""

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
    """The settings transactionTimeOut, transactionCheckInterval, transactionCheckMax and fileReservedTime."""

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
    # The time of the oldest known copy. Apache uses the born time, which a client's wrong clock decides.
    first_stored_ms: int = -1
    state: HalfState = HalfState.PENDING
    # Ends that came while something was being stored.
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_copy(self) -> bool:
        return self.origin != self.physical_offset


def half_of(record: Record) -> tuple[Half, int]:
    """Return a record of the half topic, and the queue offset it was stored at before Apache put it back (-1: none);
    raise InvalidArgumentError where it names no place that a commit could go to."""
    properties = decode_properties(record.properties)
    real_place(properties)
    half = Half(
        record.queue_offset,
        record.physical_offset,
        origin_of(record),
        properties.get(PRODUCER_GROUP, ""),
        record.store_timestamp,
        check_times_of(properties),
        immunity_ms_of(properties),
    )
    return half, int_or(properties.get(TRANSACTION_PREPARED_QUEUE_OFFSET), -1, 0)


def origin_mark(origin: int) -> int:
    """Return what a copy says in its field. 0 would say nothing, so 1, where no record begins, stands for it."""
    return origin or 1


def read_origin_mark(mark: int) -> int:
    """Return the origin that a positive field names."""
    return 0 if mark == 1 else mark


def origin_of(record: Record) -> int:
    """Return the place of the transaction's first half message. Apache leaves the field at 0."""
    mark = record.prepared_transaction_offset
    return read_origin_mark(mark) if mark > 0 else record.physical_offset


def immunity_ms_of(properties: dict[str, str]) -> int | None:
    """Return CHECK_IMMUNITY_TIME_IN_SECONDS in milliseconds, if it is a time. RocketMQ: getImmunityTime."""
    seconds = int_or(properties.get(CHECK_IMMUNITY_TIME), None, 0, INT32_MAX)
    return None if seconds is None else seconds * 1000


def check_times_of(properties: dict[str, str]) -> int:
    """Return how often a half message was asked about; 0 where that is no number."""
    return int_or(properties.get(TRANSACTION_CHECK_TIMES), 0, 0, INT32_MAX - 1)


def encode_op(queue_offsets: Iterable[int]) -> bytes:
    """Return the body of an op message, which names half messages that have ended."""
    return "".join(f"{offset}{OFFSET_SEPARATOR}" for offset in queue_offsets).encode()


def decode_op(body: bytes) -> list[int]:
    """Return what the body of an op message names; before 5.0 it was one number without a separator. Raise
    InvalidArgumentError where it is anything but numbers, or more of them than a broker writes."""
    if body.count(b",") > OP_NAMES_MAX or not _OP_BODY.fullmatch(body):
        raise InvalidArgumentError("the body of an op message is not a list of queue offsets")
    return [parse_int(text) for text in body.rstrip(b",").split(b",")]


@dataclass(frozen=True, slots=True)
class Op:
    """One op message, which says that half messages stored before it have ended."""

    queue_offset: int
    physical_offset: int
    named: list[int]


def op_of(record: Record) -> Op:
    """Return a record of the op topic; raise InvalidArgumentError where no broker can have written it. A broker's is
    born where it is stored and has a tag of its own (RocketMQ: makeOpMessageInner, fillOpRemoveMap); what clients once
    could send to this topic was born at theirs, and must not end anything."""
    if record.born_host != record.store_host:
        raise InvalidArgumentError("an op message that no broker wrote: it was born elsewhere")
    if decode_properties(record.properties).get(TAGS) != REMOVE_TAG:
        raise InvalidArgumentError("an op message without its tag")
    return Op(record.queue_offset, record.physical_offset, decode_op(record.body))


class HalfTable:
    """All pending half messages of a broker (one queue holds them all)."""

    def __init__(self, half_offset: int = 0, op_offset: int = 0) -> None:
        """Take the saved progress: everything below these offsets has ended."""
        self.next_offset = half_offset
        self._op_offset = op_offset
        self._by_origin: dict[int, Half] = {}
        self._by_offset: dict[int, Half] = {}
        self._lowest: list[int] = []
        self._due: list[tuple[int, int]] = []
        # Op messages above the progress: queue offset to the highest half message that each names.
        self._ops: dict[int, int] = {}
        # Only while starting: ended by an op message (with the place of the last that says so, since it can only speak
        # of what lies before it); ended by the copy that an end stored.
        self._removed: dict[int, int] = {}
        self._ended: set[int] = set()
        self._without_op: list[int] = []
        # Transactions that ended before their newest copy was learnt of: origin to the queue offset of that copy.
        self._ended_ahead: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_origin)

    # -- start

    def starting(self, ops: Iterable[Op]) -> None:
        """Take up the op messages of the log, in order. Then call `ends_found`, `learn` for every half message, and
        `started`."""
        for op in ops:
            self._removed.update(dict.fromkeys(op.named, op.physical_offset))
            self.op_stored(op.queue_offset, op.named)

    def ends_found(self, origins: Iterable[int]) -> None:
        """Take up the origins of transactions whose end is stored."""
        self._ended.update(origins)

    def is_removed(self, queue_offset: int, physical_offset: int) -> bool:
        """Tell, while starting, whether an op message behind a half message says that it has ended."""
        return self._removed.get(queue_offset, -1) > physical_offset

    def started(self) -> list[int]:
        """Return half messages that have ended or have a newer copy, and whose op message is missing. It must still be
        written, or Apache would ask about them."""
        without_op = [offset for offset in self._without_op if offset not in self._removed]
        self._removed.clear()
        self._ended.clear()
        self._without_op.clear()
        return without_op

    # -- following a master

    def superseded(self) -> list[int]:
        """Return half messages that got a newer copy since the last call. Op messages of them may follow in the log."""
        found, self._without_op = self._without_op, []
        return found

    def op_learnt(self, op: Op) -> list[int]:
        """Take up an op message that the master stored. Return the origins of the transactions that it ended."""
        self.op_stored(op.queue_offset, op.named)
        ended = [self._by_offset.get(offset) for offset in dict.fromkeys(op.named)]
        found = [half for half in ended if half is not None and half.physical_offset < op.physical_offset]
        for half in found:
            self.finish(half)
        return [half.origin for half in found]

    # -- what happens

    def learn(self, half: Half, prepared_offset: int, rules: CheckRules, now_ms: int) -> bool:
        """Take up a record of the half queue, in order. Tell whether it is pending."""
        self.next_offset = max(self.next_offset, half.queue_offset + 1)
        newest = self._ended_ahead.get(half.origin)
        if newest is not None:
            if half.queue_offset >= newest:
                del self._ended_ahead[half.origin]
            return False
        known = self._by_origin.get(half.origin)
        is_removed = self.is_removed(half.queue_offset, half.physical_offset)
        # A copy that Apache puts back names an earlier place of the queue. Not every record that says so is Apache's.
        is_removed = is_removed or (prepared_offset < half.queue_offset and prepared_offset in self._removed)
        if is_removed or half.origin in self._ended:
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
        """Note that a newer copy was stored. It may have been learnt of already."""
        if copy.queue_offset <= half.queue_offset:
            return
        del self._by_offset[half.queue_offset]
        half.queue_offset = copy.queue_offset
        half.physical_offset = copy.physical_offset
        half.stored_ms = copy.stored_ms
        half.check_times = copy.check_times
        self._place(half, rules, now_ms)

    def find(self, origin: int) -> Half | None:
        """Return the transaction, if it has not ended."""
        return self._by_origin.get(origin)

    def finish(self, half: Half) -> None:
        """Note that the end of a half message is stored."""
        if half.queue_offset >= self.next_offset:
            self._ended_ahead[half.origin] = half.queue_offset
        del self._by_origin[half.origin]
        del self._by_offset[half.queue_offset]

    def op_stored(self, op_offset: int, named: list[int]) -> None:
        """Note that an op message is stored there."""
        if op_offset >= self._op_offset:
            self._ops[op_offset] = max(named, default=-1)

    # -- time

    def due(self, now_ms: int, count_max: int) -> list[Half]:
        """Return half messages to look at now; each once, until `wait` or a new copy gives it another time."""
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
        """Look at a half message again at that time."""
        half.next_ms = next_ms
        heapq.heappush(self._due, (next_ms, half.queue_offset))

    def decide(self, half: Half, now_ms: int, rules: CheckRules, *, reachable: bool) -> Due:
        """Decide what to do with a half message. `reachable`: a member of its group is connected. Where none is, no
        question counts (RocketMQ #8311 counts them), and the half message waits until it is about to expire."""
        if half.check_times >= rules.checks_max:
            return Due.GIVE_UP
        if now_ms - half.first_stored_ms > rules.reserved_hours * _HOUR_MS:
            return Due.GIVE_UP
        return Due.ASK if reachable else Due.WAIT

    # -- progress

    def lowest(self) -> int:
        """Return the queue offset below which every half message has ended, or has a newer copy."""
        while self._lowest and self._lowest[0] not in self._by_offset:
            heapq.heappop(self._lowest)
        # A copy that was just stored is known here. Half messages that lie before it may not have been learnt of yet.
        return min(self._lowest[0], self.next_offset) if self._lowest else self.next_offset

    def oldest(self) -> Half | None:
        """Return the pending half message that holds the progress back."""
        return self._by_offset.get(self.lowest())

    def progress(self) -> tuple[int, int]:
        """Return offsets to save, of the half queue and of the op queue. RocketMQ keeps them as a consumer group's."""
        lowest = self.lowest()
        while self._ops.get(self._op_offset, lowest) < lowest:
            del self._ops[self._op_offset]
            self._op_offset += 1
        return lowest, self._op_offset

    def validate(self) -> None:
        """Assert that every index says the same."""
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
        # Whatever its sender asks for, the half message is looked at before its record expires.
        delay_ms = min(delay_ms, rules.reserved_hours * _HOUR_MS)
        # The log's time never goes back, the clock may: nobody waits longer than the delay.
        self.wait(half, min(half.stored_ms, now_ms) + delay_ms)
