"""A picture of POP's state, so that a start reads only the end of the journal.

It is derived: without it the journal tells the same. The file says for which offset of the journal it stands.
"""

from __future__ import annotations

import sys
from typing import Final

from aerobee.broker.pop.entries import Key, put_signed, put_text, put_varint
from aerobee.broker.pop.table import PopTable
from aerobee.broker.pop.window import Straggler, after_a_start
from aerobee.errors import InvalidArgumentError

_MAGIC: Final = b"aerobee pop 1 "
_ORDER: Final = sys.byteorder.encode() + b"\n"


def encode_picture(table: PopTable, journal_offset: int) -> list[bytes]:
    """Return the picture in parts, which are the file when they are joined."""
    head = bytearray(_MAGIC + _ORDER)
    put_varint(head, journal_offset)
    put_varint(head, len(table.windows))
    put_varint(head, len(table.orders))
    parts = [bytes(head)]
    for key, window in table.windows.items():
        deadlines, pop_times, states = window.packed()
        out = bytearray()
        _put_key(out, key)
        for number in (window.base, window.last_pop_time, window.reset_time, len(states)):
            put_varint(out, number)
        put_varint(out, len(window.stragglers))
        for offset, one in window.stragglers.items():
            put_varint(out, offset)
            put_signed(out, one.deadline)
            put_signed(out, one.pop_time)
            out.append(one.state)
        put_varint(out, len(window.ahead))
        for offset in window.ahead:
            put_varint(out, offset)
        parts += [bytes(out), deadlines, pop_times, states]
    for key, text in table.orders.items():
        out = bytearray()
        _put_key(out, key)
        put_text(out, text)
        parts.append(bytes(out))
    return parts


def decode_picture(content: bytes) -> tuple[PopTable, int]:
    """Return the state, and the journal's offset that it stands for. Raise ValueError for any other content."""
    start = _MAGIC + _ORDER
    if not content.startswith(start):
        raise ValueError("not a picture that this version, on this machine, understands")
    reader = _Bytes(content, len(start))
    journal_offset, windows, orders = reader.varint(), reader.varint(), reader.varint()
    table = PopTable()
    for _ in range(windows):
        _window(reader, table)
    for _ in range(orders):
        key = reader.key()
        table.orders[key] = reader.take(reader.varint())
    if reader.at != len(content):
        raise ValueError(f"{len(content) - reader.at} bytes too many")
    return table, journal_offset


def _window(reader: _Bytes, table: PopTable) -> None:
    key = reader.key()
    base, last, reset, count = reader.varint(), reader.varint(), reader.varint(), reader.varint()
    window = table.window(key, base)
    window.last_pop_time, window.reset_time = last, reset
    for _ in range(reader.varint()):
        offset, deadline, pop_time = reader.varint(), reader.signed(), reader.signed()
        window.stragglers[offset] = Straggler(deadline, pop_time, after_a_start(reader.take(1))[0])
    table.stragglers += len(window.stragglers)
    window.ahead = {reader.varint() for _ in range(reader.varint())}
    deadlines = reader.take(8 * count)
    pop_times = reader.take(8 * count)
    window.unpack(deadlines, pop_times, reader.take(count))


def _put_key(out: bytearray, key: Key) -> None:
    put_text(out, key.topic.encode())
    put_text(out, key.group.encode())
    put_varint(out, key.queue_id)


class _Bytes:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def take(self, size: int) -> bytes:
        if self.at + size > len(self._data):
            raise ValueError("the picture ends early")
        self.at += size
        return self._data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise InvalidArgumentError("a number of more than nine bytes")

    def signed(self) -> int:
        value = self.varint()
        return value >> 1 if not value & 1 else -(value >> 1) - 1

    def key(self) -> Key:
        topic, group = self.take(self.varint()).decode(), self.take(self.varint()).decode()
        return Key(topic, group, self.varint())
