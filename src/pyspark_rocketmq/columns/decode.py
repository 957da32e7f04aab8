"""The decode of stored records into Arrow batches. It builds only the requested columns, and no object for a message.

Each column has the values that `aerobee.model.message.from_record` gives for the same record, or `unwrap` for a batch
that is stored as one record. The table of positions comes from `rows.scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from aerobee.errors import AerobeeError, RemoteProtocolError
from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.host import decode_host
from aerobee.hot.log.layout import (
    BORNHOST_V6,
    COMPRESSED,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    INNER_BATCH,
    NEED_UNWRAP,
    STOREHOST_V6,
)
from aerobee.hot.log.record import VERIFY_NONE
from aerobee.model import sysproperties as names
from aerobee.model.compression import UNFOLDED_SIZE_MAX, decompress
from aerobee.model.ids import offset_message_id
from aerobee.model.message import INNER_COUNT_MAX
from aerobee.model.numbers import plain_int
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.columns.pairs import Pairs
from pyspark_rocketmq.columns.rows import Ints
from pyspark_rocketmq.columns.text import binary_array, binary_at, string_array, strings_at

# 2048 rows of 1 KB fit the processor's cache. Smaller rows share a batch, because each batch costs time too.
BATCH_ROWS: Final = 2048
BATCH_BYTES: Final = 4 << 20
_SMALL_BYTES: Final = 2 << 20
_SMALL_ROWS: Final = 16_384
# If the unfolded bodies of a batch are larger than this, the batch is cut. Arrow's own limit is 2 GiB.
_UNFOLDED_BATCH_BYTES: Final = 256 << 20
# The range of a Python datetime. A sender may write any number as the born time.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
_WRAPPED: Final = INNER_BATCH | NEED_UNWRAP
_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint8).reshape(256, 2)


class BadMessageError(AerobeeError):
    """A record whose body does not match its flags. `physical_offset` tells which. Other records may be sound."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(f"message at physical offset {physical_offset}: {reason}")
        self.physical_offset = physical_offset
        self.reason = reason


class _TooMuchError(Exception):
    """The unfolded bodies of a batch are too large for one batch."""


def batches(
    buf: bytes,
    columns: Sequence[str],
    *,
    broker: str | None = None,
    physical_offset: int = -1,
    verify: int = VERIFY_NONE,
) -> Iterator[pa.RecordBatch]:
    """Yield the sound records from the start of `buf`, in batches as `cut` makes them.

    The bytes after them are ignored. A caller that must know why the records end uses `rows.scan` and `cut`.
    """
    rows, _, _ = r.scan(buf, physical_offset, verify)
    yield from cut(buf, rows, columns, broker=broker)


def cut(
    buf: bytes,
    rows: Ints,
    columns: Sequence[str],
    *,
    broker: str | None = None,
    on_bad: Callable[[BadMessageError], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of 2048 rows or 4 MiB, or of more rows if these have 2 MiB together.

    A bad message raises, or is given to `on_bad` and left out.
    """
    sizes = np.cumsum(rows[:, r.SIZE])
    begin = 0
    while begin < len(rows):
        before = plain_int(sizes[begin - 1]) if begin else 0
        end = plain_int(np.searchsorted(sizes, before + BATCH_BYTES, side="right"))
        small = plain_int(np.searchsorted(sizes, before + _SMALL_BYTES, side="right"))
        most = max(begin + BATCH_ROWS, min(small, begin + _SMALL_ROWS))
        end = min(max(end, begin + 1), most, len(rows))
        yield from _pieces(buf, rows[begin:end], columns, broker, on_bad)
        begin = end


def _pieces(
    buf: bytes,
    rows: Ints,
    columns: Sequence[str],
    broker: str | None,
    on_bad: Callable[[BadMessageError], None] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield one batch, or its halves if the unfolded bodies are too large, without bad messages."""
    while len(rows):
        try:
            yield decode(buf, rows, columns, broker=broker)
            return
        except _TooMuchError:
            half = len(rows) // 2
            yield from _pieces(buf, rows[:half], columns, broker, on_bad)
            rows = rows[half:]
        except BadMessageError as bad:
            if on_bad is None:
                raise
            on_bad(bad)
            rows = rows[rows[:, r.PHYSICAL_OFFSET] != bad.physical_offset]


def decode(buf: bytes, rows: Ints, columns: Sequence[str], *, broker: str | None = None) -> pa.RecordBatch:
    """Return one batch of these rows, with the columns of `schema.arrow_schema(columns)`.

    Raises BadMessageError if a body cannot be unfolded.
    """
    if len(rows) and ((rows[:, r.SYS_FLAG] & _WRAPPED) == _WRAPPED).any():
        buf, rows = _unwrapped(buf, rows)
    table = _Decoder(buf, rows, broker)
    return pa.RecordBatch.from_arrays([table.column(name) for name in columns], schema=c.arrow_schema(columns))


class _Decoder:
    """One batch that is being built. The property pairs are found once for all columns that need them."""

    def __init__(self, buf: bytes, rows: Ints, broker: str | None) -> None:
        self._buf = buf
        self._rows = rows
        self._broker = broker
        self._found: Pairs | None = None

    def column(self, name: str) -> pa.Array:
        """Return one column."""
        number = _NUMBERS.get(name)
        if number is not None:
            return pa.array(self._rows[:, number[0]].astype(number[1]))
        return _MAKERS[name](self)

    @property
    def pairs(self) -> Pairs:
        if self._found is None:
            self._found = Pairs(self._buf, self._rows)
        return self._found

    def topic(self) -> pa.Array:
        return strings_at(self._buf, self._rows[:, r.TOPIC_AT], self._rows[:, r.TOPIC_SIZE])

    def broker(self) -> pa.Array:
        if self._broker is None:
            return pa.nulls(len(self._rows), pa.string())
        return pa.repeat(pa.scalar(self._broker, pa.string()), len(self._rows))

    def keys(self) -> pa.Array:
        return strings_at(self.pairs.data, *self.pairs.value_of(names.KEYS))

    def tags(self) -> pa.Array:
        return strings_at(self.pairs.data, *self.pairs.value_of(names.TAGS))

    def properties(self) -> pa.Array:
        return self.pairs.map_array(system=False)

    def system_properties(self) -> pa.Array:
        return self.pairs.map_array(system=True)

    def message_id(self) -> pa.Array:
        at, sizes, has = self.pairs.value_of(names.UNIQ_KEY)
        if has.all():
            return strings_at(self.pairs.data, at, sizes)
        if not has.any():
            return self.offset_id()
        unique = strings_at(self.pairs.data, at, sizes, has).to_pylist()
        place = self.offset_id().to_pylist()
        return pa.array([mine or other for mine, other in zip(unique, place, strict=True)], pa.string())

    def offset_id(self) -> pa.Array:
        rows = self._rows
        count = len(rows)
        if (rows[:, r.SYS_FLAG] & STOREHOST_V6).any():
            hosts = self._host_bytes(r.STORE_HOST_AT, STOREHOST_V6)
            offsets = rows[:, r.PHYSICAL_OFFSET].tolist()
            return pa.array(
                [offset_message_id(host, offset) for host, offset in zip(hosts, offsets, strict=True)], pa.string()
            )
        raw = np.empty((count, 16), np.uint8)
        raw[:, :8] = self._short_hosts(r.STORE_HOST_AT)
        raw[:, 8:] = rows[:, r.PHYSICAL_OFFSET].astype(">i8").view(np.uint8).reshape(count, 8)
        return string_array(_HEX[raw].tobytes(), np.full(count, 32, np.int64))

    def born_host(self) -> pa.Array:
        return self._hosts(r.BORN_HOST_AT, BORNHOST_V6)

    def store_host(self) -> pa.Array:
        return self._hosts(r.STORE_HOST_AT, STOREHOST_V6)

    def _hosts(self, column: int, v6_flag: int) -> pa.Array:
        """Return hosts as text. Many records share few hosts, so each host is converted once."""
        if (self._rows[:, r.SYS_FLAG] & v6_flag).any():
            known: dict[bytes, str] = {}
            hosts = self._host_bytes(column, v6_flag)
            for host in set(hosts):
                known[host] = decode_host(host)
            return pa.array([known[host] for host in hosts], pa.string())
        raw = np.ascontiguousarray(self._short_hosts(column)).view(">i8").reshape(len(self._rows))
        distinct, index = np.unique(raw, return_inverse=True)
        words = [decode_host(plain_int(value).to_bytes(8, "big", signed=True)) for value in distinct]
        return pa.array(words, pa.string()).take(pa.array(index.astype(np.int32)))

    def _short_hosts(self, column: int) -> r.Bytes:
        at = self._rows[:, column]
        if not len(at):
            return np.empty((0, HOST_V4_SIZE), np.uint8)
        return np.lib.stride_tricks.sliding_window_view(np.frombuffer(self._buf, np.uint8), HOST_V4_SIZE)[at]

    def _host_bytes(self, column: int, v6_flag: int) -> list[bytes]:
        at = self._rows[:, column]
        ends = at + np.where(self._rows[:, r.SYS_FLAG] & v6_flag, HOST_V6_SIZE, HOST_V4_SIZE)
        return [self._buf[start:stop] for start, stop in zip(at.tolist(), ends.tolist(), strict=True)]

    def born_timestamp(self) -> pa.Array:
        return _timestamps(self._rows[:, r.BORN_TIMESTAMP])

    def store_timestamp(self) -> pa.Array:
        return _timestamps(self._rows[:, r.STORE_TIMESTAMP])

    def sys_flag(self) -> pa.Array:
        """Return the flags without the bit for "compressed", as `body` is uncompressed."""
        flags, sizes = self._rows[:, r.SYS_FLAG], self._rows[:, r.BODY_SIZE]
        return pa.array(np.where(sizes > 0, flags & ~COMPRESSED, flags).astype(np.int32))

    def body(self) -> pa.Array:
        rows = self._rows
        at, sizes = rows[:, r.BODY_AT], rows[:, r.BODY_SIZE]
        folded = np.flatnonzero((rows[:, r.SYS_FLAG] & COMPRESSED != 0) & (sizes > 0))
        if not len(folded):
            return binary_at(self._buf, at, sizes)
        view = memoryview(self._buf)
        pieces: list[bytes | memoryview] = [
            view[start:stop] for start, stop in zip(at.tolist(), (at + sizes).tolist(), strict=True)
        ]
        sizes = sizes.copy()
        total = plain_int(sizes.sum())
        for index in folded.tolist():
            plain = _unfold(bytes(pieces[index]), rows[index])
            pieces[index] = plain
            sizes[index] = len(plain)
            total += len(plain)
            if total > _UNFOLDED_BATCH_BYTES and len(rows) > 1:
                raise _TooMuchError
        return binary_array(b"".join(pieces), sizes)


def _timestamps(values_ms: Ints) -> pa.Array:
    clipped = np.clip(values_ms, _FIRST_MS, _LAST_MS) * 1000
    return pa.array(clipped, pa.int64()).view(pa.timestamp("us", "UTC"))


def _unfold(body: bytes, row: Ints) -> bytes:
    try:
        return decompress(body, plain_int(row[r.SYS_FLAG]), UNFOLDED_SIZE_MAX)
    except RemoteProtocolError as error:
        raise BadMessageError(plain_int(row[r.PHYSICAL_OFFSET]), str(error)) from error


def _unwrapped(buf: bytes, rows: Ints) -> tuple[bytes, Ints]:
    """Return a buffer and a table in which each batch that is stored as one record is replaced by its messages.

    Their bodies and properties are appended to the buffer, and the rows point there.
    """
    extra: list[bytes] = []
    made: list[Ints] = []
    end = len(buf)
    for row in rows:
        if plain_int(row[r.SYS_FLAG]) & _WRAPPED != _WRAPPED:
            made.append(row)
            continue
        for index, (flag, body, block) in enumerate(_parts(buf, row)):
            one = row.copy()
            one[r.FLAG] = flag
            one[r.QUEUE_OFFSET] = row[r.QUEUE_OFFSET] + index
            if row[r.BODY_SIZE] > 0:
                one[r.SYS_FLAG] = row[r.SYS_FLAG] & ~COMPRESSED
            one[r.BODY_AT], one[r.BODY_SIZE] = end, len(body)
            one[r.PROPERTIES_AT], one[r.PROPERTIES_SIZE] = end + len(body), len(block)
            extra += (body, block)
            end += len(body) + len(block)
            made.append(one)
    return buf + b"".join(extra), np.array(made, np.int64).reshape(len(made), rows.shape[1])


def _parts(buf: bytes, row: Ints) -> list[tuple[int, bytes, bytes]]:
    at = plain_int(row[r.BODY_AT])
    body = buf[at : at + plain_int(row[r.BODY_SIZE])]
    if plain_int(row[r.SYS_FLAG]) & COMPRESSED and body:
        body = _unfold(body, row)
    try:
        parts = decode_batch(body, INNER_COUNT_MAX)
    except RemoteProtocolError as error:
        raise BadMessageError(plain_int(row[r.PHYSICAL_OFFSET]), str(error)) from error
    if not parts:
        raise BadMessageError(plain_int(row[r.PHYSICAL_OFFSET]), "a wrapped batch holds no message")
    return parts


_NUMBERS: Final = {
    c.QUEUE_ID: (r.QUEUE_ID, np.int32),
    c.QUEUE_OFFSET: (r.QUEUE_OFFSET, np.int64),
    c.RECONSUME_TIMES: (r.RECONSUME_TIMES, np.int32),
    c.COMMITLOG_OFFSET: (r.PHYSICAL_OFFSET, np.int64),
    c.FLAG: (r.FLAG, np.int32),
    c.PREPARED_TRANSACTION_OFFSET: (r.PREPARED, np.int64),
}
_MAKERS: Final[dict[str, Callable[[_Decoder], pa.Array]]] = {
    c.TOPIC: _Decoder.topic,
    c.BROKER: _Decoder.broker,
    c.MESSAGE_ID: _Decoder.message_id,
    c.KEYS: _Decoder.keys,
    c.TAGS: _Decoder.tags,
    c.BODY: _Decoder.body,
    c.PROPERTIES: _Decoder.properties,
    c.SYSTEM_PROPERTIES: _Decoder.system_properties,
    c.BORN_TIMESTAMP: _Decoder.born_timestamp,
    c.STORE_TIMESTAMP: _Decoder.store_timestamp,
    c.BORN_HOST: _Decoder.born_host,
    c.STORE_HOST: _Decoder.store_host,
    c.SYS_FLAG: _Decoder.sys_flag,
    c.OFFSET_ID: _Decoder.offset_id,
}
