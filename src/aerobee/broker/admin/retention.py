"""The driver of `store/retention.py`: it measures the disk, deletes segments, and stops and resumes writes.

The broker calls `tick` often; nothing happens before the time that the machine gave. RocketMQ: CleanCommitLogService.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from aerobee.errors import StoreError
from aerobee.runtime.seams import Clock
from aerobee.store.config import StoreConfig
from aerobee.store.messagestore import MessageStore
from aerobee.store.readonly import MANIFESTS, manifest_directory, parse_manifest_name
from aerobee.store.recordhead import HEAD_SIZE, head_of
from aerobee.store.retention import (
    AcceptWrites,
    DeleteSegment,
    DiskFacts,
    Effect,
    Reason,
    RefuseWrites,
    Retention,
    SegmentFacts,
    archived_until,
)
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("broker.store")


class RetentionDriver:
    """The driver of one store's retention. `local_hour` returns the hour of the local day at a wall time."""

    def __init__(
        self, store: MessageStore, clock: Clock, local_hour: Callable[[int], int], broker_name: str = ""
    ) -> None:
        self.retention = Retention(store.config)
        self._store = store
        self._clock = clock
        self._local_hour = local_hour
        self._broker_name = broker_name
        self._warn = RateLimitedLog(_log, clock)
        # The store time at which the log went on in the next segment, by the segment's start.
        self._left_ms: dict[int, int] = {}
        self._refused_full = store.counters.refused_full
        # Where the archive ended at the last look; None without an archive.
        self.archived: int | None = None

    def reconfigure(self, config: StoreConfig) -> None:
        self.retention.reconfigure(config)

    def delete_by_hand(self) -> None:
        self.retention.delete_by_hand()

    def tick(self, now_s: float) -> None:
        full = self._store.counters.refused_full != self._refused_full
        self._refused_full = self._store.counters.refused_full
        if full and not self.retention.refusing:
            self._perform(self.retention.disk_full(self._used_ratio()))
        if now_s >= self.retention.next_s and self._store.is_open and self._store.fenced is None:
            self._perform(self.retention.step(self._facts(now_s)))

    def _used_ratio(self) -> float:
        """Return the used share of the disk; of the fuller file system, where the log has one of its own."""
        store = self._store
        return max(store.disk.used_ratio(path) for path in {store.root, store.log.segments.directory})

    def _facts(self, now_s: float) -> DiskFacts:
        now_ms = self._clock.now_ms()
        segments = self._segments()
        self.archived = self._archived_offset(segments)
        return DiskFacts(now_s, now_ms, self._local_hour(now_ms), self._used_ratio(), segments, self.archived)

    def _archived_offset(self, segments: list[SegmentFacts]) -> int | None:
        """Return where the archive ends; None without an archive. An archive that cannot be read counts as empty."""
        path = self.retention.archive_path
        if path is None or not segments:
            return None
        start = segments[0].start_offset
        try:
            names = self._store.disk.listdir(f"{path}/{MANIFESTS}/{manifest_directory(self._broker_name)}")
        except OSError as error:
            self._warn.warning("archive", "the archive cannot be read, so no segment is deleted", reason=error)
            return start
        return archived_until(start, filter(None, map(parse_manifest_name, names)))

    def _segments(self) -> list[SegmentFacts]:
        segments = self._store.log.segments
        starts = [start for start in segments.starts if start < self._store.log_end]
        found = [
            SegmentFacts(start, following, self._left_at(start, following)) for start, following in pairwise(starts)
        ]
        if starts:
            found.append(SegmentFacts(starts[-1], self._store.log_end, self._store.log.store_timestamp))
        self._left_ms = {one.start_offset: one.last_store_timestamp for one in found[:-1]}
        return found

    def _left_at(self, start: int, following: int) -> int:
        """Return the store time of the next segment's first record: no record of this segment is younger."""
        known = self._left_ms.get(start)
        if known is not None:
            return known
        head = head_of(self._store.read_log(following, HEAD_SIZE))
        return self._store.log.store_timestamp if head is None else head.store_timestamp

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case DeleteSegment():
                    self._delete(effect)
                case RefuseWrites():
                    used = f"{effect.used_ratio:.0%} of the disk is in use"
                    self._store.refuse_full(used)
                    self._warn.warning(
                        "full",
                        "messages are refused: the disk is full. Sends are accepted again once space is freed",
                        reason=used,
                        store=self._store.root,
                    )
                case AcceptWrites():
                    self._store.refuse_full(None)
                    self._warn.warning("space", "messages are accepted again", used_ratio=round(effect.used_ratio, 3))

    def _delete(self, effect: DeleteSegment) -> None:
        start, end = effect.segment.start_offset, effect.segment.end_offset
        path = self._store.log.segments.path_of(start)
        try:
            gone = self._store.delete_oldest_segment()
        except (StoreError, OSError) as error:
            self._warn.warning("delete", "a segment could not be deleted", offset=start, reason=error)
            return
        if gone and effect.reason is not Reason.DISK_FULL:
            _log.info(
                "a segment was deleted", file=path, first_offset=start, end_offset=end, reason=effect.reason.value
            )
        elif gone:
            _log.warning(
                "messages were deleted to make room, whether consumed or not (cleanFileForciblyEnable=false refuses"
                " sends instead)",
                file=path,
                first_offset=start,
                end_offset=end,
                last_stored_ms=effect.segment.last_store_timestamp,
                reason=f"{effect.used_ratio:.0%} of the disk is in use",
            )
        else:
            self._warn.warning("stay", "a segment is kept: it is not yet dispatched or flushed", offset=start)
