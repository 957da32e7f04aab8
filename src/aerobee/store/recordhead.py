"""The fields of a record that tell whose record it is, read without decoding the rest."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aerobee.hot.log.layout import (
    BORNHOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH_SIZE,
    RECORD_BODY_CRC_POS,
    RECORD_BODY_POS,
    RECORD_BODY_SIZE_POS,
    RECORD_BORN_TIMESTAMP_POS,
    RECORD_HEAD_FORMAT,
    RECORD_MAGIC_POS,
    RECORD_STORE_HOST_POS,
    RECORD_STORE_TIMESTAMP_POS,
    RECORD_SYS_FLAG_POS,
    STOREHOST_V6,
    V6_HOST_EXTRA,
)

_HEAD: Final = struct.Struct(RECORD_HEAD_FORMAT)
# The bytes up to and with the store time, also behind an IPv6 born host.
HEAD_SIZE: Final = RECORD_STORE_HOST_POS + V6_HOST_EXTRA
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
        """Tell whether this is the record a queue unit means."""
        return (
            self.physical_offset == physical_offset
            and self.size == size
            and self.queue_id == queue_id
            and self.queue_offset == queue_offset
        )


def head_of(data: bytes | memoryview) -> RecordHead | None:
    """Return the head of the record that begins here, None where none does."""
    if len(data) < _HEAD.size:
        return None
    size, magic, _, queue_id, _, queue_offset, physical_offset, sys_flag = _HEAD.unpack_from(data)
    if magic not in _MAGICS or size <= 0:
        return None
    extra = V6_HOST_EXTRA if sys_flag & BORNHOST_V6 else 0
    stored = data[RECORD_STORE_TIMESTAMP_POS + extra : RECORD_STORE_HOST_POS + extra]
    store_timestamp = int.from_bytes(stored, "big", signed=True) if len(stored) == 8 else -1
    return RecordHead(size, queue_id, queue_offset, physical_offset, store_timestamp)


def topic_of(data: bytes | memoryview) -> bytes:
    """Return the topic of a whole record, empty where its lengths make no sense."""
    at, size = _topic_at(data)
    return bytes(data[at : at + size])


def properties_of(data: bytes | memoryview) -> bytes:
    """Return the property block of a whole record, empty where its lengths make no sense."""
    at, size = _topic_at(data)
    at += size
    start = at + PROPERTIES_LENGTH_SIZE
    if not size or start > len(data):
        return b""
    return bytes(data[start : start + int.from_bytes(data[at:start], "big")])


def body_of(data: bytes | memoryview) -> tuple[int, int]:
    """Return where the body of a record begins, and its size."""
    sys_flag = int.from_bytes(data[RECORD_SYS_FLAG_POS:RECORD_BORN_TIMESTAMP_POS], "big", signed=True)
    extra = (V6_HOST_EXTRA if sys_flag & BORNHOST_V6 else 0) + (V6_HOST_EXTRA if sys_flag & STOREHOST_V6 else 0)
    size = int.from_bytes(data[RECORD_BODY_SIZE_POS + extra : RECORD_BODY_POS + extra], "big", signed=True)
    return RECORD_BODY_POS + extra, size


def _topic_at(data: bytes | memoryview) -> tuple[int, int]:
    """Return where the topic lies, and its size: 0 where the lengths make no sense."""
    start, body_size = body_of(data)
    at = start + body_size
    width = 1 if data[RECORD_MAGIC_POS:RECORD_BODY_CRC_POS] == _MAGIC_V1_BYTES else 2
    if body_size < 0 or at + width > len(data):
        return 0, 0
    return at + width, int.from_bytes(data[at : at + width], "big")
