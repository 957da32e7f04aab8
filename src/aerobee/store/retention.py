"""Which segments of the log are deleted, and when writing stops for lack of space. A machine: facts in, effects out.

    disk in use            what happens (percent, all configurable)
    up to 75               expired segments are deleted in the hours of `deleteWhen`, or when asked for by hand
    above 75               expired segments are deleted at any hour
    above 85               the oldest segments are deleted though not expired (`cleanFileForciblyEnable`)
    above 90, or ENOSPC    the same, and messages are refused until the disk is back at 85

With `logMaxBytes` the oldest segments are also deleted while the log is larger than that, at any hour.

A segment is expired `fileReservedTime` hours after its last message, by store time. At most `deleteFileBatchMax` are
deleted in a round, one every `deleteCommitLogFilesInterval`; the disk is looked at between any two. Deletion goes from
the oldest segment on without a gap. It never takes the last segment, nor one that the archive, if there is one, does
not hold yet. RocketMQ: DefaultMessageStore.CleanCommitLogService, MappedFileQueue.deleteExpiredFileByTime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aerobee.store.config import StoreConfig

# A deletion by hand is tried in this many rounds. RocketMQ: MAX_MANUAL_DELETE_FILE_TIMES.
_MANUAL_ROUNDS: Final = 20
# While refusing, the disk is looked at this often, so that writing resumes within seconds.
_REFUSING_INTERVAL_S: Final = 1.0
_HOUR_MS: Final = 3_600_000


class Reason(Enum):
    """Why a segment is deleted."""

    EXPIRED = "expired"
    DISK_FULL = "disk full"
    LOG_LARGE = "the log is larger than logMaxBytes"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment: where it begins and ends, and the store time of its last record."""

    start_offset: int
    end_offset: int
    last_store_timestamp: int


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """How things stand at one moment."""

    monotonic_s: float  # paces the work
    now_ms: int  # decides what is expired
    hour: int  # of the local day
    used_ratio: float
    segments: Sequence[SegmentFacts]  # oldest first; the last is being written
    archived_offset: int | None = None  # where the archive ends, if there is one


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """Delete the oldest segment."""

    segment: SegmentFacts
    reason: Reason
    used_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class RefuseWrites:
    """Answer sends with "disk full" from now on."""

    used_ratio: float


@dataclass(frozen=True, slots=True)
class AcceptWrites:
    """Accept sends again: there is space."""

    used_ratio: float


def archived_until(start_offset: int, archived: Iterable[tuple[int, int]]) -> int:
    """Return how far an archive holds the log from `start_offset` on without a gap. `segments` are its (start, end)."""
    ends = dict(archived)
    while start_offset in ends and ends[start_offset] > start_offset:
        start_offset = ends[start_offset]
    return start_offset


Effect = DeleteSegment | RefuseWrites | AcceptWrites


class Retention:
    """Decides what to delete. Call `step` whenever `next_s` (monotonic) has come, and perform what it returns."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._manual_rounds = 0
        self._left_in_round = 0
        self._round_due_s = 0.0
        self.refusing = False
        self.next_s = 0.0

    @property
    def archive_path(self) -> str | None:
        """Return the archive without which nothing may be deleted, None where there is none."""
        return self._config.archive_path or None

    def reconfigure(self, config: StoreConfig) -> None:
        """Take settings that changed at run time."""
        self._config = config

    def delete_by_hand(self) -> None:
        """Delete expired segments whatever the hour. RocketMQ: executeDeleteFilesManually."""
        self._manual_rounds = _MANUAL_ROUNDS
        self._round_due_s = self.next_s = 0.0

    def look_again(self) -> None:
        """Look again with the next step, whenever that was meant to be: the clock was set."""
        self._round_due_s = self.next_s = 0.0

    def disk_full(self, used_ratio: float) -> list[Effect]:
        """Note that a write found no space, whatever the share in use."""
        self._round_due_s = self.next_s = 0.0
        if self.refusing:
            return []
        self.refusing = True
        return [RefuseWrites(used_ratio)]

    def step(self, facts: DiskFacts) -> list[Effect]:
        """Return what to do now; at most one deletion."""
        config = self._config
        effects = self._watch(facts.used_ratio)
        if facts.monotonic_s >= self._round_due_s:
            self._round_due_s = facts.monotonic_s + config.clean_resource_interval_ms / 1000
            self._left_in_round = config.delete_file_batch_max if self._round_wanted(facts) else 0
        victim = self._victim(facts) if self._left_in_round else None
        if victim is None:
            self._left_in_round = 0
            self.next_s = self._round_due_s
        else:
            effects.append(victim)
            self._left_in_round -= 1
            pause_s = config.delete_commit_log_files_interval_ms / 1000
            self.next_s = facts.monotonic_s + pause_s if self._left_in_round else self._round_due_s
        if self.refusing:
            self.next_s = min(self.next_s, facts.monotonic_s + _REFUSING_INTERVAL_S)
        return effects

    def _watch(self, used_ratio: float) -> list[Effect]:
        config = self._config
        if used_ratio > config.disk_space_warning_level_ratio / 100:
            if not self.refusing:
                self.refusing = True
                return [RefuseWrites(used_ratio)]
        elif self.refusing and used_ratio <= config.disk_space_clean_forcibly_ratio / 100:
            self.refusing = False
            return [AcceptWrites(used_ratio)]
        return []

    def _round_wanted(self, facts: DiskFacts) -> bool:
        by_hand = self._manual_rounds > 0
        if by_hand:
            self._manual_rounds -= 1
        crowded = self.refusing or facts.used_ratio > self._config.disk_max_used_space_ratio / 100
        at_once = by_hand or crowded or self._is_large(facts) or self._forced(facts)
        return at_once or facts.hour in self._config.delete_hours

    def _is_large(self, facts: DiskFacts) -> bool:
        most = self._config.log_max_bytes
        return (
            most > 0 and bool(facts.segments) and facts.segments[-1].end_offset - facts.segments[0].start_offset > most
        )

    def _forced(self, facts: DiskFacts) -> bool:
        config = self._config
        return config.clean_file_forcibly_enable and (facts.used_ratio > config.disk_space_clean_forcibly_ratio / 100)

    def _victim(self, facts: DiskFacts) -> DeleteSegment | None:
        if len(facts.segments) < 2:
            return None
        oldest = facts.segments[0]
        if facts.archived_offset is not None and oldest.end_offset > facts.archived_offset:
            return None
        if facts.now_ms >= oldest.last_store_timestamp + self._config.file_reserved_time_hours * _HOUR_MS:
            return DeleteSegment(oldest, Reason.EXPIRED)
        if self._forced(facts):
            return DeleteSegment(oldest, Reason.DISK_FULL, facts.used_ratio)
        return DeleteSegment(oldest, Reason.LOG_LARGE) if self._is_large(facts) else None
