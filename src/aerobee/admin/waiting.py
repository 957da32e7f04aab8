"""Messages that wait in a broker's own topics: for their time, for the delay of their level, for the end of their
transaction. Nothing is changed by reading them."""

from __future__ import annotations

import contextlib
import heapq
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.messages import Span, next_place, queue_ranges
from aerobee.admin.offsets import committed
from aerobee.client.consumer import LitePullConsumer
from aerobee.errors.codes import PullError, TopicNotExistError
from aerobee.model.message import Message
from aerobee.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from aerobee.model.numbers import int_or
from aerobee.model.queue import MessageQueue
from aerobee.model.sysproperties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)

# RocketMQ: TransactionalMessageUtil.buildConsumerGroup. Its offsets say how far transactions have ended.
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
_DELAY: Final = re.compile(r"(\d{1,9})([smhd])")
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PULL: Final = 32


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that waits. `due_ms` is when it is delivered, None where nobody knows that before."""

    broker: str
    topic: str
    queue_id: int
    message_id: str
    keys: str
    tags: str
    stored_ms: int
    # Its place in the topic where it waits.
    waits_in_queue: int
    offset: int
    due_ms: int | None = None
    # Of a half message: who can end it, and how often the broker has asked.
    producer_group: str = ""
    asked: int = 0


def waiting_message(message: Message, due_ms: int | None = None) -> WaitingMessage:
    """Return what a record of a waiting topic says of the message that it will become."""
    told = message.system_properties
    return WaitingMessage(
        broker=message.broker,
        topic=told.get(REAL_TOPIC, ""),
        queue_id=int_or(told.get(REAL_QUEUE_ID), -1),
        message_id=told.get(UNIQ_KEY) or message.message_id,
        keys=message.keys,
        tags=message.tags,
        # A timed message that waits long is stored again; this is when it came first.
        stored_ms=int_or(told.get(TIMER_ENQUEUE_MS), message.store_timestamp),
        waits_in_queue=message.queue_id,
        offset=message.queue_offset,
        due_ms=due_ms,
        producer_group=told.get(PRODUCER_GROUP, ""),
        asked=int_or(told.get(TRANSACTION_CHECK_TIMES), 0),
    )


# -- by time


def due_of(message: Message) -> int:
    """Return when a timed message is delivered, in milliseconds since 1970."""
    told = message.system_properties
    at = int_or(told.get(TIMER_DELIVER_MS), 0)
    if at:
        return at
    delay = int_or(told.get(TIMER_DELAY_MS), 0) or 1000 * int_or(told.get(TIMER_DELAY_SEC), 0)
    if delay:
        return int_or(told.get(TIMER_ENQUEUE_MS), message.store_timestamp) + delay
    return int_or(told.get(TIMER_OUT_MS), 0)


@dataclass(slots=True)
class TimedFilter:
    """Tells which records of the timer topic still wait. It must be shown them newest first: a recall lies behind the
    message that it takes back, and the newest copy of a message that was stored again counts."""

    now_ms: int
    topic: str = ""
    _over: set[tuple[str, str]] = field(default_factory=set)

    def matches(self, message: Message) -> bool:
        told = message.system_properties
        recalled = told.get(TIMER_DEL_UNIQKEY)
        if recalled:
            # RocketMQ: TimerMessageStore.buildDeleteKey: the topic and the key, joined by an underline.
            topic = told.get(REAL_TOPIC, "")
            self._over.add((message.broker, recalled.removeprefix(f"{topic}_")))
            return False
        key = (message.broker, told.get(UNIQ_KEY) or message.message_id)
        if key in self._over or due_of(message) <= self.now_ms:
            return False
        self._over.add(key)
        return self.topic in ("", told.get(REAL_TOPIC))


# -- by level


def delay_ms(word: str) -> int:
    """Return a delay as messageDelayLevel writes it, such as 10s or 2h; 0 for one that is not understood."""
    found = _DELAY.fullmatch(word.strip())
    return 0 if found is None else int_or(found[1], 0) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class WaitingListing:
    """Messages that wait, the first to be delivered first. `total` counts all, as far as `is_exact`."""

    messages: tuple[WaitingMessage, ...]
    total: int
    is_exact: bool = True
    problems: tuple[str, ...] = ()


async def delayed(
    consumer: LitePullConsumer,
    infos: Mapping[str, Mapping[str, str]],
    level: int,
    delay: int,
    now_ms: int,
    most: int,
    *,
    unreached: Mapping[str, str] | None = None,
) -> WaitingListing:
    """Return the first messages of a delay level by the time of their delivery. `infos` are the runtime infos of the
    brokers by name, which tell how far each has come: as of its last save, so what is overdue was delivered since.

    The brokers in `unreached` are known not to answer: they are not asked, and not told as a problem."""
    silent = dict(unreached or {})
    try:
        ranges = await queue_ranges(consumer, SCHEDULE_TOPIC, Span(), silent)
    except TopicNotExistError:
        return WaitingListing((), 0)
    lanes: list[list[WaitingMessage]] = []
    total = 0
    for queue, (begin, end) in sorted(ranges.items()):
        if queue.queue_id != level - 1 or queue.broker_name not in infos:
            continue
        done = infos[queue.broker_name].get(f"scheduleMessageOffset_{level}", "").partition(",")[0]
        begin, passed, lane = max(begin, int_or(done, 0)), 0, list[WaitingMessage]()
        async with contextlib.aclosing(_records(consumer, queue, begin, end)) as records:
            async for message in records:
                due_ms = message.store_timestamp + delay
                if due_ms <= now_ms:
                    passed += 1
                    continue
                lane.append(waiting_message(message, due_ms))
                if len(lane) >= most:
                    break
        total += max(0, end - begin - passed)
        lanes.append(lane)
    merged = heapq.merge(*lanes, key=lambda one: one.due_ms or 0)
    return WaitingListing(tuple(merged)[:most], total, problems=_found_silent(silent, unreached))


# -- half messages


def _found_silent(silent: Mapping[str, str], known: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return a sentence for each broker whose silence was not known before."""
    return tuple(f"broker {name} is silent: {why}" for name, why in sorted(silent.items()) if name not in (known or {}))


async def half_messages(
    admin: AdminConnection,
    consumer: LitePullConsumer,
    *,
    look: int = 20_000,
    unreached: Mapping[str, str] | None = None,
) -> WaitingListing:
    """Return the transactions that have no end yet, the oldest first.

    A broker saves how far they have ended; from there on, the records of ends are compared with the half messages.
    At most `look` records of each kind are read from a broker: with more, the listing is not exact. The brokers in
    `unreached` are known not to answer: they are not asked, and not told as a problem.
    """
    silent = dict(unreached or {})
    try:
        halves = await queue_ranges(consumer, HALF_TOPIC, Span(), silent)
        ends = await queue_ranges(consumer, OP_HALF_TOPIC, Span(), silent)
    except TopicNotExistError:
        return WaitingListing((), 0)
    by_name = {one.name: one for one in await admin.masters()}
    places = [(by_name[queue.broker_name], queue) for queue in sorted(halves) if queue.broker_name in by_name]
    ended_in = {queue.broker_name: (queue, *range_) for queue, range_ in ends.items()}
    exact = True

    async def ask(broker: KnownBroker) -> list[WaitingMessage]:
        nonlocal exact
        over: set[int] = set()
        if broker.name in ended_in:
            queue, begin, end = ended_in[broker.name]
            begin = max(begin, await committed(admin, TRANSACTION_GROUP, OP_HALF_TOPIC, broker, queue.queue_id) or 0)
            if end - begin > look:
                exact, end = False, begin + look
            async for record in _records(consumer, queue, begin, end):
                over.update(offsets_in(record.body))
        found = []
        for owner, queue in places:
            if owner.name != broker.name:
                continue
            begin, end = halves[queue]
            begin = max(begin, await committed(admin, TRANSACTION_GROUP, HALF_TOPIC, broker, queue.queue_id) or 0)
            if end - begin > look:
                exact, end = False, begin + look
            async for record in _records(consumer, queue, begin, end):
                if record.queue_offset not in over:
                    found.append(waiting_message(record))
        return found

    said, problems = await from_each([by_name[name] for name in sorted({one.name for one, _ in places})], ask)
    messages = sorted((one for _, rows in said for one in rows), key=lambda one: one.stored_ms)
    return WaitingListing(tuple(messages), len(messages), exact, (*_found_silent(silent, unreached), *problems))


def offsets_in(body: bytes) -> set[int]:
    """Return the offsets that the record of an end names. RocketMQ: they are joined by commas."""
    words = body.decode("utf-8", "replace").split(",")
    return {at for at in (int_or(word.strip(), None, 0) for word in words) if at is not None}


async def _records(
    consumer: LitePullConsumer, queue: MessageQueue, offset: int, end: int
) -> AsyncGenerator[Message, None]:
    while offset < end:
        pulled = await consumer.pull(queue, offset, max=min(_PULL, end - offset))
        for message in pulled.messages:
            if message.queue_offset < end:
                yield message
        try:
            offset = next_place(queue, offset, pulled)
        except PullError:
            return
