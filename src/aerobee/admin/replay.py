"""Copies messages to another topic: those of a time span (replay), or the backlog of a group (forward).

Both deliver at least once: a message that was in flight when a run stopped may be copied twice by the next run. A copy
keeps the body, tags, keys, sharding key and the sender's properties. Its ids, delays, retries and traces are new.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import connection_of, require_group_exists
from aerobee.admin.messages import Span, TopicReader, next_place, queue_ranges, reader_of
from aerobee.admin.topics import not_there
from aerobee.admin.values import Value
from aerobee.client.consumer import LitePullConsumer, PullStatus
from aerobee.client.core import SendReceipt
from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors.codes import IllegalOperationError
from aerobee.model import sysproperties as names
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue

PRODUCER_GROUP: Final = "TOOLS_PRODUCER"
_IN_FLIGHT: Final = 256
_PULL_MAX: Final = 32

# Called with the number of copied messages and the total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CopyReport(Value):
    """The result of a copy.

    `problem` says why it stopped early. Messages stored at `resume_ms` or later may then be missing. `skipped` counts
    messages without a body, which no broker takes.
    """

    source: str
    target: str
    total: int
    copied: int
    skipped: int
    bytes: int
    problem: str | None = None
    resume_ms: int | None = None


class CopyRate:
    """Limits the copies to `rate` a second. None means no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next_s = 0.0

    async def turn(self) -> None:
        if self._rate is None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        at = max(self._next_s, now)
        self._next_s = at + 1 / self._rate
        if at > now:
            await asyncio.sleep(at - now)


class Copier:
    """Sends several copies at a time. Messages with a sharding key are sent one by one to keep their order."""

    def __init__(self, producer: Producer, pace: CopyRate, told: Callable[[], None]) -> None:
        self._producer = producer
        self._pace = pace
        self._told = told
        self._free = asyncio.Semaphore(_IN_FLIGHT)
        self._flying: dict[asyncio.Future[SendReceipt], int] = {}
        self.copied = 0
        self.skipped = 0
        self.bytes = 0
        self.problem: str | None = None
        # The store time of the oldest message that was not copied.
        self.resume_ms: int | None = None

    async def begin(self, message: Message, topic: str) -> asyncio.Future[SendReceipt] | None:
        """Begin to copy a message. Return None if nothing was begun. Check `problem` before the next call."""
        if not message.body:
            self.skipped += 1
            return None
        await self._pace.turn()
        await self._free.acquire()
        if self.problem is not None:
            self._free.release()
            self.fail(self.problem, message.store_timestamp)
            return None
        try:
            sending = self._producer.send_nowait(replace(message, topic=topic))
        except AerobeeError as error:
            self._free.release()
            self.fail(str(error), message.store_timestamp)
            return None
        self._flying[sending] = message.store_timestamp
        sending.add_done_callback(lambda done: self._answered(done, len(message.body)))
        if names.SHARDING_KEY in message.system_properties:
            await asyncio.wait((sending,))
        return sending

    def _answered(self, done: asyncio.Future[SendReceipt], size: int) -> None:
        self._free.release()
        stored_ms = self._flying.pop(done)
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.fail(str(error), stored_ms)
            return
        self.copied += 1
        self.bytes += size
        self._told()

    def fail(self, problem: str, stored_ms: int) -> None:
        """Stop sending. The next run must begin at this store time."""
        self.problem = self.problem or problem
        self.resume_ms = stored_ms if self.resume_ms is None else min(self.resume_ms, stored_ms)

    async def settle(self) -> None:
        """Wait until every copy that was begun is answered."""
        while self._flying:
            await asyncio.wait(list(self._flying))

    def report(self, source: str, target: str, total: int) -> CopyReport:
        return CopyReport(source, target, total, self.copied, self.skipped, self.bytes, self.problem, self.resume_ms)


def producer_of(admin: AdminConnection) -> Producer:
    timeout = max(admin.timeout_s, 3.0)
    return Producer(admin.namesrvs, group=PRODUCER_GROUP, timeout=timeout, **admin.client_options)


async def require_target(admin: AdminConnection, source: str, target: str) -> None:
    """Raise an error unless both topics exist and differ, and the source is whole. A misspelt target must not be
    created."""
    if source == target:
        raise InvalidArgumentError(
            f"source and target are the same topic {target}", hint="`aerobee group reset` replays in place."
        )
    for topic in (source, target):
        if await admin.route(topic) is None:
            raise not_there(topic, await admin.missing_from(topic))
    await admin.require_whole(source)


# -- a time range


async def count_range(admin: AdminConnection, topic: str, span: Span) -> int:
    """Return how many messages of the time span are still stored."""
    async with reader_of(admin) as consumer:
        return await TopicReader(consumer, topic, span).open()


async def replay(
    admin: AdminConnection,
    source: str,
    target: str,
    span: Span,
    *,
    rate: float | None = None,
    progress: Progress = lambda done, total: None,
) -> CopyReport:
    """Copy the messages of a time span to another topic, in the order of their store times."""
    await require_target(admin, source, target)
    async with reader_of(admin) as consumer, producer_of(admin) as producer:
        reader = TopicReader(consumer, source, span)
        total = await reader.open()
        copier = Copier(producer, CopyRate(rate), lambda: progress(copier.copied, total))
        progress(0, total)
        await _replay_all(reader, copier, target)
    return copier.report(source, target, total)


async def _replay_all(reader: TopicReader, copier: Copier, target: str) -> None:
    reached_ms = reader.span.begin_ms
    try:
        async with contextlib.aclosing(reader.messages()) as messages:
            async for message in messages:
                reached_ms = message.store_timestamp
                await copier.begin(message, target)
                if copier.problem is not None:
                    break
    except AerobeeError as error:
        copier.fail(str(error), reached_ms)
    await copier.settle()


# -- a backlog


async def backlog(admin: AdminConnection, group: str, topic: str) -> int:
    """Return how many messages the group has not consumed yet."""
    async with _member_less(admin, group) as consumer:
        return sum(end - begin for begin, end in (await _backlog(consumer, topic)).values())


async def forward(
    admin: AdminConnection,
    source: str,
    target: str,
    group: str,
    *,
    rate: float | None = None,
    progress: Progress = lambda done, total: None,
) -> CopyReport:
    """Move the backlog of a group to another topic with more queues. The group's offsets follow the copies.

    Raise IllegalOperationError while the group has members, since they would get the same messages.
    """
    await require_target(admin, source, target)
    await require_group_exists(admin, group)
    connection = await connection_of(admin, await admin.masters(), group)
    if connection is not None and connection.connection_set:
        raise IllegalOperationError(
            f"group {group} has {len(connection.connection_set)} connected members, which would get the same messages",
            hint="Stop them, run this command, then let them consume the new topic.",
        )
    async with _member_less(admin, group) as consumer, producer_of(admin) as producer:
        ranges = await _backlog(consumer, source)
        total = sum(end - begin for begin, end in ranges.values())
        copier = Copier(producer, CopyRate(rate), lambda: progress(copier.copied, total))
        progress(0, total)
        async with asyncio.TaskGroup() as tasks:
            for queue, (begin, end) in ranges.items():
                tasks.create_task(_forward_queue(consumer, copier, target, queue, begin, end))
        await copier.settle()
    # The next run continues at the offsets of the group.
    return replace(copier.report(source, target, total), resume_ms=None)


def _member_less(admin: AdminConnection, group: str) -> LitePullConsumer:
    """Return a consumer that reads and commits for the group without being a member."""
    return LitePullConsumer(admin.namesrvs, group=group, auto_commit=False, **admin.client_options)


async def _backlog(consumer: LitePullConsumer, topic: str) -> dict[MessageQueue, tuple[int, int]]:
    found = {}
    for queue, (begin, end) in (await queue_ranges(consumer, topic, Span())).items():
        saved = await consumer.committed(queue)
        begin = begin if saved is None else max(begin, saved)
        if begin < end:
            found[queue] = (begin, end)
    return found


async def _forward_queue(
    consumer: LitePullConsumer, copier: Copier, target: str, queue: MessageQueue, offset: int, end: int
) -> None:
    """Move one queue. An offset is saved when every message before it is stored in the target."""
    try:
        # The broker answers the first pull after a reset with the new offset, and ignores commits until then.
        pulled = await consumer.pull(queue, offset, max=1)
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            offset = pulled.next_offset
        while offset < end and copier.problem is None:
            pulled = await consumer.pull(queue, offset, max=min(_PULL_MAX, end - offset))
            begun = [await copier.begin(message, target) for message in pulled.messages]
            sent = [one for one in begun if one is not None]
            if sent:
                await asyncio.wait(sent)
            if copier.problem is not None:
                # The problem may be that of another queue. The next run copies these messages again.
                return
            offset = next_place(queue, offset, pulled)
            await consumer.commit({queue: offset})
    except AerobeeError as error:
        copier.fail(str(error), 0)
