"""Finds messages by id, by key and by time, and tells which groups have consumed a message.

RocketMQ: MQAdminImpl.viewMessage, queryMessage, DefaultMQAdminExtImpl.messageTrackDetail.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.groups import connection_of, group_lag
from aerobee.admin.topics import not_there
from aerobee.admin.values import Value
from aerobee.client.consumer import LitePullConsumer, PullResult
from aerobee.errors import InvalidArgumentError, RemoteProtocolError, TransportError
from aerobee.errors.codes import (
    NoPermissionError,
    PullError,
    QueryNotFoundError,
    SystemFailureError,
    TopicNotExistError,
)
from aerobee.hot.log.layout import COMPRESSED
from aerobee.hot.log.record import decode_records
from aerobee.model.compression import UNFOLDED_SIZE_MAX, DecompressionError
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.message import Message, Unfolding, from_record, unfolded, unwrap
from aerobee.model.names import dlq_topic, is_retry_topic, retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.model.route import MASTER_ID
from aerobee.protocol.bodies.groups import ConsumerConnection, GroupList
from aerobee.protocol.bodies.heartbeat import BROADCASTING, CONSUME_ACTIVELY
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.message import QueryMessageRequestHeader, ViewMessageRequestHeader
from aerobee.protocol.headers.topic import QueryTopicConsumeByWhoRequestHeader

# Every broker has this group. Its progress is never saved, so that reading changes nothing.
READER_GROUP: Final = "TOOLS_CONSUMER"
# RocketMQ: MixAll.UNIQUE_MSG_QUERY_FLAG.
_UNIQUE_QUERY: Final = {"_UNIQUE_KEY_QUERY": "true"}
_UNIQUE_MAX: Final = 32
_LONG_MAX: Final = (1 << 63) - 1
_PULL_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class FoundMessages(Value):
    """The messages that a search found, oldest first, and the brokers that could not be asked."""

    messages: tuple[Message, ...]
    problems: tuple[str, ...] = ()


# -- by id


async def find_message(
    admin: AdminConnection, message_id: str, *, topic: str | None = None, unfold: bool = True
) -> Message:
    """Return the message with this offset id, or in `topic` with this unique id. Raise QueryNotFoundError.

    Without `unfold`, here and below, compressed bodies stay as they are stored.
    """
    problems: tuple[str, ...] = ()
    with contextlib.suppress(InvalidArgumentError):
        place = decode_offset_message_id(message_id)
        # The broker that the id names may be a master that is gone. The others of its group have the same log. A unique
        # id has the same form, and decodes to an address and an offset by chance: what is found there has another id.
        brokers = [one for one in await admin.brokers() if one.broker_id == MASTER_ID or one.address == place.host]
        for broker in sorted(brokers, key=lambda one: one.address != place.host):
            with contextlib.suppress(TransportError):
                found = await _view(admin, broker, place.physical_offset)
                if found is not None and found.offset_id == message_id.upper() and topic in (None, found.topic):
                    return unfolded(found) if unfold else found
    if topic is not None:
        answer = await find_by_unique_id(admin, message_id, topic, unfold=False)
        if answer.messages:
            return unfolded(answer.messages[0]) if unfold else answer.messages[0]
        problems = answer.problems
    else:
        problems = await admin.away()
    raise no_message(message_id, topic, problems)


def no_message(message_id: str, topic: str | None, problems: Sequence[str] = ()) -> QueryNotFoundError:
    where = f" in topic {topic}" if topic is not None else ""
    hint = "; ".join(problems)
    if not hint:
        hint = (
            "It may have expired."
            if topic is not None
            else "To find a message by its unique id, name its topic: -t TOPIC."
        )
    words = f"there is no message {message_id}{where}" + (" on the brokers that answer" if problems else "")
    # It may be on a broker that could not be asked.
    return QueryNotFoundError(words, code=ResponseCode.QUERY_NOT_FOUND, hint=hint, retriable=bool(problems) or None)


async def _view(admin: AdminConnection, broker: KnownBroker, physical_offset: int) -> Message | None:
    header = ViewMessageRequestHeader(offset=physical_offset)
    try:
        answer = await admin.ask(broker.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    except (SystemFailureError, QueryNotFoundError):
        # RocketMQ: QueryMessageProcessor.viewMessageById answers a system error if there is no message.
        return None
    found = _messages(answer.body, broker.name)
    return found[0] if found else None


async def find_by_unique_id(
    admin: AdminConnection, message_id: str, topic: str, *, unfold: bool = True
) -> FoundMessages:
    """Return every copy of a message in a topic. A retry after a lost answer makes two."""
    found = await _query(admin, topic, message_id, _UNIQUE_MAX, (0, _LONG_MAX), unique=True)
    ours = tuple(one for one in found.messages if one.message_id == message_id)
    return _found(ours, found.problems, unfold=unfold)


async def find_at(
    admin: AdminConnection,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    broker: str | None = None,
    unfold: bool = True,
) -> Message:
    """Return the message at a place of a queue. Raise QueryNotFoundError, or InvalidArgumentError for no one queue."""
    async with reader_of(admin) as consumer:
        ranges = await queue_ranges(consumer, topic, Span())
        queues = [one for one in ranges if one.queue_id == queue_id and broker in (None, one.broker_name)]
        if len(queues) != 1:
            known = ", ".join(sorted({one.broker_name for one in ranges}))
            if queues:
                hint = f"Name one with -b: {known}."
                raise InvalidArgumentError(f"queue {queue_id} of topic {topic} is on several brokers", hint=hint)
            numbers = sorted({one.queue_id for one in ranges if broker in (None, one.broker_name)})
            hint = f"Its queues are {numbers[0]} to {numbers[-1]}." if numbers else f"It is on {known}."
            raise InvalidArgumentError(
                f"topic {topic} has no queue {queue_id}" + (f" on {broker}" if broker else ""), hint=hint
            )
        begin, end = ranges[queues[0]]
        if begin <= offset < end:
            for message in (await consumer.pull(queues[0], offset, max=1, unfold=unfold)).messages:
                if message.queue_offset == offset:
                    return message
    raise QueryNotFoundError(
        f"queue {queue_id} of topic {topic} has no message at offset {offset}",
        code=ResponseCode.QUERY_NOT_FOUND,
        hint=f"It holds the offsets from {begin} to {end - 1}." if begin < end else "It is empty.",
    )


# -- by key


async def find_by_key(
    admin: AdminConnection,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = _LONG_MAX,
    limit: int = 64,
    unfold: bool = True,
) -> FoundMessages:
    """Return at most `limit` messages with this key, found by the brokers' index."""
    found = await _query(admin, topic, key, limit, (begin_ms, end_ms), unique=False)
    # The index of Apache's broker compares hashes only, and the limit holds for each broker.
    ours = tuple(one for one in found.messages if key in one.key_list or one.message_id == key)
    return _found(ours[:limit], found.problems, unfold=unfold)


async def _query(
    admin: AdminConnection, topic: str, key: str, limit: int, span: tuple[int, int], *, unique: bool
) -> FoundMessages:
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=limit, begin_timestamp=span[0], end_timestamp=span[1]
    )

    async def ask(broker: KnownBroker) -> list[Message]:
        try:
            answer = await admin.ask(
                broker.address, RequestCode.QUERY_MESSAGE, header, ext=_UNIQUE_QUERY if unique else None
            )
        except QueryNotFoundError:
            return []
        return [one for one in _messages(answer.body, broker.name) if one.topic == topic]

    said, problems = await from_each(await _holders(admin, topic), ask)
    found = [one for _, some in said for one in some]
    found.sort(key=_by_time)
    return FoundMessages(tuple(found), tuple(problems))


async def _holders(admin: AdminConnection, topic: str) -> list[KnownBroker]:
    """Return the masters that have the topic, and those of its broker groups that are away."""
    route = await admin.route(topic)
    if route is None:
        raise not_there(topic, await admin.missing_from(topic))
    names = {queues.broker_name for queues in route.queue_datas}
    return [one for one in await admin.masters_of(topic) if one.away or one.name in names]


def _messages(body: bytes, broker: str) -> list[Message]:
    """Return the messages of an answer as they are stored."""
    found = []
    unfolding = Unfolding(unfold=False)
    for record in decode_records(body):
        try:
            message = unfolding.message(record, broker)
        except DecompressionError:
            message = from_record(record, broker, unfold=False)
        try:
            found += unwrap(message)
        except RemoteProtocolError:
            found.append(message)
    return found


def _found(messages: Sequence[Message], problems: tuple[str, ...], *, unfold: bool) -> FoundMessages:
    """Return what was found with its bodies decompressed, as far as one answer may grow."""
    if not unfold:
        return FoundMessages(tuple(messages), problems)
    room, left, ready = UNFOLDED_SIZE_MAX, 0, list[Message]()
    for message in messages:
        if room > 0 or not message.sys_flag & COMPRESSED:
            one = unfolded(message)
            room -= len(one.body) if one is not message else 0
        else:
            one = message
            left += 1
        ready.append(one)
    if left:
        told = (
            f"{left} messages are left compressed, because together they become too large: find each by its offset id"
        )
        problems = (*problems, told)
    return FoundMessages(tuple(ready), problems)


def _by_time(message: Message) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.broker, message.queue_id, message.queue_offset


# -- by time


@dataclass(frozen=True, slots=True)
class Span:
    """A time span: messages stored at `begin_ms` or later, and before `end_ms`."""

    begin_ms: int = 0
    end_ms: int = _LONG_MAX


class TopicReader:
    """Reads the messages of a time span in the order of their store times over all queues of a topic.

    It stops at the offsets that were the end when it was opened.
    """

    def __init__(self, consumer: LitePullConsumer, topic: str, span: Span) -> None:
        self.topic = topic
        self.span = span
        self._consumer = consumer
        self._ranges: dict[MessageQueue, tuple[int, int]] = {}

    async def open(self) -> int:
        """Return the greatest possible number of messages. Raise TopicNotExistError or NoPermissionError."""
        self._ranges = await queue_ranges(self._consumer, self.topic, self.span)
        return sum(max(0, end - begin) for begin, end in self._ranges.values())

    async def messages(self, *, unfold: bool = True) -> AsyncGenerator[Message, None]:
        """Yield the messages. What waits for its turn stays as it is stored."""
        readers = [self._read(queue, *place) for queue, place in sorted(self._ranges.items())]
        heads: list[tuple[tuple[int, str, int, int], int, Message]] = []
        firsts = await asyncio.gather(*(anext(reader, None) for reader in readers))
        for number, message in enumerate(firsts):
            if message is not None:
                heads.append((_by_time(message), number, message))
        heapq.heapify(heads)
        while heads:
            _, number, message = heads[0]
            yield unfolded(message) if unfold else message
            following = await anext(readers[number], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (_by_time(following), number, following))

    async def _read(self, queue: MessageQueue, offset: int, end: int) -> AsyncGenerator[Message, None]:
        while offset < end:
            pulled = await self._consumer.pull(queue, offset, max=min(_PULL_MAX, end - offset), unfold=False)
            for message in pulled.messages:
                if message.store_timestamp >= self.span.end_ms or message.queue_offset >= end:
                    return
                if message.store_timestamp >= self.span.begin_ms:
                    yield message
            offset = next_place(queue, offset, pulled)


def next_place(queue: MessageQueue, offset: int, pulled: PullResult) -> int:
    """Return the offset to pull next. Raise PullError if the broker gave nothing although there were messages.

    That happens with a replica that is behind or a log that was cut. To stop in silence would lose messages unseen.
    """
    if pulled.next_offset <= offset:
        where = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"
        raise PullError(f"{where} cannot be read beyond offset {offset}", code=pulled.status.value, retriable=True)
    return pulled.next_offset


async def queue_ranges(
    consumer: LitePullConsumer, topic: str, span: Span, unreached: dict[str, str] | None = None
) -> dict[MessageQueue, tuple[int, int]]:
    """Return the offsets of each readable queue that the time span covers. Raise TransportError where a broker does not
    answer.

    With `unreached`, reasons by the names of brokers, the queues of those brokers are left out instead, and what else
    does not answer is added.
    """
    try:
        queues = await consumer.queues(topic)
    except TopicNotExistError:
        raise not_there(topic) from None
    if not queues:
        hint = f"`aerobee topic update -t {topic} -p RW` makes the topic readable."
        raise NoPermissionError(f"topic {topic} has no readable queue", hint=hint)

    async def one(queue: MessageQueue) -> tuple[int, int] | None:
        if unreached is not None and queue.broker_name in unreached:
            return None
        try:
            begin, end = await consumer.begin_offset(queue), await consumer.end_offset(queue)
            if span.begin_ms > 0 and begin < end:
                begin = max(begin, await consumer.offset_at(queue, span.begin_ms))
            if span.end_ms < _LONG_MAX and begin < end:
                end = min(end, await consumer.offset_at(queue, span.end_ms))
        except TransportError as error:
            if unreached is None:
                raise
            unreached[queue.broker_name] = error.message
            return None
        return begin, end

    found = await asyncio.gather(*(one(queue) for queue in queues))
    return {queue: place for queue, place in zip(queues, found, strict=True) if place is not None}


def reader_of(admin: AdminConnection) -> LitePullConsumer:
    """Return a consumer that reads and commits nothing."""
    return LitePullConsumer(admin.namesrvs, group=READER_GROUP, auto_commit=False, **admin.client_options)


async def find_by_time(
    admin: AdminConnection,
    topic: str,
    *,
    begin_ms: int = 0,
    end_ms: int = _LONG_MAX,
    limit: int = 64,
    unfold: bool = True,
) -> FoundMessages:
    """Return the first `limit` messages of the time span, oldest first."""
    found: list[Message] = []
    async with reader_of(admin) as consumer:
        reader = TopicReader(consumer, topic, Span(begin_ms, end_ms))
        await reader.open()
        async with contextlib.aclosing(reader.messages(unfold=False)) as messages:
            async for message in messages:
                found.append(message)
                if len(found) >= limit:
                    break
    return _found(found, tuple(await admin.missing_from(topic)), unfold=unfold)


# -- who consumed it


@dataclass(frozen=True, slots=True)
class GroupTrack(Value):
    """What a group has done with a message.

    `track` is one of RocketMQ's TrackType. `passed` tells whether the saved offset of the group is beyond the message,
    and is None if no offset is saved. `retries` counts the copies in the retry topic of the group, and `dead_letter`
    tells whether a copy is in its dead-letter topic.
    """

    group: str
    track: str
    members: int
    consumer_offset: int | None
    passed: bool | None
    retries: int
    dead_letter: bool


async def track_message(admin: AdminConnection, message: Message) -> tuple[GroupTrack, ...]:
    """Return every group of the message's topic. RocketMQ: DefaultMQAdminExtImpl.messageTrackDetail."""
    masters = await admin.masters_of(message.topic)
    header = QueryTopicConsumeByWhoRequestHeader(topic=message.topic)

    async def ask(broker: KnownBroker) -> tuple[str, ...]:
        answer = await admin.ask(broker.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return GroupList.decode(answer.body).group_list

    said, _ = await from_each(masters, ask)
    groups = sorted({group for _, names in said for group in names})
    return tuple(await asyncio.gather(*(_track(admin, masters, message, group) for group in groups)))


async def _track(admin: AdminConnection, masters: list[KnownBroker], message: Message, group: str) -> GroupTrack:
    connection = await connection_of(admin, masters, group)
    progress = await group_lag(admin, group, topic=message.topic)
    offset = next(
        (
            queue.consumer_offset
            for queue in progress.queues
            if (queue.topic, queue.broker, queue.queue_id) == (message.topic, message.broker, message.queue_id)
        ),
        None,
    )
    passed = None if offset is None else offset > message.queue_offset
    retries = dead = 0
    if not is_retry_topic(message.topic):
        retries = await _copies(admin, message, retry_topic(group))
        dead = await _copies(admin, message, dlq_topic(group))
    members = len(connection.connection_set) if connection else 0
    return GroupTrack(group, _track_type(connection, message, passed), members, offset, passed, retries, dead > 0)


def _track_type(connection: ConsumerConnection | None, message: Message, passed: bool | None) -> str:
    if connection is None:
        return "NOT_ONLINE"
    if connection.consume_type == CONSUME_ACTIVELY:
        return "PULL"
    if connection.message_model == BROADCASTING:
        return "CONSUME_BROADCASTING"
    if not passed:
        return "NOT_CONSUME_YET"
    wanted = connection.subscription_table.get(message.topic)
    if wanted is not None and wanted.tags_set and not {message.tags, "*"} & set(wanted.tags_set):
        return "CONSUMED_BUT_FILTERED"
    return "CONSUMED"


async def _copies(admin: AdminConnection, message: Message, topic: str) -> int:
    try:
        return len((await find_by_unique_id(admin, message.message_id, topic, unfold=False)).messages)
    except TopicNotExistError:
        return 0
