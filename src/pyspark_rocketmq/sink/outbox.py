"""Rows that are gathered into requests, one queue each, and sent while the next rows are encoded.

The writing thread fills chunks, and the loop thread of the client sends them. `finish` returns when all are
acknowledged. The next call raises the error of the first one that failed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from aerobee.client.core import SelectorError
from aerobee.client.producer import PublishInfo, hashed_index
from aerobee.errors import AerobeeError
from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.sink.client import SinkClient
from pyspark_rocketmq.sink.rows import Place, Row, RowEncoder, encode_part

# The largest number of messages in a batch.
_ROWS_MAX: Final = 10_000


@dataclass(slots=True)
class RowChunk:
    """Encoded rows of one topic for one queue; None is any queue."""

    topic: str
    queue: MessageQueue | None
    # Body and properties of a row that must be sent alone.
    alone: tuple[bytes, bytes] | None = None
    pieces: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def body(self) -> bytes:
        return b"".join(self.pieces)


Post = Callable[[RowChunk], Coroutine[Any, Any, None]]
# Chooses the queue of a row that names none. None leaves the choice to the sender.
Spread = Callable[[Row, PublishInfo], MessageQueue | None]


def anywhere(row: Row, publish: PublishInfo) -> MessageQueue | None:
    """Leave the choice to the sender, which takes another queue where a broker fails."""
    return None


class Outbox:
    """The rows of one task on their way to the brokers."""

    def __init__(self, client: SinkClient, post: Post, spread: Spread = anywhere, *, plain: bool) -> None:
        """Make an outbox. `plain` is for any RocketMQ broker: large and delayed rows are sent alone."""
        self._client = client
        self._post = post
        self._spread = spread
        self._plain = plain
        self._request_bytes = client.options.request_bytes
        self._bytes_max = client.options.in_flight_bytes_max
        self._chunks: dict[tuple[str, MessageQueue | None], RowChunk] = {}
        self._publish: dict[str, PublishInfo] = {}
        self._sent: deque[tuple[concurrent.futures.Future[None], int]] = deque()
        self._in_flight = 0
        self._order: dict[MessageQueue, asyncio.Lock] = {}
        self.rows = 0

    def send(self, encoder: RowEncoder, batches: Iterable[pa.RecordBatch]) -> int:
        """Send all rows, and return their number when all are acknowledged. After an error nothing more is sent."""
        try:
            for batch in batches:
                self.add(encoder.rows(batch), batch.num_rows)
            return self.finish()
        except BaseException:
            self.stop()
            raise

    def add(self, rows: Iterable[Row], count: int) -> None:
        """Add `count` rows, which are spread over the queues even where they are few."""
        chunks = self._chunks
        limit = self._request_bytes
        shares: dict[str, int] = {}
        for row in rows:
            topic, place = row.topic, row.place
            share = shares.get(topic)
            if share is None:
                publish = self._publish[topic] = self._client.publish(topic, whole=place is not None)
                share = shares[topic] = min(_ROWS_MAX, -(-count // len(publish.slots)))
            queue = self._spread(row, self._publish[topic]) if place is None else self._queue(topic, place)
            if self._plain and (row.is_timed or row.size > limit):
                self._send(RowChunk(topic, queue, (row.body, row.properties), rows=1, size=row.size))
                continue
            key = (topic, queue)
            chunk = chunks.get(key)
            if chunk is None:
                chunk = chunks[key] = RowChunk(topic, queue)
            elif chunk.size + row.size > limit:
                self._send(chunk)
                chunk = chunks[key] = RowChunk(topic, queue)
            chunk.pieces += encode_part(row.body, row.properties)
            chunk.rows += 1
            chunk.size += row.size
            if row.key:
                chunk.keys.append(row.key)
            if chunk.rows >= (share if queue is None else _ROWS_MAX):
                del chunks[key]
                self._send(chunk)

    def finish(self) -> int:
        """Send the rows that are left and wait for every acknowledgement. Return the number of rows."""
        for chunk in self._chunks.values():
            self._send(chunk)
        self._chunks.clear()
        while self._sent:
            self._await_oldest()
        return self.rows

    def stop(self) -> None:
        """Cancel the requests under way, because something failed."""
        for future, _ in self._sent:
            future.cancel()

    def _queue(self, topic: str, place: Place) -> MessageQueue:
        # A queue whose broker is away keeps its rows: they wait for it.
        queues = self._client.queues(topic)
        if isinstance(place, str):
            return queues[hashed_index(place, len(queues))]
        if isinstance(place, tuple):
            found = [queue for queue in queues if (queue.broker_name, queue.queue_id) == place]
        else:
            found = [queue for queue in queues if queue.queue_id == place]
        if not found:
            where = f"{place[1]} on {place[0]!r}" if isinstance(place, tuple) else str(place)
            brokers = sorted({queue.broker_name for queue in queues})
            raise SelectorError(
                f"column queue_id: topic {topic!r} has no writable queue {where}",
                hint=f"it has {len(queues)}, on {', '.join(brokers)}",
            )
        # Several broker groups may have a queue of that number: the choice is always the same.
        return found[found[0].queue_id % len(found)]

    def _send(self, chunk: RowChunk) -> None:
        while self._sent and self._in_flight + chunk.size > self._bytes_max:
            self._await_oldest()
        self._in_flight += chunk.size
        self.rows += chunk.rows
        self._sent.append((self._client.submit(self._carry(chunk)), chunk.size))

    async def _carry(self, chunk: RowChunk) -> None:
        if chunk.queue is None:
            await self._post(chunk)
            return
        # One at a time: the next rows of the queue must not overtake a request that is repeated.
        async with self._order.setdefault(chunk.queue, asyncio.Lock()):
            await self._post(chunk)

    def _await_oldest(self) -> None:
        future, size = self._sent.popleft()
        try:
            future.result()
        except AerobeeError:
            self.stop()
            raise
        self._in_flight -= size
