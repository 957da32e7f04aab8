"""Dead letters: lists the messages that a group gave up on, and sends them again to their topics.

A dead letter that is sent again also stays in the dead-letter topic, since a message cannot be taken out of a log.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, replace
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import require_group_exists
from aerobee.admin.messages import Span, TopicReader, find_message, reader_of
from aerobee.admin.replay import Copier, CopyRate, CopyReport, Progress, producer_of
from aerobee.admin.topics import not_there, topic_details
from aerobee.admin.values import Value
from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import QueryNotFoundError, TopicNotExistError
from aerobee.model import sysproperties as names
from aerobee.model.message import Message
from aerobee.model.names import RETRY_PREFIX, dlq_topic, is_dlq_topic
from aerobee.protocol.codes import ResponseCode

_EVERY: Final = Span()


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    """A dead letter of a group, with the topic and id of the original message ("" if they are unknown)."""

    message: Message
    origin_topic: str
    origin_message_id: str


@dataclass(frozen=True, slots=True)
class ResendPlan(Value):
    """How many letters go to each topic, and which other groups of that topic would get them, too."""

    group: str
    topics: dict[str, int]
    other_groups: dict[str, tuple[str, ...]]
    without_origin: int

    @property
    def total(self) -> int:
        return sum(self.topics.values())


def dead_letter(message: Message) -> DeadLetterEntry:
    """Return a message of a dead-letter topic with its origin.

    RocketMQ: AbstractSendMessageProcessor.consumerSendMsgBack keeps the topic in RETRY_TOPIC, and POP and the proxy
    keep it in DLQ_ORIGIN_TOPIC.
    """
    system = message.system_properties
    topic = system.get(names.DLQ_ORIGIN_TOPIC) or system.get(names.RETRY_TOPIC, "")
    if is_dlq_topic(topic) or topic.startswith(RETRY_PREFIX):
        topic = ""
    origin_id = system.get(names.DLQ_ORIGIN_MESSAGE_ID) or system.get(names.ORIGIN_MESSAGE_ID, "")
    return DeadLetterEntry(message, topic, origin_id)


async def read_letters(
    admin: AdminConnection, group: str, span: Span = _EVERY
) -> AsyncGenerator[DeadLetterEntry, None]:
    """Yield the dead letters of a group, oldest first. Raise GroupNotExistError if there is no such group."""
    topic = dlq_topic(group)
    if await admin.route(topic) is None:
        await require_group_exists(admin, group)
        return
    async with reader_of(admin) as consumer:
        reader = TopicReader(consumer, topic, span)
        await reader.open()
        async with contextlib.aclosing(reader.messages()) as messages:
            async for message in messages:
                yield dead_letter(message)


async def find_letter(admin: AdminConnection, group: str, message_id: str) -> DeadLetterEntry:
    """Return the letter with this unique or offset id. Raise QueryNotFoundError if there is none."""
    try:
        return dead_letter(await find_message(admin, message_id, topic=dlq_topic(group)))
    except TopicNotExistError:
        await require_group_exists(admin, group)
    raise QueryNotFoundError(
        f"group {group} has no dead letter {message_id}",
        code=ResponseCode.QUERY_NOT_FOUND,
        hint=f"`aerobee dlq list -g {group}` lists its dead letters.",
    )


async def plan_resend(
    admin: AdminConnection, group: str, *, message_ids: Collection[str] = (), span: Span = _EVERY
) -> ResendPlan:
    """Return what a resend of these letters, or of all letters of a time span, would do."""
    counts: dict[str, int] = {}
    async with contextlib.aclosing(_chosen(admin, group, message_ids, span)) as letters:
        async for letter in letters:
            counts[letter.origin_topic] = counts.get(letter.origin_topic, 0) + 1
    lost = counts.pop("", 0)
    others = {}
    for topic in counts:
        try:
            found = (await topic_details(admin, topic)).groups
        except TopicNotExistError:
            raise not_there(topic) from None
        others[topic] = tuple(one for one in found if one != group)
    return ResendPlan(group, counts, others, lost)


async def resend(
    admin: AdminConnection,
    group: str,
    total: int,
    *,
    message_ids: Collection[str] = (),
    span: Span = _EVERY,
    rate: float | None = None,
    progress: Progress = lambda done, total: None,
) -> CopyReport:
    """Send each letter again to the topic it came from. `total` is used for the progress only."""
    reached_ms = span.begin_ms
    async with producer_of(admin) as producer:
        copier = Copier(producer, CopyRate(rate), lambda: progress(copier.copied, total))
        progress(0, total)
        try:
            async with contextlib.aclosing(_chosen(admin, group, message_ids, span)) as letters:
                async for letter in letters:
                    reached_ms = letter.message.store_timestamp
                    if letter.origin_topic:
                        await copier.begin(letter.message, letter.origin_topic)
                    else:
                        copier.skipped += 1
                    if copier.problem is not None:
                        break
        except AerobeeError as error:
            copier.fail(str(error), reached_ms)
        await copier.settle()
    report = copier.report(dlq_topic(group), "", total)
    return report if not message_ids else replace(report, resume_ms=None)


async def _chosen(
    admin: AdminConnection, group: str, message_ids: Collection[str], span: Span
) -> AsyncGenerator[DeadLetterEntry, None]:
    if message_ids:
        for message_id in message_ids:
            yield await find_letter(admin, group, message_id)
        return
    await admin.require_whole(dlq_topic(group))
    async with contextlib.aclosing(read_letters(admin, group, span)) as letters:
        async for letter in letters:
            yield letter


# -- each letter by itself


@dataclass(frozen=True, slots=True)
class LettersPlan(Value):
    """Like ResendPlan, for a resend that goes on after a failure: it also tells what is known to fail."""

    topics: dict[str, int]
    other_groups: dict[str, tuple[str, ...]]
    without_origin: int
    missing_topics: tuple[str, ...]
    missing_ids: tuple[str, ...]
    # Why letters could not be looked for, such as a broker that does not answer.
    unread: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.topics.values())


@dataclass(frozen=True, slots=True)
class LetterResult(Value):
    """What became of one letter. `words` are the id of the new message, or the reason why there is none. Without an id
    it stands for the letters that could not be read any more."""

    message_id: str
    topic: str
    is_sent: bool
    words: str


async def letters_plan(
    admin: AdminConnection, group: str, *, message_ids: Collection[str] = (), span: Span = _EVERY, limit: int
) -> LettersPlan:
    """Return what `resend_each` would do with these letters, or with the first `limit` of a time span."""
    counts: dict[str, int] = {}
    missing_ids = []
    unread: dict[str, None] = {}
    async with contextlib.aclosing(_each(admin, group, message_ids, span, limit)) as letters:
        async for message_id, letter in letters:
            if isinstance(letter, QueryNotFoundError) and not letter.retriable:
                missing_ids.append(message_id)
            elif isinstance(letter, AerobeeError):
                unread[_why(letter)] = None
            else:
                counts[letter.origin_topic] = counts.get(letter.origin_topic, 0) + 1
    lost = counts.pop("", 0)
    others: dict[str, tuple[str, ...]] = {}
    missing = []
    for topic in counts:
        try:
            others[topic] = tuple(one for one in (await topic_details(admin, topic)).groups if one != group)
        except TopicNotExistError:
            missing.append(topic)
    return LettersPlan(counts, others, lost, tuple(missing), tuple(missing_ids), tuple(unread))


async def resend_each(
    admin: AdminConnection,
    group: str,
    *,
    message_ids: Collection[str] = (),
    span: Span = _EVERY,
    rate: float | None = None,
    limit: int,
) -> tuple[LetterResult, ...]:
    """Send each letter again to the topic it came from, and return what became of each. A failure stops nothing."""
    results: list[LetterResult] = []
    pace = CopyRate(rate)
    known: dict[str, bool] = {}
    async with (
        producer_of(admin) as producer,
        contextlib.aclosing(_each(admin, group, message_ids, span, limit)) as letters,
    ):
        async for message_id, letter in letters:
            await pace.turn()
            topic = "" if isinstance(letter, AerobeeError) else letter.origin_topic
            # A sender would make a topic that is gone, where brokers allow that.
            if topic and topic not in known:
                known[topic] = await admin.route(topic) is not None
            results.append(await _sent_again(producer, message_id, letter, exists=known.get(topic, False)))
    return tuple(results)


def _why(error: AerobeeError) -> str:
    """Return why a letter could not be read."""
    if not isinstance(error, QueryNotFoundError):
        return error.message
    return f"it was not found: {error.hint}" if error.retriable else "the group has no such letter"


async def _sent_again(
    producer: Producer, message_id: str, letter: DeadLetterEntry | AerobeeError, *, exists: bool
) -> LetterResult:
    if isinstance(letter, AerobeeError):
        why = _why(letter)
        return LetterResult(message_id, "", False, why if message_id else f"the others were not read: {why}")
    topic = letter.origin_topic
    if not topic:
        return LetterResult(message_id, "", False, "nobody knows the topic it came from")
    if not exists:
        return LetterResult(message_id, topic, False, f"topic {topic} does not exist any more")
    if not letter.message.body:
        return LetterResult(message_id, topic, False, "it has no body, which no broker takes")
    try:
        receipt = await producer.send(replace(letter.message, topic=topic))
    except AerobeeError as error:
        return LetterResult(message_id, topic, False, error.message)
    return LetterResult(message_id, topic, True, receipt.message_id)


async def _each(
    admin: AdminConnection, group: str, message_ids: Collection[str], span: Span, limit: int
) -> AsyncGenerator[tuple[str, DeadLetterEntry | AerobeeError], None]:
    """Yield the chosen letters with their ids, or why one could not be read. Where the reading breaks off, that comes
    last and without an id. Raise what fails before the first letter."""
    if message_ids:
        for message_id in list(message_ids)[:limit]:
            try:
                letter: DeadLetterEntry | AerobeeError = await find_letter(admin, group, message_id)
            except (QueryNotFoundError, TransportError) as error:
                letter = error
            yield message_id, letter
        return
    await admin.require_whole(dlq_topic(group))
    count = 0
    async with contextlib.aclosing(read_letters(admin, group, span)) as letters:
        while count < limit:
            try:
                found = await anext(letters, None)
            except AerobeeError as error:
                if not count:
                    raise
                yield "", error
                return
            if found is None:
                return
            count += 1
            yield found.message.message_id, found
