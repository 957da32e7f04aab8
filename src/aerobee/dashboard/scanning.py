"""Looks through the messages of a topic, newest or oldest first, within bounds: so many messages, so many seconds.

A scan that stops early says how far it came, and gives the place where the next one goes on.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from aerobee.admin.messages import Span, next_place, queue_ranges
from aerobee.client.consumer import LitePullConsumer
from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.hot.log.layout import COMPRESSED
from aerobee.model.compression import opening
from aerobee.model.message import Message
from aerobee.model.numbers import int_or
from aerobee.model.queue import MessageQueue
from aerobee.model.sql92.compiler import compile_filter
from aerobee.runtime.seams import Clock

LOOK_MAX: Final = 50_000
# Messages may have 4 MiB each: with so many bytes of bodies a scan has enough.
KEPT_MAX: Final = 64 << 20
LOOK_S: Final = 5.0
# So much of a body is searched for a text.
SEARCHED_MAX: Final = 4 << 20
SEARCHED: Final = "In body (its first 4 MiB), keys, id or properties."
_CHUNK: Final = 32
_FIRST_CHUNK: Final = 2
_CHUNK_BYTES: Final = 1 << 20
_ANSWER_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """What a message must have to be shown."""

    matches: Callable[[Message], bool]
    is_all: bool


def wanted_of(tag: str, text: str, sql92: str) -> WantedMessages:
    """Return the filter of a tag expression (`A || B`), a text, and a SQL92 expression. Raise FilterSyntaxError."""
    tags = {one.strip() for one in tag.split("||") if one.strip() and one.strip() != "*"}
    compiled = compile_filter(sql92) if sql92 else None
    needle, raw = text.lower(), text.encode("utf-8", "replace")

    def matches(message: Message) -> bool:
        if tags and message.tags not in tags:
            return False
        if compiled is not None and not compiled.matches(_everything(message)):
            return False
        return not needle or _holds(message, needle, raw)

    return WantedMessages(matches, not tags and compiled is None and not needle)


def _everything(message: Message) -> dict[str, str]:
    """Return all properties, as brokers give them to a filter."""
    return {**message.system_properties, "TAGS": message.tags, "KEYS": message.keys, **message.properties}


def _holds(message: Message, needle: str, raw: bytes) -> bool:
    if needle in message.keys.lower() or needle in message.message_id.lower():
        return True
    body = opening(message.body, message.sys_flag, SEARCHED_MAX)
    if raw in body or needle in body.decode("utf-8", "replace").lower():
        return True
    return any(needle in value.lower() or needle in name.lower() for name, value in message.properties.items())


@dataclass(slots=True)
class Scan:
    """What a scan found. `total` counts the messages of the time span when it began, `looked` those it has seen.
    `go_on` is the place of the next scan, nothing if everything was seen. `unreached` tells why brokers were left out,
    by their names."""

    messages: list[Message] = field(default_factory=list)
    looked: int = 0
    total: int = 0
    go_on: str = ""
    unreached: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """One queue: what is left of it, and what was read of that."""

    queue: MessageQueue
    begin: int
    end: int
    # How many offsets are read next.
    chunk: int
    read: deque[Message] = field(default_factory=deque)

    @property
    def left(self) -> int:
        return max(0, self.end - self.begin)


class Scanner:
    """Reads all queues of a topic in the order of store times. Brokers of `silent` are not asked, and one that does not
    answer is left out."""

    def __init__(
        self,
        consumer: LitePullConsumer,
        clock: Clock,
        *,
        newest_first: bool,
        chunk: int = _CHUNK,
        silent: Mapping[str, str] | None = None,
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self._newest_first = newest_first
        self._silent = dict(silent or {})
        self._chunk = max(1, min(_CHUNK, chunk))

    async def scan(
        self,
        topic: str,
        span: Span,
        wanted: WantedMessages,
        limit: int,
        *,
        queue_id: int | None = None,
        place: str = "",
    ) -> Scan:
        """Return the first `limit` messages that match, from `place` on."""
        until_s = self._clock.monotonic() + LOOK_S
        found = Scan(unreached=dict(self._silent))
        ranges = await queue_ranges(self._consumer, topic, span, found.unreached)
        if queue_id is not None:
            ranges = {queue: ends for queue, ends in ranges.items() if queue.queue_id == queue_id}
            if not ranges and not found.unreached:
                raise InvalidArgumentError(f"topic {topic} has no queue {queue_id}")
        found.total = sum(max(0, end - begin) for begin, end in ranges.values())
        lanes = self._lanes(ranges, place_of(place))
        await asyncio.gather(*(self._fill(lane, found) for lane in lanes))
        kept = 0
        heap = [(self._order(lane.read[0]), number) for number, lane in enumerate(lanes) if lane.read]
        heapq.heapify(heap)
        while (
            heap
            and len(found.messages) < limit
            and kept < KEPT_MAX
            and found.looked < LOOK_MAX
            and self._clock.monotonic() < until_s
        ):
            number = heap[0][1]
            lane = lanes[number]
            message = lane.read.popleft()
            self._passed(lane, message)
            found.looked += 1
            if not wanted.is_all and message.sys_flag & COMPRESSED:
                # To search in it takes a while, and others wait for the loop.
                await asyncio.sleep(0)
            if wanted.matches(message):
                found.messages.append(message)
                kept += len(message.body)
            if not lane.read:
                await self._fill(lane, found)
            if lane.read:
                heapq.heapreplace(heap, (self._order(lane.read[0]), number))
            else:
                heapq.heappop(heap)
        if heap or any(lane.left for lane in lanes):
            found.go_on = ";".join(self._told(lane) for lane in lanes)
        return found

    def _lanes(
        self, ranges: Mapping[MessageQueue, tuple[int, int]], place: Mapping[tuple[str, int], int]
    ) -> list[_Lane]:
        lanes = []
        for queue, (begin, end) in sorted(ranges.items()):
            at = place.get((queue.broker_name, queue.queue_id))
            if at is not None:
                begin, end = (begin, min(end, at)) if self._newest_first else (max(begin, at), end)
            lanes.append(_Lane(queue, begin, end, min(_FIRST_CHUNK, self._chunk)))
        return lanes

    def _order(self, message: Message) -> tuple[int, int]:
        """Return what sorts: store time, and within one queue always the offset."""
        sign = -1 if self._newest_first else 1
        return sign * message.store_timestamp, sign * message.queue_offset

    def _passed(self, lane: _Lane, message: Message) -> None:
        if self._newest_first:
            lane.end = message.queue_offset
        else:
            lane.begin = message.queue_offset + 1

    async def _fill(self, lane: _Lane, found: Scan) -> None:
        """Read the next chunk of a queue that has messages. Offsets without one are passed over."""
        while lane.left and not lane.read and lane.queue.broker_name not in found.unreached:
            if self._newest_first:
                low, high = max(lane.begin, lane.end - lane.chunk), lane.end
            else:
                low, high = lane.begin, min(lane.end, lane.begin + lane.chunk)
            at = low
            while at < high:
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        pulled = await self._consumer.pull(lane.queue, at, max=high - at, unfold=False)
                except (TransportError, TimeoutError) as error:
                    found.unreached[lane.queue.broker_name] = str(error) or f"no answer within {_ANSWER_S:g} s"
                    lane.read.clear()
                    return
                lane.read.extend(one for one in pulled.messages if low <= one.queue_offset < high)
                try:
                    at = next_place(lane.queue, at, pulled)
                except AerobeeError:
                    # A replica that is behind, or the first messages were just deleted: what is there is shown.
                    break
            # Chunks of small messages grow. Those of large ones would fill the memory: all queues are read at once.
            size = sum(len(one.body) for one in lane.read)
            lane.chunk = min(self._chunk, 4 * lane.chunk) if size < _CHUNK_BYTES else max(1, lane.chunk // 4)
            if self._newest_first:
                lane.read.reverse()
                if not lane.read:
                    lane.end = low
            elif not lane.read:
                lane.begin = high

    def _told(self, lane: _Lane) -> str:
        at = lane.end if self._newest_first else lane.begin
        return f"{quote(lane.queue.broker_name, safe='')}:{lane.queue.queue_id}:{at}"


def place_of(text: str) -> dict[tuple[str, int], int]:
    """Return the place of each queue of `Scan.go_on`. Words that cannot be read are left out."""
    found = {}
    for word in text.split(";")[:10_000]:
        broker, _, rest = word.partition(":")
        queue, _, offset = rest.partition(":")
        number, at = int_or(queue, None, 0, 1 << 31), int_or(offset, None, 0)
        if number is not None and at is not None:
            found[unquote(broker), number] = at
    return found
