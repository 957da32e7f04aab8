"""The reading of one stretch of a segment: large reads, a scan, and filters before records are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from aerobee.errors import CorruptLogError, StoreError
from aerobee.hot.log.layout import RECORD_MAGIC_POS
from aerobee.hot.log.record import BAD_SIZE, BLANK, NEED_MORE, VERIFY_RECORD, ZERO, describe
from aerobee.runtime.process import keep_freed_memory
from aerobee.runtime.seams import Disk, File
from aerobee.store.segment import find_sound
from aerobee.telemetry.stdlog import get_log
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq.columns.decode import BadMessageError, cut
from pyspark_rocketmq.columns.rows import Ints
from pyspark_rocketmq_store.planning import SegmentPart
from pyspark_rocketmq_store.settings import ScanSettings, WantedRecords

_READ_BYTES: Final = 4 << 20
# A larger record is reported as damage.
_RECORD_BYTES_MAX: Final = 256 << 20
# Each topic costs a pass over the rows. If more topics are wanted, those of the rows are found first.
_LOOKED_FOR_MAX: Final = 32
_log = get_log("spark.store")


def read_stretch(
    disk: Disk, settings: ScanSettings, stretch: SegmentPart, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted messages of a stretch as Arrow batches."""

    def on_bad(error: BadMessageError) -> None:
        damage = CorruptLogError(stretch.path, error.physical_offset - stretch.segment_start, error.reason)
        if not settings.skip_bad:
            raise damage
        _log.warning("a message was skipped", reason=str(damage))

    for data, rows in read_rows(disk, settings, stretch):
        rows = sieve(data, rows, settings.wanted)
        if len(rows):
            yield from cut(data, rows, columns, broker=settings.broker, on_bad=on_bad)


def sieve(data: bytes, rows: Ints, wanted: WantedRecords) -> Ints:
    """Return the rows that are wanted."""
    if wanted.topics is not None:
        rows = rows[r.of_topics(data, rows, wanted.topics)]
    if wanted.from_ms is not None or wanted.until_ms is not None:
        stored = rows[:, r.STORE_TIMESTAMP]
        keep = np.ones(len(rows), np.bool_)
        if wanted.from_ms is not None:
            keep &= stored >= wanted.from_ms
        if wanted.until_ms is not None:
            keep &= stored < wanted.until_ms
        rows = rows[keep]
    return rows


def read_rows(disk: Disk, settings: ScanSettings, stretch: SegmentPart) -> Iterator[tuple[bytes, Ints]]:
    """Yield (bytes, table of the records in them) to the end of the stretch, without records of deleted topics."""
    keep_freed_memory()
    try:
        file = disk.open(stretch.path, write=False)
    except FileNotFoundError:
        if settings.fail_on_data_loss:
            raise _gone(stretch) from None
        _log.warning("a segment is gone and was skipped", path=stretch.path)
        return
    try:
        for data, rows in _walk(file, settings, stretch):
            rows = without_deleted(data, rows, stretch.deleted)
            if len(rows):
                yield data, rows
    finally:
        file.close()


def without_deleted(data: bytes, rows: Ints, deleted: Sequence[tuple[bytes, int]]) -> Ints:
    """Return the rows, in log order, that were not deleted with their topic."""
    if not deleted or not len(rows):
        return rows
    if len(deleted) > _LOOKED_FOR_MAX:
        places = zip(rows[:, r.TOPIC_AT].tolist(), rows[:, r.TOPIC_SIZE].tolist(), strict=True)
        present = {data[at : at + size] for at, size in places}
        deleted = [one for one in deleted if one[0] in present]
    first, last = rows[[0, -1], r.PHYSICAL_OFFSET].tolist()
    # Few topics are deleted in the middle of these rows. All the others can be found in one pass.
    gone = r.of_topics(data, rows, [topic for topic, place in deleted if place > last])
    for topic, place in deleted:
        if first < place <= last:
            gone |= r.of_topics(data, rows, [topic]) & (rows[:, r.PHYSICAL_OFFSET] < place)
    return rows[~gone]


def _gone(stretch: SegmentPart) -> StoreError:
    return StoreError(
        f"segment {stretch.path} is gone: deleted since the read was planned",
        hint="read again, or set option failOnDataLoss to false to go on without it",
    )


def _walk(file: File, settings: ScanSettings, stretch: SegmentPart) -> Iterator[tuple[bytes, Ints]]:
    offset, window = stretch.start, _READ_BYTES
    while offset < stretch.stop:
        room = stretch.stop - offset
        data = file.read(offset - stretch.segment_start, min(window, room))
        rows, consumed, reason = r.scan(data, offset, settings.verify)
        if consumed:
            yield data, rows
            offset += consumed
            window = _READ_BYTES
            if reason == NEED_MORE:
                continue
        elif reason == NEED_MORE and len(data) == window < min(room, _RECORD_BYTES_MAX):
            window *= 4
            continue
        if offset >= stretch.stop or (reason == BLANK and _is_rest(data[consumed:], offset, stretch)):
            return
        if reason == NEED_MORE:
            reason = BAD_SIZE
        following = _after_damage(file, settings, stretch, offset, reason)
        if following < 0:
            return
        offset, window = following, _READ_BYTES


def _is_rest(data: bytes, offset: int, stretch: SegmentPart) -> bool:
    """Tell whether the blank record reaches to the end of the segment."""
    return int.from_bytes(data[:RECORD_MAGIC_POS], "big") == stretch.segment_end - offset


def _after_damage(file: File, settings: ScanSettings, stretch: SegmentPart, offset: int, reason: int) -> int:
    """Return where to continue after damage: at the next sound record if the settings allow it. Else raise an error."""
    words = "zeros where a record should begin" if reason == ZERO else describe(reason)
    damage = CorruptLogError(stretch.path, offset - stretch.segment_start, words)
    if not settings.skip_bad:
        raise damage
    following = find_sound(_One(file, stretch), offset + 1, stretch.stop, verify=VERIFY_RECORD)
    skipped = (following if following >= 0 else stretch.stop) - offset
    _log.warning("damage was skipped", reason=str(damage), size=skipped)
    return following


class _One:
    """One segment as the source of bytes for `find_sound`."""

    def __init__(self, file: File, stretch: SegmentPart) -> None:
        self._file = file
        self._stretch = stretch

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset - self._stretch.segment_start, min(size, self._stretch.segment_end - offset))

    def next_data(self, offset: int) -> int:
        return self._stretch.segment_start + self._file.next_data(offset - self._stretch.segment_start)

    def segment_end(self, offset: int) -> int:
        inside = self._stretch.segment_start <= offset < self._stretch.segment_end
        return self._stretch.segment_end if inside else -1

    def next_segment(self, offset: int) -> int:
        return -1
