"""What POP writes into its journal: the records of one turn of the event loop, as one message.

The body is a version byte, the queues that it speaks of, the time that its times count from, and entries of varints
(docs/formats/pop-journal.md). Ten bytes say an acknowledgement, and twenty a take, whatever was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

VERSION: Final = 1

TAKE: Final = 1
ACK: Final = 2
CHANGE: Final = 3
DONE: Final = 4
RESET: Final = 5
ORDER: Final = 6
FORGET_TOPIC: Final = 7
FORGET_GROUP: Final = 8

# More than a batch of 32 needs by far, and less than an attacker would like.
_COUNT_MAX: Final = 1 << 21
_TEXT_MAX: Final = 1 << 16


class Key(NamedTuple):
    """One group's reading of one queue. The topic is the one that is read: a retry topic is one of its own."""

    topic: str
    group: str
    queue_id: int


class PopEntry(NamedTuple):
    """One entry. Fields that its kind has no use for are empty."""

    kind: int
    key: Key
    # The pop that it speaks of; of RESET the time of the reset.
    pop_time: int = 0
    # TAKE: what was handed out. ACK, CHANGE, DONE: what is spoken of. RESET: the new position.
    offsets: tuple[int, ...] | range = ()
    # TAKE: where the window ended before, and ends now.
    start: int = 0
    following: int = 0
    # TAKE and CHANGE: until when the messages are hidden.
    deadline: int = 0
    suspend: bool = False
    # ORDER: the state of a queue that is read in order.
    text: bytes = b""


class Writer:
    """The entries of one record."""

    def __init__(self) -> None:
        self._keys: dict[Key, int] = {}
        self._base = -1
        self._out = bytearray()
        # Bytes of the names of the keys, about.
        self._names = 0
        self.count = 0

    @property
    def size(self) -> int:
        """Return about how long the body is."""
        return len(self._out) + self._names

    def _begin(self, kind: int, key: Key, at_ms: int) -> None:
        self.count += 1
        if self._base < 0:
            self._base = at_ms
        self._out.append(kind)
        number = self._keys.get(key, -1)
        if number < 0:
            number = self._keys[key] = len(self._keys)
            self._names += 3 * (len(key.topic) + len(key.group)) + 8
        put_varint(self._out, number)
        put_signed(self._out, at_ms - self._base)

    def take(
        self, key: Key, pop_time: int, deadline: int, start: int, following: int, offsets: tuple[int, ...] | range
    ) -> None:
        """Say that a pop took messages, and where its window ended before and after."""
        self._begin(TAKE, key, pop_time)
        out = self._out
        put_signed(out, deadline - pop_time)
        put_varint(out, start)
        put_signed(out, following - start)
        put_offsets(out, offsets, start)

    def ack(self, key: Key, pop_time: int, first: int, count: int) -> None:
        """Say that messages were acknowledged that follow each other."""
        self._begin(ACK, key, pop_time)
        out = self._out
        # One run.
        out.append(1)
        put_signed(out, first)
        put_varint(out, count)

    def change(self, key: Key, pop_time: int, offset: int, deadline: int, *, suspend: bool) -> None:
        self._begin(CHANGE, key, pop_time)
        put_varint(self._out, offset)
        put_signed(self._out, deadline - pop_time)
        self._out.append(suspend)

    def done(self, key: Key, offsets: tuple[int, ...], now_ms: int) -> None:
        """Say that messages are copied to where they are tried again, or cannot be."""
        self._begin(DONE, key, now_ms)
        put_offsets(self._out, offsets, 0)

    def reset(self, key: Key, offset: int, at_ms: int) -> None:
        self._begin(RESET, key, at_ms)
        put_varint(self._out, offset)

    def order(self, key: Key, text: bytes, now_ms: int) -> None:
        self._begin(ORDER, key, now_ms)
        put_text(self._out, text)

    def forget(self, *, topic: str = "", group: str = "", now_ms: int) -> None:
        """Say that a topic or a group was deleted, with everything that is known of it."""
        self._begin(FORGET_TOPIC if topic else FORGET_GROUP, Key(topic, group, 0), now_ms)

    def body(self) -> bytes:
        """Return the body of the record."""
        out = bytearray([VERSION])
        put_varint(out, len(self._keys))
        for key in self._keys:
            put_text(out, key.topic.encode())
            put_text(out, key.group.encode())
            put_varint(out, key.queue_id)
        put_varint(out, max(self._base, 0))
        return bytes(out + self._out)


def read_entries(body: bytes) -> Iterator[PopEntry]:
    """Yield the entries of a record. Raise ValueError where it is none of ours."""
    reader = _Reader(body)
    if reader.byte() != VERSION:
        raise ValueError("not a record that this version understands")
    keys = []
    for _ in range(reader.count(reader.varint())):
        topic, group = reader.text().decode(), reader.text().decode()
        keys.append(Key(topic, group, reader.varint()))
    base = reader.varint()
    while reader.is_more:
        yield _entry(reader, keys, base)


def _entry(reader: _Reader, keys: list[Key], base: int) -> PopEntry:
    kind, number, at = reader.byte(), reader.varint(), base + reader.signed()
    if number >= len(keys):
        raise ValueError(f"an entry for queue {number} of {len(keys)}")
    key = keys[number]
    if kind == TAKE:
        deadline, start = at + reader.signed(), reader.varint()
        following = start + reader.signed()
        return PopEntry(TAKE, key, at, reader.offsets(start), start, following, deadline)
    if kind in (ACK, DONE):
        return PopEntry(kind, key, at, reader.offsets(0))
    if kind == CHANGE:
        offset, deadline = reader.varint(), at + reader.signed()
        return PopEntry(CHANGE, key, at, (offset,), deadline=deadline, suspend=reader.byte() != 0)
    if kind == RESET:
        return PopEntry(RESET, key, at, (reader.varint(),))
    if kind == ORDER:
        return PopEntry(ORDER, key, at, text=reader.text())
    if kind in (FORGET_TOPIC, FORGET_GROUP):
        return PopEntry(kind, key, at)
    raise ValueError(f"an entry of kind {kind}")


def put_varint(out: bytearray, value: int) -> None:
    """Append a number that is not negative, seven bits a byte."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_signed(out: bytearray, value: int) -> None:
    put_varint(out, value * 2 if value >= 0 else -value * 2 - 1)


def put_text(out: bytearray, text: bytes) -> None:
    put_varint(out, len(text))
    out += text


def put_offsets(out: bytearray, offsets: tuple[int, ...] | range, start: int) -> None:
    """Append offsets as runs: how many runs, and for each its distance from the end of the last one, and its length."""
    runs: list[tuple[int, int]] = []
    if isinstance(offsets, range):
        if offsets:
            runs.append((offsets.start, len(offsets)))
    else:
        for offset in offsets:
            if runs and offset == runs[-1][0] + runs[-1][1]:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((offset, 1))
    put_varint(out, len(runs))
    end = start
    for first, count in runs:
        put_signed(out, first - end)
        put_varint(out, count)
        end = first + count


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_more(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        if self._at >= len(self._data):
            raise ValueError("the record ends inside an entry")
        self._at += 1
        return self._data[self._at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than nine bytes")
        if value >= 1 << 63:
            raise ValueError("a number of more than 63 bits")
        return value

    def signed(self) -> int:
        value = self.varint()
        return value >> 1 if not value & 1 else -(value >> 1) - 1

    def count(self, value: int) -> int:
        if value > _COUNT_MAX:
            raise ValueError(f"{value} parts")
        return value

    def text(self) -> bytes:
        size = self.varint()
        if size > _TEXT_MAX or self._at + size > len(self._data):
            raise ValueError(f"a text of {size} bytes")
        self._at += size
        return self._data[self._at - size : self._at]

    def offsets(self, start: int) -> tuple[int, ...] | range:
        runs = self.count(self.varint())
        end = start
        found: list[range] = []
        total = 0
        for _ in range(runs):
            first = end + self.signed()
            count = self.varint()
            total = self.count(total + count)
            end = first + count
            if first < 0 or end >= 1 << 63:
                raise ValueError(f"offset {first}")
            found.append(range(first, end))
        if len(found) == 1:
            return found[0]
        return tuple(offset for run in found for offset in run)
