"""Queues that are read in order: the last pop of each holds the queue until it is acknowledged or its time is up.

The state is RocketMQ's, in its file and under its names, so that either broker goes on where the other stopped. Ours is
told to the journal as well: an acknowledgement that was answered is not forgotten with the seconds since the last save.
RocketMQ: QueueLevelConsumerManager, QueueLevelConsumerOrderInfoLockManager.
"""

from __future__ import annotations

import heapq
import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.offsets import offset_key
from aerobee.broker.pop.asked import InFlight, Lease, PopBatch
from aerobee.broker.pop.entries import Key
from aerobee.errors import StoreError
from aerobee.model.numbers import INT32_MAX, parse_int
from aerobee.protocol.codes import ResponseCode
from aerobee.store.metadata.plain import OrderInfoTable
from aerobee.store.reads import GetMessageStatus, GetResult

if TYPE_CHECKING:
    from aerobee.broker.pop.driver import Pop
    from aerobee.broker.pop.tour import PopPlace, Tour

_SAVE_MS: Final = 10_000
# RocketMQ: QueueLevelConsumerManager.CLEAN_SPAN_FROM_LAST.
_UNUSED_MS: Final = 24 * 3_600_000
_COUNT_MAX: Final = 64
# So many ends of locks are kept beyond two of each queue, before they are looked through.
_LOCKS_SPARE: Final = 1_000
_PASSED: Final = frozenset(
    (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.OFFSET_FOUND_NULL, GetMessageStatus.MESSAGE_WAS_REMOVING)
)
_WRONG: Final = frozenset((GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY))


class OrderInfo(msgspec.Struct, omit_defaults=False):
    """The last pop of a queue. RocketMQ: OrderInfo, with the names of its file."""

    a: str | None = None
    # A bit for each acknowledged message.
    cm: int = 0
    i: int | None = None
    l: int = 0  # noqa: E741 (stored so)
    # The first offset, then the distances of the others to it.
    o: list[int] | None = None
    oc: dict[int, int] | None = None
    ot: dict[int, int] | None = None
    popTime: int = 0  # noqa: N815 (stored so)

    def offsets(self) -> list[int]:
        found = self.o or []
        return [found[0], *[found[0] + one for one in found[1:]]] if found else []

    def visible_ms(self, offset: int) -> int:
        return (self.ot or {}).get(offset, self.popTime + (self.i or 0))

    def locked_until(self, now_ms: int) -> int:
        """Return until when somebody holds a message; -1 where nobody does."""
        times = [self.visible_ms(one) for bit, one in enumerate(self.offsets()) if not self.cm >> bit & 1]
        return max((one for one in times if one > now_ms), default=-1)

    def next_offset(self) -> int:
        """Return the first offset that is not acknowledged, or the one behind the last."""
        offsets = self.offsets()
        for bit, offset in enumerate(offsets):
            if not self.cm >> bit & 1:
                return offset
        return offsets[-1] + 1

    def to_json(self) -> dict[str, Any]:
        """Return what Apache's file holds: without the fields that are not set."""
        found: dict[str, Any] = {} if self.a is None else {"a": self.a}
        found["cm"] = self.cm
        if self.i is not None:
            found["i"] = self.i
        found["l"] = self.l
        found["o"] = list(self.o or [])
        if self.oc is not None:
            found["oc"] = dict(self.oc)
        if self.ot is not None:
            found["ot"] = dict(self.ot)
        found["popTime"] = self.popTime
        return found


class _Said(msgspec.Struct):
    """What the journal says of a queue: the pop, and the position of its group."""

    c: int
    o: OrderInfo | None = None
    # The position was set by an administrator. It is not written any more: it would bring back the position also where
    # the group went on by pulls.
    r: bool = False


def read_info(data: object) -> OrderInfo:
    """Return an entry of the file. Raise ValueError for any other value."""
    try:
        info = msgspec.convert(data, OrderInfo, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    numbers = [info.cm, info.i or 0, info.l, info.popTime, *(info.o or []), *(info.ot or {}).values()]
    if len(info.o or []) > _COUNT_MAX or any(not -(2**63) <= one < 2**63 for one in numbers):
        raise ValueError("a number or a list is out of bounds")
    return info


class PopOrders:
    """The queues of a broker that are read in order."""

    def __init__(self, pop: Pop) -> None:
        self._pop = pop
        self._file = OrderInfoTable(pop.store.disk, pop.store.root)
        self._infos: dict[Key, OrderInfo] = {}
        self._reading: set[Key] = set()
        # When locks end, for the pops that wait: (time, number, key).
        self._locks: list[tuple[int, int, Key]] = []
        self._number = 0
        self._is_dirty = False
        self._is_saving = False
        self._save_ms = 0

    # -- start

    def open(self) -> None:
        """Take up Apache's file, and what the journal tells besides."""
        pop, now_ms = self._pop, self._pop.clock.now_ms()
        self._infos = {}
        self._file.load(now_ms)
        for name, queues in self._file.table.items():
            topic, _, group = name.partition("@")
            for queue_id, data in queues.items():
                try:
                    self._infos[Key(topic, group, parse_int(str(queue_id), 0, INT32_MAX))] = read_info(data)
                except ValueError:
                    continue
        for key, text in pop.table.orders.items():
            try:
                said = msgspec.json.decode(text, type=_Said, strict=False)
            except (msgspec.DecodeError, ValueError):
                continue
            queues = pop.offsets.table.setdefault(offset_key(key.topic, key.group), {})
            queues[key.queue_id] = said.c if said.r else max(said.c, queues.get(key.queue_id, 0))
            if said.o is None:
                self._infos.pop(key, None)
            else:
                self._infos[key] = said.o
        for key, info in self._infos.items():
            self._lock(key, info, now_ms)

    # -- pops

    def visit(self, tour: Tour, place: PopPlace, key: Key) -> bool:
        """Let a pop take from a queue that nobody holds. Return False where it is waited for."""
        pop, asked = self._pop, tour.asked
        offset = self._position(tour, key)
        if key in self._reading:
            return True
        info, now_ms = self._infos.get(key), pop.clock.now_ms()
        if info is not None and info.o and not (info.a is not None and info.a == asked.attempt_id):
            if not info.i:
                info.i = asked.invisible_ms
            if info.locked_until(now_ms) >= 0:
                return True
        if tour.room <= 0:
            tour.count_rest(key.topic, key.queue_id, offset)
            return True
        return self._read(tour, place, key, offset, 0)

    def _position(self, tour: Tour, key: Key) -> int:
        offsets = self._pop.offsets
        queues = offsets.table.setdefault(offset_key(key.topic, key.group), {})
        offset = queues.get(key.queue_id)
        if offset is None:
            offset = queues[key.queue_id] = tour.first_offset(key)
        if offsets.resets:
            reset = offsets.take_reset(key.group, key.topic, key.queue_id)
            if reset is not None:
                offset = queues[key.queue_id] = reset
                self._infos.pop(key, None)
                self._say(key, offset)
        return offset

    def _read(self, tour: Tour, place: PopPlace, key: Key, offset: int, rounds: int) -> bool:
        store, asked = self._pop.store, tour.asked
        tags = frozenset(asked.tags) if asked.tags is not None else None
        result = store.get_messages(
            key.topic.encode(), key.queue_id, offset, min(tour.room, _COUNT_MAX),
            store.config.max_transfer_bytes_on_message_in_memory, tags, asked.accept,
        )  # fmt: skip
        if result.status is not GetMessageStatus.COLD:
            return self._took(tour, place, key, offset, rounds, result)
        self._reading.add(key)

        def fetched(outcome: GetResult | StoreError) -> None:
            self._reading.discard(key)
            if isinstance(outcome, GetResult) and not self._took(tour, place, key, offset, rounds, outcome):
                return
            tour.go_on()

        store.fetch(result, fetched)
        return False

    def _took(self, tour: Tour, place: PopPlace, key: Key, offset: int, rounds: int, result: GetResult) -> bool:
        following = result.next_begin_offset
        if result.status is GetMessageStatus.FOUND:
            self._hold(tour, place, key, offset, result)
        elif result.status in _WRONG or (result.status in _PASSED and following > offset):
            self._pop.offsets.table[offset_key(key.topic, key.group)][key.queue_id] = following
            self._say(key, following)
            if rounds < 8:
                return self._read(tour, place, key, following, rounds + 1)
        tour.count_rest(key.topic, key.queue_id, following)
        return True

    def _hold(self, tour: Tour, place: PopPlace, key: Key, start: int, result: GetResult) -> None:
        pop, asked, now_ms = self._pop, tour.asked, self._pop.clock.now_ms()
        before = self._infos.get(key)
        pop_time = max(tour.pop_time, now_ms if before is None else before.popTime + 1)
        if not tour.fits(pop_time):
            # The next pop takes them. Under the answer's time nobody could acknowledge them, or those before.
            return
        offsets = result.queue_offsets
        info = OrderInfo(asked.attempt_id, 0, asked.invisible_ms, now_ms, popTime=pop_time)
        info.o = [offsets[0], *[one - offsets[0] for one in offsets[1:]]]
        if before is not None:
            info.oc = _counts(before, asked.attempt_id, offsets)
        self._infos[key] = info
        pop.offsets.table[offset_key(key.topic, key.group)][key.queue_id] = start
        self._say(key, start)
        self._lock(key, info, now_ms)
        batch = PopBatch(place.kind, place.topic, place.queue_id, start, offsets, result.buffers)
        batch.consumed = dict(info.oc or {})
        tour.add(batch, pop_time)

    # -- giving back

    def ack(self, lease: Lease) -> int:
        """Acknowledge one message of the last pop. Return RocketMQ's code."""
        pop = self._pop
        key = Key(lease.topic, lease.group, lease.queue_id)
        info = self._infos.get(key)
        queues = pop.offsets.table.get(offset_key(key.topic, key.group), {})
        if info is None or lease.offset < queues.get(key.queue_id, 0):
            return 0
        if lease.pop_time != info.popTime:
            return 0
        offsets = info.offsets()
        if lease.offset not in offsets:
            return ResponseCode.MESSAGE_ILLEGAL
        bit = 1 << offsets.index(lease.offset)
        if info.cm & bit:
            # Said before. A request may say it thousands of times, and each would be a record.
            return 0
        info.cm |= bit
        if info.cm >= 1 << 63:
            info.cm -= 1 << 64  # Java's long
        queues[key.queue_id] = info.next_offset()
        pop.acked += 1
        self._say(key, queues[key.queue_id])
        if info.locked_until(pop.clock.now_ms()) < 0:
            self._wake(key)
        return 0

    def change(self, lease: Lease, visible_ms: int) -> int:
        """Hide a message until another time. Return that time; -1 where the last pop does not hold it."""
        key = Key(lease.topic, lease.group, lease.queue_id)
        info = self._infos.get(key)
        if info is None or info.popTime != lease.pop_time or lease.offset not in info.offsets():
            return -1
        info.ot = {**(info.ot or {}), lease.offset: visible_ms}
        self._say(key, self._pop.offsets.table.get(offset_key(key.topic, key.group), {}).get(key.queue_id, 0))
        self._lock(key, info, self._pop.clock.now_ms())
        return visible_ms

    def is_held(self, lease: Lease) -> bool:
        info = self._infos.get(Key(lease.topic, lease.group, lease.queue_id))
        if info is None or info.popTime != lease.pop_time or lease.offset not in info.offsets():
            return False
        return not info.cm >> info.offsets().index(lease.offset) & 1

    def is_locked(self, group: str, topic: str, queue_id: int, attempt_id: str | None) -> bool:
        """Tell whether a pop of another attempt would have to wait."""
        info = self._infos.get(Key(topic, group, queue_id))
        if info is None or (info.a is not None and info.a == attempt_id):
            return False
        return info.locked_until(self._pop.clock.now_ms()) >= 0

    def moved(self, key: Key, offset: int, *, is_reset: bool) -> None:
        """Follow a position that was set from outside. The journal would bring back the one that it knows."""
        if key in self._pop.table.orders or key in self._infos:
            if is_reset:
                self._infos.pop(key, None)
            self._say(key, offset)

    def clear(self, key: Key) -> None:
        """Forget the last pop of a queue: its group was reset."""
        if self._infos.pop(key, None) is not None:
            self._is_dirty = True

    def in_flight(self, group: str | None, topic: str | None) -> list[InFlight]:
        """Return what the last pops still hold."""
        now_ms, found = self._pop.clock.now_ms(), []
        for key, info in self._infos.items():
            if (group is not None and key.group != group) or (topic is not None and key.topic != topic):
                continue
            held = [
                (offset, info.popTime, info.visible_ms(offset))
                for bit, offset in enumerate(info.offsets())
                if not info.cm >> bit & 1 and info.visible_ms(offset) > now_ms
            ]
            if held:
                following = info.next_offset()
                found.append(InFlight(key.topic, key.group, key.queue_id, following, following, len(held), held))
        return found

    # -- what is kept

    def _say(self, key: Key, position: int) -> None:
        info = self._infos.get(key)
        said: dict[str, object] = {"c": position}
        if info is not None:
            said["o"] = info.to_json()
        text = json.dumps(said, separators=(",", ":")).encode()
        self._pop.table.orders[key] = text
        self._pop.ledger.writer.order(key, text, self._pop.clock.now_ms())
        self._pop.ledger.said()
        self._is_dirty = True

    # -- time

    def _lock(self, key: Key, info: OrderInfo, now_ms: int) -> None:
        until_ms = info.locked_until(now_ms)
        if until_ms < 0:
            return
        if len(self._locks) > 2 * len(self._infos) + _LOCKS_SPARE:
            # Who changes the time of a message again and again leaves one each time.
            every = ((one.locked_until(now_ms), other) for other, one in self._infos.items())
            self._locks = [(end_ms, number, other) for number, (end_ms, other) in enumerate(every) if end_ms >= 0]
            heapq.heapify(self._locks)
            return
        self._number += 1
        heapq.heappush(self._locks, (until_ms, self._number, key))

    def _wake(self, key: Key) -> None:
        self._pop.waits.wake(key.topic, key.group)
        self._pop.waits.wake(key.topic, key.group, key.queue_id)

    def tick(self, now_ms: int) -> None:
        """Wake the pops that wait for a lock that has ended, and save what changed."""
        while self._locks and self._locks[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._locks)
            info = self._infos.get(key)
            if info is not None and info.locked_until(now_ms) < 0:
                self._wake(key)
        if self._is_dirty and not self._is_saving and now_ms - self._save_ms >= _SAVE_MS:
            self._save_ms = now_ms
            self._render(now_ms)
            self._is_saving = True
            self._file.submit(self._saved)

    def _saved(self, error: Exception | None) -> None:
        self._is_saving = False
        self._is_dirty = self._is_dirty or error is not None

    def _render(self, now_ms: int) -> None:
        catalog = self._pop.catalog
        table: dict[str, dict[Any, Any]] = {}
        for key, info in list(self._infos.items()):
            config = catalog.find(key.topic)
            if (
                config is None
                or catalog.group(key.group) is None
                or key.queue_id >= config.read_queue_nums
                or now_ms - info.l > _UNUSED_MS
            ):
                del self._infos[key]
            else:
                table.setdefault(f"{key.topic}@{key.group}", {})[key.queue_id] = info.to_json()
        self._is_dirty = False
        self._file.table = table
        self._file.bump(now_ms)

    def close(self) -> None:
        """Save what changed, blocking."""
        if self._is_dirty:
            self._render(self._pop.clock.now_ms())
            self._file.save()


def _counts(before: OrderInfo, attempt_id: str | None, offsets: list[int]) -> dict[int, int]:
    """Return how often each message was consumed before. RocketMQ: OrderInfo.mergeOffsetConsumedCount."""
    known = before.oc or {}
    if before.a is not None and before.a == attempt_id:
        return known
    popped = set(before.offsets())
    return {offset: known.get(offset, 0) + 1 for offset in offsets if offset in popped}
