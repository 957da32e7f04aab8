"""What is due comes back: its copy is stored where its group reads it again, in one write with the record that says so.

The copy stands before that record in the log. A crash between the two repeats the copy, and never loses the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aerobee.broker.log import STORED, copy_of, fitting_block, read_soon, record_bytes
from aerobee.broker.pop.asked import Lease
from aerobee.broker.pop.entries import Key
from aerobee.broker.pop.records import retry_copy
from aerobee.broker.pop.window import REVIVING, Window
from aerobee.broker.retry import DLQ_QUEUE_NUMS
from aerobee.broker.topics import ensure_topic
from aerobee.errors import AerobeeError, CorruptLogError, StoreError
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import VERIFY_RECORD, Draft, Record, decode_record
from aerobee.model.names import dlq_topic, is_retry_topic
from aerobee.model.sysproperties import CRC32, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, UNIQ_KEY
from aerobee.protocol.codes import ResponseCode
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

if TYPE_CHECKING:
    from aerobee.broker.pop.driver import Pop

# One round revives so many messages, or so many bytes of them.
_ROUND_MAX: Final = 512
_ROUND_BYTES_MAX: Final = 4 << 20
# When a copy that could not be made is tried again.
_RETRY_MS: Final = 10_000
_FULL_RETRY_MS: Final = 1_000

_log = get_log("broker.pop")


class _Due:
    """One message on its way back."""

    def __init__(self, window: Window, offset: int, pop_time: int, place: tuple[int, int]) -> None:
        self.window = window
        self.offset = offset
        self.pop_time = pop_time
        self.place = place


class Reviver:
    """Brings back what is due, one round after the other."""

    def __init__(self, pop: Pop, host: bytes) -> None:
        self._pop = pop
        self._host = host
        self._is_busy = False
        self._later: list[_Due] = []
        self._warn = RateLimitedLog(_log, pop.clock)
        # Messages brought back since the start.
        self.revived = 0

    def tick(self, now_ms: int) -> None:
        """Begin a round, unless one is under way."""
        if self._is_busy or not self._pop.store.is_open:
            return
        if self._later:
            found, self._later = self._later, []
        else:
            due_ms = self._pop.table.next_due_ms
            if due_ms < 0 or due_ms > now_ms:
                return
            found = self._find(now_ms)
        if found:
            self._read(self._round(found))

    def _find(self, now_ms: int) -> list[_Due]:
        pop = self._pop
        found: list[_Due] = []
        gone: list[tuple[Window, int]] = []
        for due in pop.table.due(now_ms, _ROUND_MAX):
            window = due.window
            if pop.catalog.find(window.topic) is None or pop.catalog.group(window.group) is None:
                gone += [(window, offset) for offset in due.offsets]
                continue
            for offset in due.offsets:
                place = self._place(window, offset)
                if place is None:
                    gone.append((window, offset))
                else:
                    found.append(_Due(window, offset, window.pop_time_of(offset), place))
        self._let_go(gone)
        return found

    def _place(self, window: Window, offset: int) -> tuple[int, int] | None:
        queue = self._pop.store.queues.find(window.topic.encode(), window.queue_id)
        if queue is None or not queue.min_for(self._pop.store.log_start) <= offset < queue.next_offset:
            return None
        unit = queue.unit(offset)
        return None if unit is None else (unit[0], unit[1])

    def _round(self, found: list[_Due]) -> list[_Due]:
        size = number = 0
        while (
            number < len(found)
            and number < _ROUND_MAX
            and (not number or size + found[number].place[1] <= _ROUND_BYTES_MAX)
        ):
            size += found[number].place[1]
            number += 1
        self._later = found[number:] + self._later
        return found[:number]

    def _let_go(self, gone: list[tuple[Window, int]]) -> None:
        """Forget messages that cannot be read any more: expired, or of a topic or a group that was deleted."""
        pop = self._pop
        for window, offset in gone:
            pop.table.revived(window, (offset,))
            pop.ledger.writer.done(window.key, (offset,), pop.clock.now_ms())
        if gone:
            pop.ledger.said()

    def _read(self, found: list[_Due]) -> None:
        self._is_busy = True

        def read(data: list[bytes | None] | StoreError) -> None:
            self._is_busy = False
            if isinstance(data, StoreError):
                self._warn.warning("read", "messages that are due cannot be read now", reason=data.message)
                self._try_later(found, _RETRY_MS)
            else:
                self._copy(found, data)

        lowest = min(due.place[0] for due in found)
        read_soon(self._pop.store, lowest, record_bytes([due.place for due in found]), read)

    def _try_later(self, found: list[_Due], in_ms: int) -> None:
        pop = self._pop
        deadline = pop.clock.now_ms() + in_ms
        for due in found:
            pop.table.revive_later(due.window, due.offset, deadline)

    def _copy(self, found: list[_Due], data: list[bytes | None]) -> None:
        pop = self._pop
        drafts: list[Draft] = []
        kept: list[_Due] = []
        gone: list[tuple[Window, int]] = []
        later: list[_Due] = []
        for due, record_data in zip(found, data, strict=True):
            window, offset = due.window, due.offset
            if pop.table.windows.get(window.key) is not window or window.state_of(offset) != REVIVING:
                continue  # acknowledged, reset or deleted meanwhile
            record = _record(record_data, window, offset)
            if record is None:
                gone.append((window, offset))
                continue
            try:
                draft = retry_copy(
                    record, window.topic, window.group, due.pop_time, self._host,
                    suspended=window.is_suspended(offset),
                )  # fmt: skip
                ensure_topic(pop.catalog, draft.topic.decode(), 1)
            except AerobeeError as error:
                # There may be no room for one more topic. The message stays held until there is.
                self._warn.warning(
                    "copy", "a message that is due waits: it cannot be stored in its group's retry topic",
                    topic=window.topic, group=window.group, reason=error.message,
                )  # fmt: skip
                later.append(due)
                continue
            drafts.append(draft)
            kept.append(due)
        self._let_go(gone)
        if later:
            self._try_later(later, _RETRY_MS)
        if kept:
            self._store(kept, drafts)

    def _store(self, kept: list[_Due], drafts: list[Draft]) -> None:
        pop = self._pop
        # What was said before goes into a record of its own, before the copies.
        pop.ledger.flush()
        by_window: dict[Window, list[int]] = {}
        for due in kept:
            by_window.setdefault(due.window, []).append(due.offset)
        now_ms = pop.clock.now_ms()
        for window, offsets in by_window.items():
            pop.ledger.writer.done(window.key, tuple(offsets), now_ms)
        self._is_busy = True

        def done(code: int, remark: str) -> None:
            self._is_busy = False
            if code not in STORED:
                self._warn.warning("store", "messages that are due wait: not stored", reason=remark)
                self._try_later(kept, _FULL_RETRY_MS)
                return
            self.revived += len(kept)
            for window, offsets in by_window.items():
                pop.table.revived(window, offsets)

        pop.ledger.store_with(drafts, done)

    # -- dead letters

    def dead_letter(self, lease: Lease, told: Callable[[int, str], None]) -> None:
        """Copy a message that its consumer gives up to the dead letters of its group, and acknowledge it."""
        pop = self._pop
        window = pop.table.windows.get(Key(lease.topic, lease.group, lease.queue_id))
        if not pop.is_held(lease):
            told(ResponseCode.NO_MESSAGE, "the message is not held under this handle any more")
            return
        if window is None:  # read in order: no window is needed to find its record
            window = Window(0, lease.topic, lease.group, lease.queue_id, lease.offset)
        place = self._place(window, lease.offset)
        if place is None:
            pop.ack(lease, told)
            return

        def read(data: list[bytes | None] | StoreError) -> None:
            if isinstance(data, StoreError):
                told(ResponseCode.SYSTEM_ERROR, data.message)
                return
            record = _record(data[0], window, lease.offset)
            if record is None:
                pop.ack(lease, told)
                return
            self._bury(record, lease, told)

        read_soon(pop.store, place[0], record_bytes([place]), read)

    def _bury(self, record: Record, lease: Lease, told: Callable[[int, str], None]) -> None:
        pop = self._pop
        properties = decode_properties(record.properties)
        properties.pop(CRC32, None)
        plain = lease.topic
        if is_retry_topic(plain):
            plain = plain.partition(lease.group)[2][1:] or plain
        properties.setdefault(DLQ_ORIGIN_TOPIC, plain)
        properties.setdefault(DLQ_ORIGIN_MESSAGE_ID, properties.get(UNIQ_KEY, ""))
        draft = retry_copy(record, lease.topic, lease.group, lease.pop_time, self._host, suspended=False)
        target = dlq_topic(lease.group)
        times = draft.reconsume_times
        draft = copy_of(record, target, 0, properties, fitting_block(record, properties))
        draft.store_host, draft.reconsume_times = self._host, times
        ensure_topic(pop.catalog, target, DLQ_QUEUE_NUMS)
        if not pop.is_held(lease):
            told(ResponseCode.NO_MESSAGE, "the message is not held under this handle any more")
            return
        pop.ledger.flush()
        if not lease.in_order:
            pop.ledger.writer.done(Key(lease.topic, lease.group, lease.queue_id), (lease.offset,), pop.clock.now_ms())

        def done(code: int, remark: str) -> None:
            if code not in STORED:
                told(code, remark)
                return
            if lease.in_order:
                pop.ack(lease, told)
                return
            window = pop.table.windows.get(Key(lease.topic, lease.group, lease.queue_id))
            if window is not None and pop.is_held(lease):
                pop.table.revived(window, (lease.offset,))
            told(0, "")

        pop.ledger.store_with([draft], done)


def _record(data: bytes | None, window: Window, offset: int) -> Record | None:
    if data is None:
        return None
    try:
        record = decode_record(data, 0, VERIFY_RECORD)
    except CorruptLogError:
        return None
    return record if record.topic == window.topic.encode() and record.queue_offset == offset else None
