"""When to sync the log, and who waits for that. A machine: events in, what to do out; time is an argument.

This module owns the flushed offset, group commit (one sync serves every record written before it) and the list of
waiters, keyed by end offset, that serves flush and replicas alike. RocketMQ: CommitLog.FlushRealTimeService,
GroupCommitService.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aerobee.errors import StoreError
from aerobee.store.config import StoreConfig

PAGE_SIZE: Final = 4096
_WAITERS_LEAST: Final = 1024
Safe = Callable[[StoreError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When a sync is due."""

    sync_flush: bool
    interval_ms: int = 500
    least_pages: int = 4
    thorough_interval_ms: int = 10_000
    timed: bool = True


def policy_of(config: StoreConfig) -> FlushPolicy:
    """Return the policy that the settings ask for."""
    return FlushPolicy(
        sync_flush=config.sync_flush,
        interval_ms=config.flush_interval_commit_log_ms,
        least_pages=config.flush_commit_log_least_pages,
        thorough_interval_ms=config.flush_commit_log_thorough_interval_ms,
        timed=config.flush_commit_log_timed,
    )


class FlushMachine:
    """Answers every event with the offset to sync up to now, or None. At most one sync is under way."""

    def __init__(self, policy: FlushPolicy, end: int = 0) -> None:
        self.policy = policy
        self.written = end
        self.flushed = end
        self.syncing: int | None = None
        # Called when more of the log is synced, with its end.
        self.on_synced: Callable[[int], None] | None = None
        self._last_ms = 0
        self._last_thorough_ms = 0

    @property
    def confirmed(self) -> int:
        """Return how far the policy calls the log stored on this machine."""
        return self.flushed if self.policy.sync_flush else self.written

    def wrote(self, end: int) -> int | None:
        """Note that the log now ends at `end`."""
        self.written = end
        if self.policy.sync_flush:
            return self._start()
        if not self.policy.timed and end - self.flushed >= max(1, self.policy.least_pages) * PAGE_SIZE:
            return self._start()
        return None

    def tick(self, now_ms: int) -> int | None:
        """Note that time has passed."""
        if self.policy.sync_flush:
            return self._start()
        if now_ms - self._last_ms < self.policy.interval_ms:
            return None
        waiting = self.written - self.flushed
        if now_ms - self._last_thorough_ms >= self.policy.thorough_interval_ms:
            self._last_thorough_ms = now_ms
            least = 1
        else:
            least = max(1, self.policy.least_pages * PAGE_SIZE)
        self._last_ms = now_ms
        return self._start() if waiting >= least else None

    def synced(self) -> int | None:
        """Note that the sync under way has ended well. Another may be due for records written meanwhile."""
        if self.syncing is not None:
            self.flushed = max(self.flushed, min(self.syncing, self.written))
            self.syncing = None
            if self.on_synced is not None:
                self.on_synced(self.flushed)
        return self._start() if self.policy.sync_flush else None

    def flushed_to(self, end: int) -> None:
        """Note that someone else has synced the log up to `end`."""
        self.flushed = max(self.flushed, min(end, self.written))

    def truncated(self, end: int) -> None:
        """Note that the log was cut: the sync under way says nothing about what will be written behind the cut."""
        self.written = min(self.written, end)
        self.flushed = min(self.flushed, end)
        if self.syncing is not None:
            self.syncing = min(self.syncing, end)

    def _start(self) -> int | None:
        if self.syncing is not None or self.written <= self.flushed:
            return None
        self.syncing = self.written
        return self.syncing


class Waiter:
    """One caller waiting for an offset. The caller decides when it has waited too long: `cancel`."""

    __slots__ = ("call", "end")

    def __init__(self, end: int, call: Safe) -> None:
        self.end = end
        self.call: Safe | None = call

    def cancel(self) -> None:
        self.call = None

    def finish(self, error: StoreError | None) -> None:
        """Call the callback, unless it was called or cancelled before."""
        call, self.call = self.call, None
        if call is not None:
            call(error)


class Waiters:
    """Waiters by end offset."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._count = 0
        # The length at which those that were cancelled are dropped: replicas may be away for hours.
        self._full = _WAITERS_LEAST

    def __len__(self) -> int:
        return sum(1 for entry in self._heap if entry[2].call is not None)

    def add(self, end: int, call: Safe) -> Waiter:
        self._count += 1
        if len(self._heap) >= self._full:
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._full = max(_WAITERS_LEAST, 2 * len(self._heap))
        waiter = Waiter(end, call)
        heapq.heappush(self._heap, (end, self._count, waiter))
        return waiter

    def advance(self, safe: int) -> None:
        """Tell everyone who waits for an offset up to `safe` that the log is stored as promised."""
        while self._heap and self._heap[0][0] <= safe:
            heapq.heappop(self._heap)[2].finish(None)

    def fail(self, error: StoreError, beyond: int = -1) -> None:
        """Tell everyone who waits for more than `beyond` that it will not come."""
        failed = [entry for entry in self._heap if entry[0] > beyond]
        self._heap = [entry for entry in self._heap if entry[0] <= beyond]
        heapq.heapify(self._heap)
        for entry in sorted(failed):
            entry[2].finish(error)
