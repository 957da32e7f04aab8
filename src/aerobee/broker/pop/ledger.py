"""The driver of POP's journal: what happened in one turn of the loop is one record; and the picture beside it.

An acknowledgement is answered when its record is stored, by the level of flush and replication in force. A pop waits
for nothing: a take that a crash loses only means that its messages are handed out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.broker.log import STORED, Journal, Puts
from aerobee.broker.pop.entries import Writer, read_entries
from aerobee.broker.pop.snapshot import decode_picture, encode_picture
from aerobee.broker.pop.table import PopTable
from aerobee.broker.topics import Catalog, ensure_topic
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import POP_TOPIC
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.messagestore import MessageStore
from aerobee.store.statefile import StateFile
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# A picture is taken when the journal grew by so much, or by a quarter of the last picture, whatever is more; and after
# so long, because the journal expires with the log.
_GROWN_MIN: Final = 4 << 20
_PICTURE_AGE_MS: Final = 600_000
# A record has at most so many bytes of entries: it must fit into a message.
_RECORD_MAX: Final = 1 << 20
# What one more entry may add, with the names of its queue.
_SPARE: Final = 1_024
_RETRY_S: Final = 0.5

_log = get_log("broker.pop")

Told = Callable[[int, str], None]


class PopLedger:
    """Writes and reads what the table must not forget."""

    def __init__(
        self,
        store: MessageStore,
        puts: Puts,
        catalog: Catalog,
        host: bytes,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._store = store
        self._puts = puts
        self._host = host
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._journal = Journal(
            POP_TOPIC, "pop", store, puts, {}, POP_TOPIC, lambda: ensure_topic(catalog, POP_TOPIC, 1)
        )
        self._file = StateFile(disk, f"{store.root}/pop/state", keep_backup=False)
        self.writer = Writer()
        self._size_max = max(1, min(_RECORD_MAX, store.config.max_message_size - _SPARE))
        self._waiting: list[Told] = []
        self._is_scheduled = False
        # Records that were not stored, oldest first: nothing behind them may be stored before.
        self._unstored: list[bytes] = []
        # Who waits for the newest write that is under way; None while none is.
        self._last: list[Told] | None = None
        self._learnt_to = 0
        # Whether the table follows from the journal, and not the journal from what this broker does.
        self.is_following = False
        # Bytes of records since the last picture, and its size and time.
        self._grown = 0
        self._picture_size = 0
        self._picture_ms = 0
        # A picture that waits until neither a power cut nor another master can take back what it speaks of.
        self._picture: tuple[bytes, int] | None = None
        self._is_saving = False
        # A picture is taken that is not known to be true yet.
        self._is_taking = False

    # -- start

    def open(self, table: PopTable) -> PopTable:
        """Return the table as picture and journal tell it."""
        start = -1
        try:
            found = self._file.load(decode_picture)
        except StoreError as error:
            _log.warning("POP's picture cannot be used; the journal tells the same", reason=error.message)
            found = None
        if found is not None and found[1] <= self._journal.end_offset:
            committed = table.committed
            table, start = found
            table.committed = committed
        self._picture_ms = self._clock.now_ms()
        self._learnt_to = self._journal.replay(
            lambda record: self._learn(table, record), start if start >= 0 else self._journal.first_offset
        )
        table.look_at_all()
        return table

    @property
    def unpictured(self) -> int:
        """Return how many bytes of the journal no picture tells of: what a start has read, or would read now."""
        return self._grown

    def _learn(self, table: PopTable, record: Record) -> None:
        self._grown += len(record.body)
        for entry in read_entries(record.body):
            table.learn(entry)

    def follow(self, table: PopTable) -> None:
        """Take up what the master wrote."""
        if self._learnt_to < self._journal.end_offset:
            self._learnt_to = self._journal.replay(lambda record: self._learn(table, record), self._learnt_to)

    # -- writing

    def wait(self, told: Told) -> None:
        """Call `told` once everything that was said so far is stored."""
        if self.is_large:
            self.cut()
        if not self.writer.count and not self._unstored and self._last is None:
            told(0, "")
            return
        self._waiting.append(told)
        self.said()

    def said(self) -> None:
        """Let what was written to `writer` be stored at the end of this turn."""
        if self.is_large:
            self._unstored += self._take_body()
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Store what was said since the last turn as one record."""
        self._is_scheduled = False
        waiting, self._waiting = self._waiting, []
        bodies, self._unstored = self._unstored, []
        bodies += self._take_body()
        if not bodies and not waiting:
            return
        if not self._store.is_open:
            for told in waiting:
                told(1, "the broker stops")
            return
        if bodies:
            self._write(bodies, waiting)
        elif self._last is not None:
            # What they wait for is on its way already.
            self._last += waiting
        else:
            _tell(waiting, 0, "")

    def cut(self) -> None:
        """Let what was said so far be a record of its own: a larger one would fit into no message."""
        self._unstored += self._take_body()
        self.said()

    def _take_body(self) -> list[bytes]:
        if not self.writer.count:
            return []
        body, self.writer = self.writer.body(), Writer()
        return [body]

    def store_with(self, drafts: list[Draft], told: Told) -> None:
        """Store messages, and behind them what is in `writer` now, in one write: all of it or nothing.

        What was said before is stored first. Where the write fails its entries are forgotten: they speak of the drafts.
        """
        body = self._take_body()
        waiting: list[Told] = []
        self._last = waiting

        def done(code: int, remark: str) -> None:
            if self._last is waiting:
                self._last = None
            self._grown += sum(map(len, body))
            told(code, remark)
            _tell(waiting, code, remark)

        self._journal.write([*drafts, *map(self._draft, body)], done)

    def _write(self, bodies: list[bytes], waiting: list[Told]) -> None:
        self._last = waiting

        def done(code: int, remark: str) -> None:
            if self._last is waiting:
                self._last = None
            if code in STORED:
                self._grown += sum(map(len, bodies))
            else:
                self._unstored = bodies + self._unstored
                self._warn.warning("store", "what consumers hold is not stored now; it is tried again", reason=remark)
                asyncio.get_running_loop().call_later(_RETRY_S, self._again)
            _tell(waiting, code, remark)

        self._journal.write(list(map(self._draft, bodies)), done)

    def _again(self) -> None:
        if self._unstored and self._store.is_open:
            self.said()

    def _draft(self, body: bytes) -> Draft:
        return Draft(
            POP_TOPIC.encode(), 0, 0, 0, self._clock.now_ms(), self._host, self._host, 0, 0, body, b"", 0, "", ""
        )

    @property
    def is_large(self) -> bool:
        """Tell whether `writer` should be cut before more is said."""
        return self.writer.size > self._size_max

    # -- the picture

    def tick(self, table: PopTable, now_ms: int) -> None:
        """Take a picture from time to time, and save it once it cannot be taken back."""
        if self._picture is not None:
            self._save_when_settled()
        elif self._grown and not self._is_saving and not self._is_taking and self._is_time(now_ms):
            self._take_picture(table, now_ms)

    def _is_time(self, now_ms: int) -> bool:
        return self._grown > max(_GROWN_MIN, self._picture_size // 4) or now_ms - self._picture_ms >= _PICTURE_AGE_MS

    def _take_picture(self, table: PopTable, now_ms: int) -> None:
        """Take a picture, which counts once everything that it speaks of is in the log.

        What was said and never stored must not be in it: another master may write something else in its place.
        """
        # A follower's table stands where it has read to, which may be behind what is there to be read.
        place = self._learnt_to if self.is_following else self._journal.end_offset
        content = b"".join(encode_picture(table, place))
        grown, self._grown = self._grown, 0
        self._picture_ms, self._is_taking = now_ms, True

        def stored(code: int, remark: str) -> None:
            self._is_taking = False
            if code in STORED:
                self._picture, self._picture_size = (content, self._store.log_end), len(content)
            else:
                self._grown += grown

        self.wait(stored)

    def _save_when_settled(self) -> None:
        assert self._picture is not None
        content, end = self._picture
        if self._store.settled_offset < end or self._is_saving:
            return
        self._picture, self._is_saving = None, True
        self._file.submit(content, self._saved)

    def _saved(self, error: Exception | None) -> None:
        self._is_saving = False
        if error is not None:
            self._warn.warning("picture", "POP's picture was not saved", reason=error)

    def release(self, table: PopTable) -> None:
        """Take a last picture, while the log is still open."""
        if self._grown or self._picture is not None or self._is_taking:
            self._picture = None
            self._take_picture(table, 0)

    def close(self) -> None:
        """Save the last picture, blocking. The log is closed and synced.

        In a group that is not enough: what no other replica has yet the next master may not know, and then this
        replica's journal loses it. A picture that knows it would hide what the next master writes in its place.
        """
        if self._picture is not None:
            (content, end), self._picture = self._picture, None
            if self._store.confirmed_offset < end:
                return
            try:
                self._file.save(content)
            except (AerobeeError, OSError) as error:
                _log.warning("POP's picture was not saved; the journal tells the same", reason=error)


def _tell(waiting: list[Told], code: int, remark: str) -> None:
    for told in waiting:
        told(code, remark)
