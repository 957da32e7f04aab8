"""One slave as its master sees it: where it begins, what it has acknowledged, what it is owed. A machine.

Apache's master believes every offset that a slave reports. This one closes a slave that reports an offset which is not
one of its own, and counts nothing of it. RocketMQ: DefaultHAConnection.
"""

from __future__ import annotations

import struct
from typing import Final

from aerobee.hot.log.layout import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEAD_FORMAT,
    RECORD_HEAD_SIZE,
    SIZE_AND_MAGIC_FORMAT,
)

# As many bytes as tell whether a record begins at a place.
PROBE_SIZE: Final = RECORD_HEAD_SIZE
_HEAD: Final = struct.Struct(RECORD_HEAD_FORMAT)
_SIZE_AND_MAGIC: Final = struct.Struct(SIZE_AND_MAGIC_FORMAT)


class SlaveLink:
    """The state of one connection. `sent` is None until the first report was accepted."""

    def __init__(self, now_s: float) -> None:
        self.first: int | None = None
        self.sent: int | None = None
        self.acked = 0
        self.last_read_s = now_s
        self.last_write_s = now_s

    def begin(self, offset: int, log_start: int, log_end: int) -> str:
        """Take the first report. Return why it is refused, or nothing. `begin_at` decides what follows."""
        self.first = offset
        if offset == 0 or log_start <= offset <= log_end:
            return ""
        if offset > log_end or offset < 0:
            return f"its log ends at {offset}, and this one at {log_end}: they are not the same log"
        return f"its log ends at {offset}, and this one begins at {log_start}: what lies between was deleted here"

    def begin_at(self, offset: int) -> None:
        """Begin to transfer at this offset. What the slave reported first it has."""
        self.sent = offset
        self.acked = min(self.first or 0, offset)

    def reported(self, offset: int) -> str:
        """Take a later report. Return why it is refused, or nothing."""
        if self.sent is None:
            return "it reported twice before it was served"
        if offset > self.sent or offset < 0:
            return f"it acknowledges offset {offset}, and was sent the log up to {self.sent}"
        self.acked = max(self.acked, offset)
        return ""

    def wrote(self, size: int, now_s: float) -> None:
        """Note that so many bytes of the log, or a heartbeat, were sent."""
        assert self.sent is not None
        self.sent += size
        self.last_write_s = now_s


def is_record_start(head: bytes, offset: int, segment_size: int) -> bool:
    """Tell whether these bytes at `offset` begin a record or the unused end of a segment."""
    if len(head) < _SIZE_AND_MAGIC.size:
        return False
    size, magic = _SIZE_AND_MAGIC.unpack_from(head)
    if magic == MAGIC_BLANK:
        return bool(size == segment_size - offset % segment_size)
    if magic not in (MAGIC_V1, MAGIC_V2) or len(head) < _HEAD.size:
        return False
    return bool(_HEAD.unpack_from(head)[6] == offset)
