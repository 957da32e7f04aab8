"""Pulls: messages of a queue by queue offset, hot ones at once, cold ones through the reader thread.

This module owns the statuses of a pull and the rule that no record is served which is not the one its queue unit means,
or whose checksum fails. RocketMQ: DefaultMessageStore.getMessage, GetMessageStatus.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from aerobee.errors import StoreError
from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.hot.log.record import BAD_OFFSET, VERIFY_RECORD, check_record
from aerobee.hot.log.units import (
    Gathered,
    Selection,
    decode_units,
    dense_stretch,
    first_physical,
    gather_mapped,
    gather_records,
    is_record_of,
    select_units,
)
from aerobee.runtime.seams import Disk
from aerobee.store.commitlog import CommitLog
from aerobee.store.config import BrokerRole, StoreConfig
from aerobee.store.queues import ConsumeQueue, ConsumeQueues
from aerobee.store.recordhead import head_of, topic_of
from aerobee.store.segment import Damage
from aerobee.store.sieve import LOOKED_AT_BYTES_MAX, PropertyFilter, Sieve
from aerobee.store.steps import Steps, run_cold, run_now

HOT_BYTES: Final = 256 * 1024 * 1024
PULL_BYTES_MAX: Final = 128 * 1024 * 1024  # RocketMQ: DefaultMessageStore.MAX_PULL_MSG_SIZE
# Below this mean size a reply is cheaper as one copy than as slices of the mapping.
_COPY_SIZE_MEAN: Final = 2048
# Cold records that lie this close together are fetched by one read.
_COLD_GAP_MAX: Final = 16 * 1024
_COLD_READ_MAX: Final = 1024 * 1024
# The loop's thread does not copy more than this at once, wherever it lies.
_CACHED_SIZE_MAX: Final = 1024 * 1024

# The tag codes wanted, or a function that decides about a code; None takes all.
TagFilter: TypeAlias = AbstractSet[int] | Callable[[int], bool] | None


class GetMessageStatus(enum.StrEnum):
    """The status of a pull.

    RocketMQ: GetMessageStatus. COLD is ours: give the result to `fetch`. OFFSET_RESET comes from no read: the broker
    says it to a consumer whose group was reset.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"
    COLD = "COLD"


# These are no dataclasses, whose __init__ would not be compiled: each pull makes one of each.
class GetResult:
    """The answer to a pull. `buffers` holds whole records in order; several may share one buffer."""

    def __init__(
        self, status: GetMessageStatus, next_begin_offset: int, min_offset: int = 0, max_offset: int = 0
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.buffers: list[bytes | memoryview] = []
        self.count: int = 0
        self.size: int = 0
        self.damaged: int = 0
        # Records whose segment was deleted after they had been chosen.
        self.removed: int = 0
        # Records that were read and that the filter by properties did not take.
        self.filtered: int = 0
        # Bytes between the last record looked at and the log's end: how far behind this reader is.
        self.fall_behind: int = 0
        self.cold: _Wanted | None = None
        # Where the offsets have no gaps, as nearly always, only the first is kept.
        self._first_offset: int = 0
        self._offsets: list[int] | None = None

    @property
    def queue_offsets(self) -> list[int]:
        if self._offsets is not None:
            return self._offsets
        return list(range(self._first_offset, self._first_offset + self.count))

    def took(self, queue_offset: int) -> None:
        """Count one more record."""
        if self._offsets is None:
            self._offsets = []
        self._offsets.append(queue_offset)
        self.count += 1

    def took_run(self, first_offset: int, count: int) -> None:
        """Count all records there are, one behind the other."""
        self._first_offset = first_offset
        self.count = count

    def answer(self, head: bytes) -> list[bytes | memoryview]:
        """Return what is written to whoever asked: `head`, then the records. Small ones are copied into one piece."""
        if self.size <= self.count * _COPY_SIZE_MEAN:
            return [b"".join([head, *self.buffers])]
        return [head, *self.buffers]


class _Wanted:
    """The records a pull has chosen."""

    def __init__(self, queue: ConsumeQueue, offset: int, chosen: Selection, sieve: Sieve | None) -> None:
        self.queue = queue
        self.offset = offset
        self.chosen = chosen
        self.sieve = sieve


class _Stretch:
    """A copy of the log that holds the records [first, stop) of a selection."""

    def __init__(self, first: int, stop: int, data: bytes) -> None:
        self.first = first
        self.stop = stop
        self.data = data


class _Limits:
    """The limits of each pull, taken from the configuration once: reading them there costs more than using them."""

    def __init__(self, config: StoreConfig) -> None:
        self.scan_units: int = config.max_filter_message_size // UNIT_SIZE
        self.memory_percent: int = config.access_message_in_memory_max_ratio
        self.count_hot: int = config.max_transfer_count_on_message_in_memory
        self.count_cold: int = config.max_transfer_count_on_message_in_disk
        self.bytes_hot: int = min(config.max_transfer_bytes_on_message_in_memory, PULL_BYTES_MAX)
        self.bytes_cold: int = min(config.max_transfer_bytes_on_message_in_disk, PULL_BYTES_MAX)

    def count(self, asked: int, is_hot: bool) -> int:
        return min(asked, self.count_hot if is_hot else self.count_cold)

    def bytes(self, asked: int, is_hot: bool) -> int:
        return min(max(asked, 100), self.bytes_hot if is_hot else self.bytes_cold)


class Reads:
    """Serves pulls from one log and its queues."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        disk: Disk,
        config: StoreConfig,
        report: Callable[[Damage], None],
        hot_bytes: int = HOT_BYTES,
    ) -> None:
        self._log = log
        self._queues = queues
        self._disk = disk
        self._config = config
        self._limits = _Limits(config)
        self._report = report
        self.hot_bytes = hot_bytes
        # The machine's memory. It decides whether a pull counts as one from memory or from disk; 0: `hot_bytes` does.
        self.memory_bytes = 0
        # Records from here on were written or verified since this process began. Older ones are verified when read.
        self.trusted_from = 0

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config
        self._limits = _Limits(config)

    def get(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        tags: TagFilter,
        accept: PropertyFilter | None = None,
        bulk: bool = False,
    ) -> GetResult:
        """Choose records from `offset` on and serve them if they are hot.

        With `bulk` only the caller's bounds count, not those of the configuration for consumers.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, self._corrected(offset, 0))
        low, high = queue.min_for(self._log.start), queue.next_offset
        result = GetResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, low, high)
        if high == 0:
            result.status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
            result.next_begin_offset = self._corrected(offset, 0)
        elif offset < low:
            result.status = GetMessageStatus.OFFSET_TOO_SMALL
            result.next_begin_offset = self._corrected(offset, low)
        elif offset == high:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif offset > high:
            result.status = GetMessageStatus.OFFSET_OVERFLOW_BADLY
            result.next_begin_offset = self._corrected(offset, high)
        elif accept is not None:
            self._choose_filtered(queue, result, count_max, bytes_max, accept, bulk)
        else:
            self._choose(queue, result, count_max, bytes_max, tags, bulk)
        return result

    def _corrected(self, asked: int, right: int) -> int:
        """Return the offset a reader is sent to.

        A slave does not correct its readers. RocketMQ: DefaultMessageStore.nextOffsetCorrection.
        """
        return asked if self._config.broker_role is BrokerRole.SLAVE else right

    def _choose(
        self,
        queue: ConsumeQueue,
        result: GetResult,
        count_max: int,
        bytes_max: int,
        tags: TagFilter,
        bulk: bool,
    ) -> None:
        offset = result.next_begin_offset
        scan_max = max(max(self._limits.scan_units, count_max), 1)
        # Without a filter as many units suffice as messages are wanted, unless all of them are empty places.
        window = scan_max if tags is not None else max(count_max, 1)
        hot_from = self._log.end - self.hot_bytes
        chosen = self._select(queue, offset, window, count_max, bytes_max, tags, bulk)
        if chosen is not None and not chosen.count and window < scan_max:
            chosen = self._select(queue, offset, scan_max, count_max, bytes_max, tags, bulk)
        self._serve(queue, result, chosen, None, hot_from)

    def _choose_filtered(
        self,
        queue: ConsumeQueue,
        result: GetResult,
        count_max: int,
        bytes_max: int,
        accept: PropertyFilter,
        bulk: bool,
    ) -> None:
        """Choose every record that may have to be looked at; the sieve holds the bounds of the pull."""
        limits = self._limits
        window = max(max(limits.scan_units, count_max), 1)
        data = queue.units(result.next_begin_offset, window)
        hot_from = self._log.end - self.hot_bytes
        is_hot = first_physical(data) >= hot_from
        sieve = Sieve(
            accept,
            count_max if bulk else limits.count(count_max, is_hot),
            bytes_max if bulk else limits.bytes(bytes_max, is_hot),
        )
        chosen = (
            select_units(data, 0, None, window, LOOKED_AT_BYTES_MAX, self._log.start, scan_max=window) if data else None
        )
        self._serve(queue, result, chosen, sieve, hot_from)

    def _serve(
        self, queue: ConsumeQueue, result: GetResult, chosen: Selection | None, sieve: Sieve | None, hot_from: int
    ) -> None:
        offset = result.next_begin_offset
        if chosen is None:
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            per_file = queue.units_per_file
            result.next_begin_offset = self._corrected(offset, offset - offset % per_file + per_file)
            return
        result.next_begin_offset = offset + chosen.next_unit
        if not chosen.count:
            return
        result.fall_behind = self._log.end - chosen.physical_offset(chosen.count - 1)
        wanted = _Wanted(queue, offset, chosen, sieve)
        if chosen.physical_offset(0) >= hot_from:
            self._serve_hot(wanted, result)
        elif not self._copy_cached(wanted, result):
            result.status = GetMessageStatus.COLD
            result.cold = wanted

    def _select(
        self,
        queue: ConsumeQueue,
        offset: int,
        window: int,
        count_max: int,
        bytes_max: int,
        tags: TagFilter,
        bulk: bool,
    ) -> Selection | None:
        limits = self._limits
        data = queue.units(offset, window)
        if not data:
            return None
        if bulk:
            codes = _codes(tags, data)
            return select_units(data, 0, codes, count_max, bytes_max, self._log.start, scan_max=window)
        is_hot = self._log.end - first_physical(data) <= self.near_bytes
        return select_units(
            data,
            0,
            _codes(tags, data),
            limits.count(count_max, is_hot),
            limits.bytes(bytes_max, is_hot),
            self._log.start,
            scan_max=window,
        )

    @property
    def near_bytes(self) -> int:
        """Return how far behind the log's end a reader still reads from memory. RocketMQ: checkInDiskByCommitOffset."""
        return self.memory_bytes * self._limits.memory_percent // 100 or self.hot_bytes

    def _serve_hot(self, wanted: _Wanted, result: GetResult) -> None:
        if wanted.sieve is not None:
            self._sift_hot(wanted, wanted.sieve, result)
        elif wanted.chosen.size_total <= wanted.chosen.count * _COPY_SIZE_MEAN:
            self._copy_hot(wanted, result)
        else:
            self._slice_hot(wanted, result)

    def _copy_hot(self, wanted: _Wanted, result: GetResult) -> None:
        """Copy small records out of the mapping, then check them."""
        segments, chosen, queue = self._log.segments, wanted.chosen, wanted.queue
        got = Gathered()
        first = 0
        while first < chosen.count:
            found = segments.mapped(chosen.physical_offset(first))
            if found is None:
                got.wrong.append(first)
                first += 1
                continue
            first = gather_mapped(
                got,
                found[1],
                found[0],
                segments.segment_size,
                chosen,
                first,
                queue.queue_id,
                wanted.offset,
                queue.topic,
                self.trusted_from,
            )
        self._take(wanted, result, got)

    def _copy_cached(self, wanted: _Wanted, result: GetResult) -> bool:
        """Copy old records that the system still has in memory. Return False where it has not all of them."""
        segments, chosen = self._log.segments, wanted.chosen
        if chosen.size_total > _CACHED_SIZE_MAX:
            return False
        taken: list[_Stretch] = []
        first = 0
        while first < chosen.count:
            stop, size = dense_stretch(chosen, first, segments.segment_size)
            place = segments.file_at(chosen.physical_offset(first))
            data = None if place is None else self._disk.read_cached(place[0], place[1], size)
            if data is None:
                return False
            taken.append(_Stretch(first, stop, data))
            first = stop
        self._pick(wanted, result, taken)
        return True

    def _pick(self, wanted: _Wanted, result: GetResult, taken: list[_Stretch]) -> None:
        chosen, queue = wanted.chosen, wanted.queue
        got = Gathered()
        for stretch in taken:
            gather_records(
                got,
                stretch.data,
                chosen.physical_offset(stretch.first),
                chosen,
                stretch.first,
                stretch.stop,
                queue.queue_id,
                wanted.offset,
                queue.topic,
                self.trusted_from,
            )
        self._take(wanted, result, got)

    def _take(self, wanted: _Wanted, result: GetResult, got: Gathered) -> None:
        chosen = wanted.chosen
        if not got.wrong and chosen.scattered is None:
            result.took_run(wanted.offset + chosen.first, chosen.count)
        else:
            wrong = set(got.wrong)
            for number in range(chosen.count):
                if number in wrong:
                    self._note(result, chosen.physical_offset(number), chosen.size(number))
                else:
                    result.took(wanted.offset + chosen.unit(number))
        self._finish(result, got.pieces, got.size)

    def _slice_hot(self, wanted: _Wanted, result: GetResult) -> None:
        """Take large records as slices of the mapping."""
        chosen = wanted.chosen
        records: list[bytes | memoryview] = []
        for unit, physical, size in zip(chosen.units, chosen.physical_offsets, chosen.sizes, strict=True):
            view = self._log.segments.view(physical, size)
            if view is not None and self._is_right(wanted, unit, physical, view, physical < self.trusted_from):
                records.append(view)
                result.took(wanted.offset + unit)
            else:
                self._note(result, physical, size)
        self._finish(result, records, _size_of(records))

    def _sift_hot(self, wanted: _Wanted, sieve: Sieve, result: GetResult) -> None:
        """Look at records in the mapping until there are enough."""
        chosen = wanted.chosen
        records: list[bytes | memoryview] = []
        for unit, physical, size in zip(chosen.units, chosen.physical_offsets, chosen.sizes, strict=True):
            if sieve.is_full(size):
                result.next_begin_offset = wanted.offset + unit
                break
            view = self._log.segments.view(physical, size)
            if view is None or not self._is_right(wanted, unit, physical, view, physical < self.trusted_from):
                self._note(result, physical, size)
            elif sieve.takes(view):
                records.append(view)
                result.took(wanted.offset + unit)
        result.filtered = sieve.filtered
        self._finish(result, records, _size_of(records))

    def _is_right(self, wanted: _Wanted, unit: int, physical: int, record: bytes | memoryview, verify: bool) -> bool:
        """Tell whether these bytes are the record that the unit means, whole."""
        head = head_of(record)
        queue = wanted.queue
        if head is None or not head.is_at(physical, len(record), queue.queue_id, wanted.offset + unit):
            return False
        if topic_of(record) != queue.topic:
            return False
        return not verify or check_record(bytes(record), 0, physical, VERIFY_RECORD) == len(record)

    def _note(self, result: GetResult, physical: int, size: int) -> None:
        if physical >= self._log.start:
            result.damaged += 1
            self._report(Damage(physical, physical + size, BAD_OFFSET))
        else:
            result.removed += 1

    def _finish(self, result: GetResult, records: list[bytes | memoryview], size: int) -> None:
        result.size = size
        if not records:
            result.status = (
                GetMessageStatus.NO_MATCHED_MESSAGE
                if result.damaged or result.filtered
                else GetMessageStatus.MESSAGE_WAS_REMOVING
            )
        else:
            result.status = GetMessageStatus.FOUND
            result.buffers = records

    # ---- cold ----

    def fetch(self, result: GetResult, done: Callable[[GetResult | StoreError], None]) -> None:
        """Complete a COLD result through the reader thread."""
        run_cold(self._collect(result), self._log.segments, self._disk, done)

    def fetch_now(self, result: GetResult) -> GetResult:
        """Complete a COLD result on this thread."""
        return run_now(self._collect(result), self._log.segments)

    def _collect(self, result: GetResult) -> Steps[GetResult]:
        wanted = result.cold
        if wanted is None:
            return result
        chosen, sieve = wanted.chosen, wanted.sieve
        records: list[bytes | memoryview] = []
        base, data = 0, b""
        for number in range(chosen.count):
            physical, size = chosen.physical_offset(number), chosen.size(number)
            if sieve is not None and sieve.is_full(size):
                result.next_begin_offset = wanted.offset + chosen.unit(number)
                break
            if not base <= physical <= physical + size <= base + len(data):
                base, length = _stretch(chosen, number, self._log.segments.segment_size)
                data = yield base, length
            record = data[physical - base : physical - base + size]
            # The record was read from the disk, where it may have rotted since it was written.
            queue, queue_offset = wanted.queue, wanted.offset + chosen.unit(number)
            if not (
                len(record) == size
                and is_record_of(record, 0, size, physical, queue.queue_id, queue_offset, queue.topic)
                and check_record(record, 0, physical, VERIFY_RECORD) == size
            ):
                self._note(result, physical, size)
            elif sieve is None or sieve.takes(record):
                records.append(record)
                result.took(queue_offset)
        if sieve is not None:
            result.filtered = sieve.filtered
        result.cold = None
        self._finish(result, records, _size_of(records))
        return result


def _stretch(chosen: Selection, number: int, segment_size: int) -> tuple[int, int]:
    """Return place and size of one read for a record and for those that follow closely within its segment."""
    base = chosen.physical_offset(number)
    end = base + chosen.size(number)
    limit = base - base % segment_size + segment_size
    for later in range(number + 1, chosen.count):
        physical, size = chosen.physical_offset(later), chosen.size(later)
        if not end <= physical <= end + _COLD_GAP_MAX:
            break
        if physical + size > limit or physical + size - base > _COLD_READ_MAX:
            break
        end = physical + size
    return base, end - base


def _size_of(records: list[bytes | memoryview]) -> int:
    return sum(map(len, records))


def _codes(tags: TagFilter, units: bytes) -> set[int] | None:
    """Return a filter as the set of codes that pass: a predicate is asked once for each code that occurs."""
    if tags is None:
        return None
    if callable(tags):
        return {code for code in {unit[2] for unit in decode_units(units)} if tags(code)}
    return set(tags)
