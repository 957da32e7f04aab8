"""One pop on its way through the queues that may give it messages.

A tour visits its queues one after the other, in the order of RocketMQ: PopMessageProcessor. A queue whose messages lie
on the disk holds it up; the others are read at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.offsets import offset_key
from aerobee.broker.pop.asked import POLLING_FULL, POLLING_TIMEOUT, PopBatch, PopRequest, PopResult
from aerobee.broker.pop.entries import Key
from aerobee.broker.pop.records import NORMAL, ORDER_REVIVE_QUEUE, RETRY_V1, RETRY_V2, records_in
from aerobee.broker.pop.waits import ANY_QUEUE
from aerobee.broker.pop.window import Window
from aerobee.broker.topics import MESSAGE_TYPE, PRIORITY_FACTOR, PRIORITY_TYPE
from aerobee.errors import AerobeeError, StoreError
from aerobee.model.names import is_retry_topic
from aerobee.model.numbers import int_or
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.store.reads import GetMessageStatus, GetResult

if TYPE_CHECKING:
    from aerobee.broker.pop.driver import Pop

# So many queues are visited in one turn of the loop: a topic can have thousands.
_PLACES_MAX: Final = 256
# How often one visit reads on behind messages that a filter does not take.
_ROUNDS_MAX: Final = 8
# Statuses of a read that found nothing although the queue goes on.
_PASSED: Final = frozenset(
    (
        GetMessageStatus.NO_MATCHED_MESSAGE,
        GetMessageStatus.MESSAGE_WAS_REMOVING,
        GetMessageStatus.OFFSET_FOUND_NULL,
        GetMessageStatus.OFFSET_TOO_SMALL,
    )
)


class PopPlace(NamedTuple):
    """One queue to visit."""

    kind: int
    topic: str
    queue_id: int


class Tour:
    """One pop."""

    def __init__(self, pop: Pop, asked: PopRequest, revive_queue: int) -> None:
        self._pop = pop
        self._asked = asked
        self._places: list[PopPlace] = []
        self._room = 0
        self._result = PopResult(0)
        self._revive_queue = revive_queue
        # Between two visits other work goes on. What comes to a queue that was visited before is told meanwhile.
        self._is_visiting = False
        self._is_listed = False
        self._has_missed = False
        self._is_over = False
        self._retry_topics: list[str] = [] if asked.in_order else pop.retry_topics(asked.topic, asked.group)

    def run(self) -> None:
        """Read from the first queue on."""
        asked = self._asked
        self._is_visiting, self._has_missed = True, False
        self._places = self._order()
        self._room = asked.count
        self._result = PopResult(
            0,
            self._pop.clock.now_ms(),
            asked.invisible_ms,
            ORDER_REVIVE_QUEUE if asked.in_order else self._revive_queue,
        )
        self.go_on()

    def _order(self) -> list[PopPlace]:
        """Return the queues to visit, the first one last. RocketMQ: PopMessageProcessor.popMsgFromTopic."""
        pop, asked = self._pop, self._asked
        topic = pop.catalog.find(asked.topic)
        queues = 0 if topic is None else topic.read_queue_nums
        retries: list[PopPlace] = []
        kind = RETRY_V1
        for name in self._retry_topics:
            found = pop.catalog.find(name)
            if found is not None:
                retries += [PopPlace(kind, name, number) for number in range(found.read_queue_nums)]
            kind = RETRY_V2
        if not retries and 0 <= asked.queue_id < queues:
            return [PopPlace(NORMAL, asked.topic, asked.queue_id)]
        config = pop.config()
        by_priority = topic is not None and self._takes_by_priority(topic)
        if asked.queue_id == ANY_QUEUE:
            step = -1 if config.priority_order_asc else 1
            if by_priority:
                first = queues - 1 if config.priority_order_asc else 0
            else:
                first = pop.entropy.below(queues) if queues else 0
            own = [PopPlace(NORMAL, asked.topic, (first + step * number) % queues) for number in range(queues)]
        else:
            # While a pop waited, its queue may have gone. What was taken from it then could not be acknowledged.
            own = [PopPlace(NORMAL, asked.topic, asked.queue_id)] if asked.queue_id < queues else []
        order = own
        if retries:
            percent = config.pop_from_retry_probability
            if by_priority:
                percent = config.pop_from_retry_probability_for_priority
            order = retries + own if pop.entropy.below(100) < percent else own + retries
        return order[::-1]

    def _takes_by_priority(self, topic: TopicConfig) -> bool:
        """Tell whether the highest queue comes first, where the number of a queue is the priority of its messages.
        RocketMQ: SubscriptionGroupConfig.getPriorityFactor."""
        if self._asked.in_order or topic.attributes.get(MESSAGE_TYPE) != PRIORITY_TYPE:
            return False
        group = self._pop.catalog.group(self._asked.group)
        percent = 100 if group is None else int_or(group.attributes.get(PRIORITY_FACTOR, ""), 100, 0, 100)
        return percent == 100 or self._pop.entropy.below(100) < percent

    def go_on(self) -> None:
        """Visit the queues that are left, then answer."""
        for _ in range(_PLACES_MAX):
            if not self._places:
                self._finish()
                return
            if not self._visit(self._places.pop()):
                self._listen()
                return
        self._listen()
        asyncio.get_running_loop().call_soon(self._try, self.go_on)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except AerobeeError as error:
            self._tell(PopResult(ResponseCode.SYSTEM_ERROR, remark=error.message))

    def _tell(self, result: PopResult) -> None:
        self._is_over = True
        self._asked.told(result)

    # -- one queue

    def _visit(self, place: PopPlace) -> bool:
        """Take from one queue. Return False where it is waited for."""
        pop, asked = self._pop, self._asked
        key = Key(place.topic, asked.group, place.queue_id)
        if asked.in_order:
            return pop.orders.visit(self, place, key)
        window = self.window(key)
        if self._room <= 0 or window.is_reading or window.is_full:
            self._count_rest(window)
            return True
        least = window.next_pop_time(pop.clock.now_ms())
        if least > self._result.pop_time:
            if self._result.batches:
                # An answer has one time for all of its messages.
                self._count_rest(window)
                return True
            self._result.pop_time = least
        first, count = window.returned_run(self._room)
        if first >= 0:
            return self._read(
                place, window, first, lambda result: self._took_returned(place, window, first, count, result), count
            )
        return self._take_next(place, window, 0)

    def window(self, key: Key) -> Window:
        """Return the window of a queue where it stands now: after commits of pull consumers, and resets."""
        pop = self._pop
        offsets = pop.offsets
        window = pop.table.windows.get(key)
        committed = offsets.table.get(offset_key(key.topic, key.group), {}).get(key.queue_id)
        if window is None:
            if committed is None:
                committed = self.first_offset(key)
                offsets.table.setdefault(offset_key(key.topic, key.group), {})[key.queue_id] = committed
            window = pop.table.window(key, committed)
            window.told = committed
            offsets.popped = pop.position
        elif committed is not None and committed > window.taken:
            self._move(window, committed)
        if offsets.resets:
            reset = offsets.take_reset(key.group, key.topic, key.queue_id)
            if reset is not None:
                pop.reset(window, reset)
        return window

    def first_offset(self, key: Key) -> int:
        """Return where a group begins. RocketMQ: PopMessageProcessor.getInitOffset."""
        store, topic = self._pop.store, key.topic.encode()
        low = store.min_offset(topic, key.queue_id)
        if self._asked.from_start or is_retry_topic(key.topic):
            return low
        queue = store.queues.find(topic, key.queue_id)
        unit = None if queue is None or low > 0 else queue.unit(0)
        if unit is not None and store.log_end - unit[0] <= store.reads.hot_bytes:
            return 0
        return max(0, store.max_offset(topic, key.queue_id) - 1)

    def _move(self, window: Window, following: int) -> None:
        """Pass over messages that are not to be had: expired ones, or those that a filter does not take."""
        pop, start = self._pop, window.taken
        now_ms = pop.clock.now_ms()
        pop.table.take(window, start, following, (), now_ms, now_ms)
        pop.ledger.writer.take(window.key, now_ms, now_ms, start, following, ())
        pop.ledger.said()

    def _take_next(self, place: PopPlace, window: Window, rounds: int) -> bool:
        if self._room <= 0 or rounds >= _ROUNDS_MAX:
            self._count_rest(window)
            return True
        start = window.taken
        return self._read(
            place, window, start, lambda result: self._took_next(place, window, start, rounds, result), self._room,
            filtered=True,
        )  # fmt: skip

    def _read(
        self,
        place: PopPlace,
        window: Window,
        offset: int,
        took: Callable[[GetResult], bool],
        count: int,
        *,
        filtered: bool = False,
    ) -> bool:
        store, asked = self._pop.store, self._asked
        tags = frozenset(asked.tags) if filtered and asked.tags is not None else None
        result = store.get_messages(
            place.topic.encode(),
            place.queue_id,
            offset,
            count,
            store.config.max_transfer_bytes_on_message_in_memory,
            tags,
            asked.accept if filtered else None,
        )
        if result.status is not GetMessageStatus.COLD:
            return took(result)
        window.is_reading = True

        def fetched(outcome: GetResult | StoreError) -> None:
            window.is_reading = False
            self._fetched(window, outcome, took)

        store.fetch(result, fetched)
        return False

    def _fetched(self, window: Window, outcome: GetResult | StoreError, took: Callable[[GetResult], bool]) -> None:
        pop = self._pop
        if isinstance(outcome, StoreError):
            if not self._result.batches:
                self._tell(PopResult(ResponseCode.SYSTEM_ERROR, remark=outcome.message))
                return
        elif pop.table.windows.get(window.key) is window and self._result.pop_time > window.floor:
            try:
                if not took(outcome):
                    return
            except AerobeeError as error:
                self._tell(PopResult(ResponseCode.SYSTEM_ERROR, remark=error.message))
                return
        self.go_on()

    def _took_returned(self, place: PopPlace, window: Window, first: int, count: int, result: GetResult) -> bool:
        """Hold again what another pop could not deliver; what cannot be read any more is gone."""
        pop = self._pop
        offsets = [offset for offset in result.queue_offsets if first <= offset < first + count]
        if result.status is GetMessageStatus.FOUND and len(offsets) == result.count:
            self._hold(place, window, first, first, offsets, result.buffers)
            gone = tuple(one for one in range(first, offsets[-1]) if one not in offsets)
        else:
            gone = (first,)
        if gone:
            pop.table.revived(window, gone)
            pop.ledger.writer.done(window.key, gone, pop.clock.now_ms())
            pop.ledger.said()
        again, count = window.returned_run(max(1, self._room))
        if again < 0 or self._room <= 0:
            return self._take_next(place, window, 0)
        return self._read(
            place, window, again, lambda result: self._took_returned(place, window, again, count, result), count
        )

    def _took_next(self, place: PopPlace, window: Window, start: int, rounds: int, result: GetResult) -> bool:
        status, following = result.status, result.next_begin_offset
        if window.taken != start:
            # A reset came while the disk was read.
            return True
        if status is GetMessageStatus.FOUND:
            self._hold(place, window, start, following, result.queue_offsets, result.buffers)
        elif status in _PASSED and following > start:
            self._move(window, following)
            return self._take_next(place, window, rounds + 1)
        elif status is GetMessageStatus.OFFSET_OVERFLOW_BADLY and following < start:
            # By a commit, its group stands beyond the end of the queue. Each pop would go there again, and what is
            # stored meanwhile would be passed over, if the commit stayed.
            self._pop.reset(window, following)
        self._count_rest(window)
        return True

    def _hold(
        self,
        place: PopPlace,
        window: Window,
        start: int,
        following: int,
        offsets: list[int],
        buffers: list[bytes | memoryview],
    ) -> None:
        pop, result = self._pop, self._result
        first = offsets[0]
        told: range | tuple[int, ...] = range(first, first + len(offsets))
        if offsets[-1] + 1 - first != len(offsets):
            told = tuple(offsets)
        pop_time, deadline = result.pop_time, result.pop_time + self._asked.invisible_ms
        ahead = window.ahead.intersection(offsets) if window.ahead else None
        pop.table.take(window, start, following, told, pop_time, deadline)
        pop.ledger.writer.take(window.key, pop_time, deadline, start, following, told)
        pop.ledger.said()
        batch = PopBatch(place.kind, place.topic, place.queue_id, start, offsets, buffers)
        if ahead:
            batch = _without(batch, ahead)
        if not batch.offsets:
            return
        self._room -= len(batch.offsets)
        last = result.batches[-1] if result.batches else None
        if last is not None and last.topic == batch.topic and last.queue_id == batch.queue_id:
            # Clients take two entries of one queue for an error.
            last.start = min(last.start, start)
            last.offsets = [*last.offsets, *batch.offsets]
            last.buffers = [*last.buffers, *batch.buffers]
        else:
            result.batches.append(batch)

    def add(self, batch: PopBatch, pop_time: int) -> None:
        """Add what a queue that is read in order gave."""
        self._result.batches.append(batch)
        self._result.pop_time = pop_time
        self._room -= len(batch.offsets)

    @property
    def room(self) -> int:
        return self._room

    @property
    def asked(self) -> PopRequest:
        return self._asked

    def fits(self, pop_time: int) -> bool:
        """Tell whether messages may be held under that time: an answer has one time for all of its messages."""
        return pop_time <= self._result.pop_time or not self._result.batches

    @property
    def pop_time(self) -> int:
        return self._result.pop_time

    def count_rest(self, topic: str, queue_id: int, taken: int) -> None:
        """Count what a queue has beyond an offset."""
        self._result.rest += max(0, self._pop.store.max_offset(topic.encode(), queue_id) - taken)

    def _count_rest(self, window: Window) -> None:
        self.count_rest(window.topic, window.queue_id, window.taken)

    # -- the end

    def _finish(self) -> None:
        pop, asked, result = self._pop, self._asked, self._result
        self._is_visiting = False
        if not result.batches:
            self._wait()
            return
        if asked.is_gone():
            self._is_over = True
            self._give_back()
            return
        pop.done(result)
        self._tell(result)
        if result.rest > 0 or self._has_missed:
            pop.waits.wake(asked.topic, asked.group)
            if asked.queue_id != ANY_QUEUE:
                pop.waits.wake(asked.topic, asked.group, asked.queue_id)

    def _give_back(self) -> None:
        """Return everything: nobody is there to be answered."""
        pop, asked, result = self._pop, self._asked, self._result
        if not asked.in_order:
            for batch in result.batches:
                window = pop.table.windows.get(Key(batch.topic, asked.group, batch.queue_id))
                if window is not None:
                    for offset in batch.offsets:
                        window.give_back(offset, result.pop_time)
        pop.waits.wake(asked.topic, asked.group)
        for batch in result.batches:
            pop.waits.wake(asked.topic, asked.group, batch.queue_id)

    def _wait(self) -> None:
        if self._asked.wait_until_s <= self._pop.clock.monotonic():
            self._result.code = POLLING_TIMEOUT
        elif self._has_missed:
            asyncio.get_running_loop().call_soon(self._try, self.run)
            return
        elif self._is_listed or self._hold_on():
            return
        else:
            self._result.code = POLLING_FULL
        self._tell(self._result)

    def _hold_on(self) -> bool:
        asked = self._asked
        self._is_listed = self._pop.waits.hold(
            self, asked.topic, asked.group, asked.queue_id, self._retry_topics, asked.tags, asked.wait_until_s
        )
        return self._is_listed

    def _listen(self) -> None:
        """Be told of messages that come from now on, if the pop would wait for some."""
        if self._is_visiting and not self._is_listed and self._asked.wait_until_s > self._pop.clock.monotonic():
            self._hold_on()

    def is_gone(self) -> bool:
        return self._is_over or self._asked.is_gone()

    def wake(self) -> None:
        """Run again: something came."""
        self._is_listed = False
        if self._is_visiting:
            self._has_missed = True
        else:
            self._try(self.run)

    def expire(self) -> None:
        """Answer that nothing came in time."""
        self._is_listed = False
        if not self._is_visiting and not self._is_over:
            self._result.code = POLLING_TIMEOUT
            self._tell(self._result)


def _without(batch: PopBatch, ahead: set[int]) -> PopBatch:
    """Leave out what was acknowledged before it was taken: a crash had lost the first take."""
    kept = [
        (offset, record)
        for offset, record in zip(batch.offsets, records_in(batch.buffers), strict=True)
        if offset not in ahead
    ]
    return PopBatch(
        batch.kind, batch.topic, batch.queue_id, batch.start, [one for one, _ in kept], [record for _, record in kept]
    )
