"""Turn Arrow batches into messages: each row becomes one part of a batch body, with little Python code for each row.

This module does no I/O. `hot/log/batch.py` defines the layout of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.hot.log.layout import PART_FIXED_SIZE, PART_HEAD_FORMAT, PROPERTIES_SIZE_MAX
from aerobee.model.names import require_sendable
from aerobee.model.sysproperties import require_user_properties
from pyspark_rocketmq.sink.layout import (
    BODY,
    BROKER,
    DELIVER_AT,
    KEYS,
    PROPERTIES,
    QUEUE_ID,
    SHARDING_KEY,
    TAGS,
    TOPIC,
    Layout,
)

KEY_SIZE: Final = 16
# Ids are made for this many rows at a time: fewer than there are ids in a millisecond.
_SLICE: Final = 10_000
_HEAD: Final = Struct(PART_HEAD_FORMAT)
_SHORT: Final = Struct(">h")

# The target of a row: any queue, a sharding key, a queue id, or a queue of a broker.
Place = str | int | tuple[str, int] | None


class RowError(InvalidArgumentError):
    """A row cannot become a message. The text says which column is wrong, and why."""


@dataclass(slots=True)
class Row:
    """One message. `properties` is its encoded property block."""

    topic: str
    place: Place
    body: bytes
    properties: bytes
    is_timed: bool
    key: bytes

    @property
    def size(self) -> int:
        return PART_FIXED_SIZE + len(self.body) + len(self.properties)


def encode_part(body: bytes, properties: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the pieces of one message in a batch body, to be joined."""
    size, block = len(body), len(properties)
    return _HEAD.pack(PART_FIXED_SIZE + size + block, 0, 0, 0, size), body, _SHORT.pack(block) + properties


def key_digest(value: object) -> bytes:
    """Return 16 bytes that stand for an idempotency key. Its type counts, so 1 and '1' differ."""
    if isinstance(value, bytes):
        data = b"b" + value
    elif isinstance(value, str):
        data = b"s" + value.encode("utf-8", "surrogatepass")
    else:
        data = b"i" + str(value).encode()
    return blake2b(data, digest_size=KEY_SIZE).digest()


class RowEncoder:
    """The encoder for the rows of one task."""

    def __init__(self, layout: Layout, topic: str | None, body_size_max: int, next_id: Callable[[], str]) -> None:
        """Create an encoder. `topic` is used for rows that name none."""
        self._layout = layout
        self._topic = topic
        self._body_size_max = body_size_max
        self._next_id = next_id
        self._topics: set[str] = set()

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Return every row. If a whole column is wrong, raise RowError before the first row."""
        for start in range(0, batch.num_rows, _SLICE):
            yield from self._slice(batch.slice(start, _SLICE))

    def _slice(self, batch: pa.RecordBatch) -> Iterator[Row]:
        count = batch.num_rows
        bodies = self._bodies(batch)
        nothing: list[Any] = [None] * count
        lists = {name: self._list(batch, name) for name in self._layout.positions if name != BODY}
        topics = lists.get(TOPIC, nothing)
        tags, keys = lists.get(TAGS, nothing), lists.get(KEYS, nothing)
        properties, sharding = lists.get(PROPERTIES, nothing), lists.get(SHARDING_KEY, nothing)
        times = lists.get(DELIVER_AT, nothing)
        places = self._places(lists, nothing)
        digests = self._keys(batch, count)
        next_id = self._next_id
        default = self._topic
        is_plain = not lists.keys() & {PROPERTIES, SHARDING_KEY, DELIVER_AT}
        for i in range(count):
            topic = topics[i] or default
            if topic not in self._topics:
                topic = self._checked_topic(topic)
            block = f"UNIQ_KEY\x01{next_id()}\x02"
            if tags[i]:
                block += f"TAGS\x01{_clean(TAGS, tags[i])}\x02"
            if keys[i]:
                block += f"KEYS\x01{_clean(KEYS, keys[i])}\x02"
            if not is_plain:
                block += _more(sharding[i], times[i], properties[i])
            encoded = block.encode("utf-8", "replace")
            if len(encoded) > PROPERTIES_SIZE_MAX:
                raise RowError(f"tags, keys and properties of a row take {len(encoded)} bytes, RocketMQ takes 32 KiB")
            yield Row(topic, places[i], bodies[i], encoded, times[i] is not None, digests[i])

    # -- columns

    def _bodies(self, batch: pa.RecordBatch) -> list[bytes]:
        column = batch.column(self._layout.position(BODY))
        if column.null_count:
            raise RowError(f"column body: {column.null_count} rows are NULL; filter them out, or give them a value")
        if not pa.types.is_binary(column.type):
            column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
        if len(column):
            sizes = pc.min_max(pc.binary_length(column)).as_py()
            if not sizes["min"]:
                raise RowError("column body: a row's body is empty, which RocketMQ refuses")
            if sizes["max"] > self._body_size_max:
                largest = f"a row's body has {sizes['max']} bytes"
                raise RowError(f"column body: {largest}, more than maxMessageSize={self._body_size_max}")
        found: list[bytes] = column.to_pylist()
        return found

    def _list(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        column = batch.column(self._layout.position(name))
        if name == DELIVER_AT and pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        found: list[Any] = column.to_pylist()
        return found

    @staticmethod
    def _places(lists: dict[str, list[Any]], nothing: list[Any]) -> list[Any]:
        if SHARDING_KEY in lists:
            return [key or None for key in lists[SHARDING_KEY]]
        queues = lists.get(QUEUE_ID)
        if queues is None:
            return nothing
        if BROKER not in lists:
            return queues
        return [
            queue if queue is None or broker is None else (broker, queue)
            for broker, queue in zip(lists[BROKER], queues, strict=True)
        ]

    def _keys(self, batch: pa.RecordBatch, count: int) -> list[bytes]:
        if self._layout.key < 0:
            return [b""] * count
        column = batch.column(self._layout.key)
        if column.null_count:
            raise RowError(f"the idempotency key is NULL in {column.null_count} rows: every row needs one")
        return [key_digest(value) for value in column.to_pylist()]

    def _checked_topic(self, topic: str | None) -> str:
        if topic is None:
            raise RowError("column topic: a row names no topic, and option topic is not set")
        try:
            require_sendable(topic)
        except AerobeeError as error:
            raise RowError(f"column topic: {error.message}") from None
        self._topics.add(topic)
        return topic


def _clean(column: str, value: str) -> str:
    if "\x01" in value or "\x02" in value:
        raise RowError(f"column {column}: {value!r} contains a separator character (0x01 or 0x02)")
    return value


def _more(sharding: str | None, deliver_ms: int | None, properties: list[tuple[str, str | None]] | None) -> str:
    """Return the properties that only some rows have."""
    block = f"__SHARDINGKEY\x01{_clean(SHARDING_KEY, sharding)}\x02" if sharding else ""
    if deliver_ms is not None:
        block += f"TIMER_DELIVER_MS\x01{deliver_ms}\x02"
    if properties:
        pairs = {name: value or "" for name, value in properties}
        try:
            require_user_properties(pairs)
        except InvalidArgumentError as error:
            raise RowError(f"column properties: {error.message}") from None
        block += "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()])
    return block
