"""A master's bytes on their way into a slave's log: every record is checked, and only whole ones are handed on.

A machine. Apache's transfers cut records anywhere, so the rest of a cut record waits here. A slave whose log always
ends between two records can reconnect at any time and needs no repair after a crash of its master.
"""

from __future__ import annotations

from typing import Final

from aerobee.errors import LogDisagreementError
from aerobee.hot.log.layout import BLANK_SIZE_MIN
from aerobee.hot.log.record import BLANK, NEED_MORE, VERIFY_RECORD, check_record, describe

# No record and no unused end of a segment is believed to be larger than this.
HELD_BYTES_MAX: Final = 32 * 1024 * 1024


class IncomingRecords:
    """What arrived behind `position`, where the slave's log ends."""

    def __init__(self, position: int, segment_size: int) -> None:
        self.position = position
        self._segment_size = segment_size
        self._held = bytearray()
        # The size of the record that is held in part, where it is known.
        self._needed = 0

    @property
    def arrived(self) -> int:
        """Return the offset that the next transfer must have."""
        return self.position + len(self._held)

    def feed(self, offset: int, data: bytes) -> bytes:
        """Take a transfer. Return the records that are whole now, which begin at the old `position`.

        Raise LogDisagreementError where the bytes are not the continuation of this log.
        """
        if offset != self.arrived:
            raise self._broken(self.arrived, f"the master sent offset {offset} next")
        if not data:
            return b""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return b""
            buffer = bytes(self._held)
            self._held.clear()
        else:
            buffer = bytes(data)
        self._needed = 0
        at = 0
        while at < len(buffer):
            size = self._next(buffer, at)
            if not size:
                break
            self._needed = 0
            at += size
        self._held += buffer[at:]
        self.position += at
        return buffer[:at]

    def _next(self, buffer: bytes, at: int) -> int:
        """Return the size of the next record or unused end of a segment, 0 while it is not whole."""
        offset = self.position + at
        room = self._segment_size - offset % self._segment_size
        size = check_record(buffer, at, offset, VERIFY_RECORD)
        if size == BLANK:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if size != room or size > HELD_BYTES_MAX:
                raise self._broken(offset, self._other_segments())
            self._needed = size
            return size if len(buffer) - at >= size else 0
        if size == NEED_MORE:
            # Without the size of the record every byte is awaited alone.
            self._needed = int.from_bytes(buffer[at : at + 4], "big") if len(buffer) - at >= BLANK_SIZE_MIN else 0
            if self._needed > min(room, HELD_BYTES_MAX):
                raise self._broken(offset, self._other_segments())
            return 0
        if size <= 0:
            raise self._broken(offset, describe(size))
        # Apache and we leave room for the mark of an unused end behind every record.
        if size + BLANK_SIZE_MIN > room:
            raise self._broken(offset, self._other_segments())
        return size

    def _other_segments(self) -> str:
        return f"the master's segments do not have {self._segment_size} bytes (mappedFileSizeCommitLog)"

    @staticmethod
    def _broken(offset: int, reason: str) -> LogDisagreementError:
        return LogDisagreementError(f"the master's bytes do not continue this log at offset {offset}: {reason}")
