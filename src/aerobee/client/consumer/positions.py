"""The offsets of a queue: its begin, its end, the one at a time, and the one where a consumer starts.

RocketMQ: MQAdminImpl.maxOffset, minOffset, searchOffset; RebalancePushImpl.computePullFromWhereWithException.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from aerobee.client.consumer.offsetstore import OffsetStore
from aerobee.client.core import ClientCore
from aerobee.errors import InvalidArgumentError
from aerobee.model.names import is_retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)


class ConsumeFrom(enum.Enum):
    """Where a group starts in a queue that it has never consumed. The values are RocketMQ's names."""

    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    LAST = "CONSUME_FROM_LAST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a group starts that has no offset."""

    where: ConsumeFrom = ConsumeFrom.LAST
    timestamp_ms: int = 0

    @property
    def at_time(self) -> bool:
        return self.where is ConsumeFrom.TIMESTAMP


def parse_consume_from(where: str, timestamp: datetime | int | None, now_ms: int) -> StartingPoint:
    """Parse `first`, `last` or `timestamp`. The default of the timestamp is half an hour ago, as in RocketMQ."""
    try:
        start = ConsumeFrom[where.upper()]
    except KeyError:
        raise InvalidArgumentError(f"consume_from={where!r} is none of first, last, timestamp") from None
    if timestamp is not None and start is not ConsumeFrom.TIMESTAMP:
        raise InvalidArgumentError("consume_timestamp needs consume_from='timestamp'")
    return StartingPoint(start, now_ms - 1_800_000 if timestamp is None else milliseconds(timestamp))


def milliseconds(moment: datetime | int) -> int:
    """Return milliseconds since 1970, from a datetime with a time zone or from such a number."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise InvalidArgumentError("a datetime without a time zone names no moment", hint="datetime(..., tzinfo=UTC)")
    return round(moment.timestamp() * 1000)


class Positions:
    """The offsets of queues, asked of brokers."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    async def end(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        address = await self._core.address_of(queue)
        answer = await self._core.ask(address, RequestCode.GET_MAX_OFFSET, header)
        return decode_header(GetMaxOffsetResponseHeader, answer).offset

    async def begin(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that is still there."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        address = await self._core.address_of(queue)
        answer = await self._core.ask(address, RequestCode.GET_MIN_OFFSET, header)
        return decode_header(GetMinOffsetResponseHeader, answer).offset

    async def at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message that was stored at a time or after it."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
        )
        address = await self._core.address_of(queue)
        answer = await self._core.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return decode_header(SearchOffsetResponseHeader, answer).offset

    async def start_of(self, queue: MessageQueue, offsets: OffsetStore, point: StartingPoint) -> int:
        """Return where to start in a queue, and put it into the table of offsets.

        Raise where that cannot be found out: an error must never look like a queue that was not consumed before.
        """
        stored = await offsets.read(queue)
        kept = offsets.table.kept(queue)
        if kept is not None:
            # A broker that lost the end of its log gives these offsets to new messages: its own offset counts then.
            resumed = kept > (stored or 0) and kept <= await self.end(queue)
            offsets.table.forget_kept(queue)
            if resumed:
                offsets.table.reset(queue, kept)
                return kept
        if stored is not None and stored >= 0:
            offsets.table.reset(queue, stored)
            offsets.table.known(queue, stored)
            return stored
        start = await self._first_start(queue, point)
        # It is saved soon: a crash before the first message must not move the start of `last` forward.
        offsets.table.reset(queue, start)
        return start

    async def _first_start(self, queue: MessageQueue, point: StartingPoint) -> int:
        if is_retry_topic(queue.topic):
            # No retry of the group may be skipped, wherever the group starts in its topics.
            return await self.begin(queue)
        if point.where is ConsumeFrom.LAST:
            return await self.end(queue)
        if point.where is ConsumeFrom.TIMESTAMP:
            return await self.at(queue, point.timestamp_ms)
        return await self.begin(queue)
