"""The first bytes of a record, enough to say whose record it is without reading its body."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aerobee.hot.log.layout import BORNHOST_V6, MAGIC_V1, MAGIC_V2, STOREHOST_V6

_HEAD: Final = struct.Struct(">iiiiiqqi")
HEAD_SIZE: Final = 80  # up to and with the store time, also behind an IPv6 born host
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_MAGIC_V1_BYTES: Final = MAGIC_V1.to_bytes(4, "big", signed=True)


@dataclass(frozen=True, slots=True)
class RecordHead:
    """Who a record says it is. `store_timestamp` is -1 where too few bytes were given."""

    size: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int

    def is_at(self, physical_offset: int, size: int, queue_id: int, queue_offset: int) -> bool:
        """Whether this is the record a queue unit means."""
        return (
            self.physical_offset == physical_offset
            and self.size == size
            and self.queue_id == queue_id
            and self.queue_offset == queue_offset
        )


def head_of(data: bytes | memoryview) -> RecordHead | None:
    """None where no record begins."""
    if len(data) < _HEAD.size:
        return None
    size, magic, _, queue_id, _, queue_offset, physical_offset, sys_flag = _HEAD.unpack_from(data)
    if magic not in _MAGICS or size <= 0:
        return None
    at = 48 + (20 if sys_flag & BORNHOST_V6 else 8)
    stored = int.from_bytes(data[at : at + 8], "big", signed=True) if len(data) >= at + 8 else -1
    return RecordHead(size, queue_id, queue_offset, physical_offset, stored)


def topic_of(data: bytes | memoryview) -> bytes:
    """The topic of a whole record; empty where its lengths make no sense."""
    at, size = _topic_at(data)
    return bytes(data[at : at + size])


def properties_of(data: bytes | memoryview) -> bytes:
    """The property block of a whole record; empty where its lengths make no sense."""
    at, size = _topic_at(data)
    at += size
    if not size or at + 2 > len(data):
        return b""
    length = int.from_bytes(data[at : at + 2], "big")
    return bytes(data[at + 2 : at + 2 + length])


def _topic_at(data: bytes | memoryview) -> tuple[int, int]:
    """Where the topic lies, and its size: 0 where lengths make no sense."""
    sys_flag = int.from_bytes(data[36:40], "big", signed=True)
    at = 84 + (12 if sys_flag & BORNHOST_V6 else 0) + (12 if sys_flag & STOREHOST_V6 else 0)
    body_size = int.from_bytes(data[at : at + 4], "big", signed=True)
    at += 4 + body_size
    width = 1 if data[4:8] == _MAGIC_V1_BYTES else 2
    if body_size < 0 or at + width > len(data):
        return 0, 0
    return at + width, int.from_bytes(data[at : at + width], "big")
