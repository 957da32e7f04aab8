"""The plan of a read: how far the log reaches, which segments are needed, and where they are cut into stretches.

A log that is being written ends where the broker last synced it. Any other log ends at the first record that is not
whole or has a wrong checksum, as recovery decides. Cuts inside a segment come from the consume queues, whose units
point to records. Without consume queues, the segment is read from record to record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from struct import Struct
from typing import Final

from aerobee.errors import StoreError
from aerobee.hot.log.layout import (
    BORNHOST_V6,
    FIXED_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEAD_SIZE,
    RECORD_STORE_TIMESTAMP_POS,
    RECORD_SYS_FLAG_POS,
    SIZE_AND_MAGIC_FORMAT,
    UNIT_RECORD_SIZE_POS,
    UNIT_SIZE,
    UNIT_TAGS_CODE_POS,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.record import NEED_MORE, VERIFY_NONE, VERIFY_RECORD, check_record
from aerobee.runtime.lockprobe import lock_holder
from aerobee.runtime.seams import Disk, File
from aerobee.store.readonly import deleted_topics, durable_end
from aerobee.store.segment import SegmentFile, list_segments
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq_store.settings import ScanSettings, WantedRecords, require_log

_HEAD_SIZE: Final = 128
_READ_BYTES: Final = 8 << 20
_LISTING_TRIES: Final = 10
# Store times do not decrease along the log, unless the clock was set back under Apache's broker.
_CLOCK_MARGIN_MS: Final = 600_000
# How many queues are searched for a record near a place, and how near is good enough.
_QUEUES_ASKED: Final = 64
_NEAR_BYTES: Final = 4 << 20
_LONG: Final = Struct(">q").unpack_from
_SIZE_AND_MAGIC: Final = Struct(SIZE_AND_MAGIC_FORMAT).unpack_from


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A part of one segment. It begins and ends at a record, unless `stop` is the end of the segment."""

    path: str
    segment_start: int
    segment_end: int
    start: int
    stop: int
    # Topics that were deleted after this stretch began. Their records below these places are skipped.
    deleted: tuple[tuple[bytes, int], ...] = ()


def stretch_of(segment: SegmentFile, start: int, stop: int, deleted: Mapping[bytes, int]) -> SegmentPart:
    """Return a part of a segment, with the deletions that concern it."""
    later = tuple((topic, place) for topic, place in deleted.items() if place > start)
    return SegmentPart(segment.path, segment.start, segment.end, start, stop, later)


def segments_of(disk: Disk, directory: str) -> list[SegmentFile]:
    """Return the segments, lowest first, even if a broker deletes some meanwhile."""
    require_log(disk, directory)
    for _ in range(_LISTING_TRIES):
        try:
            return [segment for segment in list_segments(disk, directory) if segment.size]
        except FileNotFoundError:
            continue
    raise StoreError(f"{directory} changes faster than it can be listed")


def plan(disk: Disk, settings: ScanSettings) -> list[SegmentPart]:
    """Return the stretches that the tasks read, in the order of the log."""
    # The mark is read before the listing, so that the listing has all that it names.
    synced = durable_end(disk, settings.root)
    is_live = lock_holder(f"{settings.root}/lock") is not None
    segments = segments_of(disk, settings.log_directory)
    deleted = deleted_topics(disk, settings.root)
    if settings.archived and settings.fail_on_data_loss:
        _refuse_gaps(settings, segments)
    firsts = [first_store_ms(disk, segment) for segment in segments]
    boundaries: Callable[[SegmentFile, int], list[int]] = _Boundaries(disk, settings.root, settings.split_bytes).inside
    result: list[SegmentPart] = []
    for index, segment in enumerate(segments):
        if firsts[index] is None and index == len(segments) - 1:
            continue  # this segment was made in advance and is empty
        later = next((first for first in firsts[index + 1 :] if first is not None), None)
        if _is_archived(settings, segment) or not _may_hold(settings.wanted, firsts[index], later):
            continue
        stop = segment.end
        if later is None:
            stop = log_end(disk, segment, synced, is_live)
        cuts = [segment.start, *boundaries(segment, stop), stop]
        result += [stretch_of(segment, start, end, deleted) for start, end in pairwise(cuts) if start < end]
    return result


def _is_archived(settings: ScanSettings, segment: SegmentFile) -> bool:
    return (segment.start, segment.end) in settings.archived


def _refuse_gaps(settings: ScanSettings, segments: list[SegmentFile]) -> None:
    """Raise StoreError if there is a hole between the archive and the log."""
    pieces = sorted({*settings.archived, *((one.start, one.end) for one in segments)})
    for (_, end), (start, _) in pairwise(pieces):
        if end < start:
            raise StoreError(
                f"neither the archive nor {settings.log_directory} holds the log from {end} to {start}",
                hint="read again if segments were archived just now; failOnDataLoss=false goes on without them",
            )


def log_end(disk: Disk, segment: SegmentFile, synced: int | None, is_live: bool) -> int:
    """Return the end of a log whose last segment with records is this one."""
    if is_live and synced is not None:
        return min(max(synced, segment.start), segment.end)
    file = disk.open(segment.path, write=False)
    try:
        return _sound_end(file, segment, synced or 0)
    finally:
        file.close()


def _sound_end(file: File, segment: SegmentFile, synced: int) -> int:
    """Return the end of the whole records. Damage below the synced end is no end; the reader reports it."""
    offset, window = segment.start, _READ_BYTES
    while offset < segment.end:
        data = file.read(offset - segment.start, min(window, segment.end - offset))
        verify = VERIFY_NONE if offset + len(data) <= synced else VERIFY_RECORD
        _, consumed, reason = r.scan(data, offset, verify)
        if not consumed and reason == NEED_MORE and len(data) == window and window < segment.size:
            window *= 2
            continue
        offset += consumed
        window = _READ_BYTES
        if not consumed or reason != NEED_MORE:
            break
    return max(offset, min(synced, segment.end))


def first_store_ms(disk: Disk, segment: SegmentFile) -> int | None:
    """Return the store time of the first record of a segment, or None if there is no record or no segment."""
    try:
        file = disk.open(segment.path, write=False)
    except FileNotFoundError:
        return None
    try:
        head = file.read(0, _HEAD_SIZE)
    finally:
        file.close()
    if len(head) < FIXED_SIZE or _SIZE_AND_MAGIC(head)[1] not in (MAGIC_V1, MAGIC_V2):
        return None
    flags = int.from_bytes(head[RECORD_SYS_FLAG_POS:RECORD_HEAD_SIZE], "big")
    at = RECORD_STORE_TIMESTAMP_POS + (V6_HOST_EXTRA if flags & BORNHOST_V6 else 0)
    found: int = _LONG(head, at)[0]
    return found


def _may_hold(wanted: WantedRecords, first_ms: int | None, later_ms: int | None) -> bool:
    if wanted.topics is not None and not wanted.topics:
        return False
    if first_ms is not None and wanted.until_ms is not None and first_ms - _CLOCK_MARGIN_MS >= wanted.until_ms:
        return False
    return not (later_ms is not None and wanted.from_ms is not None and later_ms + _CLOCK_MARGIN_MS < wanted.from_ms)


class _Boundaries:
    """Return places of records, about `spacing` bytes apart."""

    def __init__(self, disk: Disk, root: str, spacing: int) -> None:
        self._disk = disk
        self._spacing = spacing
        self._queues: list[str] | None = None
        self._root = f"{root}/consumequeue"

    def inside(self, segment: SegmentFile, stop: int) -> list[int]:
        """Return the places in one segment, between its start and `stop`."""
        places = list(range(segment.start + self._spacing, stop - self._spacing // 2, self._spacing))
        if not places:
            return []
        file = self._disk.open(segment.path, write=False)
        try:
            found = [self._near(place, min(place + self._spacing, stop), file, segment) for place in places]
            if any(one is not None for one in found):
                return sorted({one for one in found if one is not None})
            return self._walked(file, segment, places)
        except FileNotFoundError:
            return []
        finally:
            file.close()

    def _near(self, place: int, limit: int, file: File, segment: SegmentFile) -> int | None:
        best: int | None = None
        for directory in self._directories():
            found = _first_unit(self._disk, directory, place)
            if found is None or not place <= found < (limit if best is None else best):
                continue
            # A queue may point to what recovery will cut off, so each place is verified in the log.
            if check_record(file.read(found - segment.start, 32 << 10), 0, found, VERIFY_NONE) >= 0:
                best = found
                if best - place < _NEAR_BYTES:
                    break
        return best

    def _directories(self) -> list[str]:
        if self._queues is None:
            self._queues = []
            for topic in self._disk.listdir(self._root):
                for queue in self._disk.listdir(f"{self._root}/{topic}") if self._is_dir(topic) else []:
                    if queue.isdecimal() and len(self._queues) < _QUEUES_ASKED:
                        self._queues.append(f"{self._root}/{topic}/{queue}")
        return self._queues

    def _is_dir(self, topic: str) -> bool:
        return self._disk.is_dir(f"{self._root}/{topic}")

    def _walked(self, file: File, segment: SegmentFile, places: list[int]) -> list[int]:
        found: list[int] = []
        view = file.view()
        at, last = 0, segment.size - FIXED_SIZE
        wanted = iter(places)
        place: int | None = next(wanted, None)
        while at <= last and place is not None:
            if segment.start + at >= place:
                found.append(segment.start + at)
                place = next(wanted, None)
            size, magic = _SIZE_AND_MAGIC(view, at)
            if magic not in (MAGIC_V1, MAGIC_V2) or size < FIXED_SIZE:
                break
            at += size
        del view
        return found


def _first_unit(disk: Disk, directory: str, place: int) -> int | None:
    """Return the first physical offset of a queue at or above `place`. Units are in the order of the log."""
    try:
        files = list_segments(disk, directory)
        for file in files:
            found = _search(disk, file, place)
            if found is not None:
                return found
    except FileNotFoundError:
        pass  # it was deleted with its segment meanwhile
    return None


def _search(disk: Disk, queue_file: SegmentFile, place: int) -> int | None:
    file = disk.open(queue_file.path, write=False)
    try:
        units = _Units(file, queue_file.size // UNIT_SIZE)
        index = bisect_left(units, place)
        return units[index] if index < len(units) and units[index] < _Units.UNWRITTEN else None
    finally:
        file.close()


class _Units:
    """The physical offsets of a queue file, for bisect. A unit that is not written has an offset above all others."""

    UNWRITTEN: Final = 1 << 62

    def __init__(self, file: File, count: int) -> None:
        self._file = file
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        unit = self._file.read(index * UNIT_SIZE, UNIT_SIZE)
        offset = int.from_bytes(unit[:UNIT_RECORD_SIZE_POS], "big", signed=True)
        size = int.from_bytes(unit[UNIT_RECORD_SIZE_POS:UNIT_TAGS_CODE_POS], "big", signed=True)
        if size == 0x7FFFFFFF and offset == 0:
            return -1  # such units fill the file of a queue up to where the queue begins
        return offset if size > 0 else self.UNWRITTEN

    def __iter__(self) -> Iterator[int]:
        return (self[index] for index in range(self._count))


def narrowed(settings: ScanSettings, wanted: WantedRecords) -> ScanSettings:
    """Return settings for the records that both want."""
    mine = settings.wanted
    topics = mine.topics if wanted.topics is None else wanted.topics
    if mine.topics is not None and wanted.topics is not None:
        topics = mine.topics & wanted.topics
    starts = [value for value in (mine.from_ms, wanted.from_ms) if value is not None]
    ends = [value for value in (mine.until_ms, wanted.until_ms) if value is not None]
    return replace(settings, wanted=WantedRecords(topics, max(starts) if starts else None, min(ends) if ends else None))
