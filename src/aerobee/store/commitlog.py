"""The commit log: one append-only log for all topics, the truth from which everything else is derived.

Owns the log's end, where the next record goes, store time, and the repair of writes that failed half way.
RocketMQ: CommitLog.asyncPutMessage, DefaultAppendMessageCallback.doAppend, CommitLog.appendData.
"""

from __future__ import annotations

from typing import Final, Protocol

from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.hot.log.layout import BLANK_SIZE_MIN
from aerobee.hot.log.record import Draft, encode_blank, encode_records, records_size
from aerobee.runtime.clock import now_ms_of
from aerobee.runtime.seams import Clock
from aerobee.store.config import StoreConfig
from aerobee.store.queues import ConsumeQueues
from aerobee.store.segments import Segments

# Fields of a record that say who it is: size, magic, queue id, queue offset, physical offset.
HEAD_SIZE: Final = 40


class Numbering(Protocol):
    """Who gives queue offsets away."""

    def assign(self, drafts: list[Draft]) -> None: ...
    def unassign(self, drafts: list[Draft]) -> None: ...


class CommitLog:
    """Appends records. The caller serialises calls: there is one writer."""

    def __init__(self, segments: Segments, clock: Clock, config: StoreConfig) -> None:
        self.segments = segments
        self._clock = clock
        self._with_crc = config.enabled_append_prop_crc
        self._body_size_max = config.max_message_size
        self.end = 0
        self.store_timestamp = 0
        # Where a failed write may have left bytes beyond the end; zeroed before anything else is written, or
        # a whole record among them could come back after a crash.
        self._garbage: list[tuple[int, int]] = []

    def reconfigure(self, config: StoreConfig) -> None:
        """The largest body may change; how records are written may not."""
        self._body_size_max = config.max_message_size

    @property
    def start(self) -> int:
        return self.segments.start if not self.segments.is_empty else self.end

    def append(self, drafts: list[Draft], numbering: Numbering) -> int:
        """Assign, encode, write: all drafts of one call lie in one segment, or none is stored. Returns the
        end.

        On any error nothing has happened: no queue offset is used up and the end stays where it was.
        """
        if not drafts:
            return self.end
        total = self._measure(drafts)
        self.repair()
        position, blank = self._place(total)
        self._prepare(position, total)
        now = max(now_ms_of(self._clock), self.store_timestamp)
        if isinstance(numbering, ConsumeQueues):  # compiled, a call that looks nothing up
            numbering.assign(drafts)
        else:
            numbering.assign(drafts)
        try:
            data = encode_records(drafts, position, now, self._with_crc, True)
            self._write(position, data, blank)
        except BaseException:
            numbering.unassign(drafts)
            for draft in drafts:
                draft.physical_offset = -1
            raise
        self.store_timestamp = now
        self.end = position + total
        return self.end

    def _measure(self, drafts: list[Draft]) -> int:
        """Bytes of all drafts. RocketMQ: MessageExtEncoder.encode (MESSAGE_SIZE_EXCEEDED)."""
        total = records_size(drafts, self._with_crc, self._body_size_max)
        room = self.segments.segment_size - BLANK_SIZE_MIN
        if total > room:
            raise InvalidArgumentError(f"{total} bytes at once do not fit into a segment of {room}")
        return total

    def _place(self, total: int) -> tuple[int, int]:
        """Where `total` bytes go, and how many bytes before it a blank record must fill (0: none)."""
        rest = -self.end % self.segments.segment_size
        if rest == 0 or total + BLANK_SIZE_MIN <= rest:
            return self.end, 0
        return self.end + rest, rest

    def _prepare(self, position: int, size: int) -> None:
        try:
            self.segments.prepare(position, size)
        except OSError as error:
            raise StoreError(f"no segment can be made ready at {position}: {error}") from error

    def _write(self, position: int, data: bytes, blank: int) -> None:
        """One write for each segment touched."""
        try:
            if blank:
                self.segments.write(self.end, encode_blank(blank))
            self.segments.write(position, data)
        except BaseException as error:
            if blank:
                self._garbage.append((self.end, self.end + BLANK_SIZE_MIN))
            self._garbage.append((position, position + len(data)))
            if isinstance(error, OSError):
                raise StoreError(f"the log cannot be written at {position}: {error}") from error
            raise

    def repair(self) -> None:
        """Wipe what a failed write may have left. Fails as a write does, and is then tried again next
        time."""
        while self._garbage:
            start, end = self._garbage[-1]
            try:
                self.segments.zero(start, end)
            except OSError as error:
                raise StoreError(f"the log cannot be written at {start}: {error}") from error
            self._garbage.pop()

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> int:
        """Bytes of a master's log, at the end of ours. They may begin and end inside a record."""
        if self.segments.is_empty and self.end != physical_offset:
            # A replica starts at the first segment its master still has.
            if physical_offset % self.segments.segment_size:
                raise InvalidArgumentError(
                    f"an empty log can start at a multiple of {self.segments.segment_size} only, "
                    f"not at {physical_offset}"
                )
            self.end = physical_offset
        if physical_offset != self.end:
            raise InvalidArgumentError(f"bytes for {physical_offset}, but the log ends at {self.end}")
        self.repair()
        view = memoryview(data)
        while view:
            size = min(len(view), self.segments.segment_size - self.end % self.segments.segment_size)
            self._prepare(self.end, size)
            self._garbage.append((self.end, self.end + size))
            try:
                self.segments.write(self.end, view[:size])
            except OSError as error:
                raise StoreError(f"the log cannot be written at {self.end}: {error}") from error
            self._garbage.clear()
            self.end += size
            view = view[size:]
        return self.end

    def cut(self, end: int) -> None:
        """Make the log end here, durably: later segments go, the rest of this one becomes zeros.

        Idempotent: cutting again after a crash half way gives the same files.
        """
        size = self.segments.segment_size
        floor = self.segments.start
        later = [start for start in self.segments.starts if start >= end and start > floor]
        self.segments.delete(later)
        limit = self.segments.segment_end(end)
        if limit >= 0:
            self.segments.zero(end, limit)
            self.segments.sync(end, end - end % size + size)
        self.end = end
        self._garbage.clear()
