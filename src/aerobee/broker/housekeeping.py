"""What a broker does by the clock: clients and locks expire, counters are sampled, offsets are saved.

The root calls `tick` every 100 ms or so; each task looks whether its time has come. Apache 5.5.0 has a scan for offsets
of groups that no longer subscribe and never calls it; neither does this: a group that comes back after a week goes on
where the log begins, instead of where it ends. RocketMQ: BrokerController.initializeBrokerScheduledTasks.
"""

from __future__ import annotations

from typing import Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.log.putcounts import PutCounts
from aerobee.broker.membership.clients import SCAN_INTERVAL_S
from aerobee.broker.membership.effects import ClientEffects
from aerobee.broker.membership.locks import QueueLocks
from aerobee.broker.stats import SAMPLE_INTERVAL_MS, BrokerStats
from aerobee.model.queue import MessageQueue
from aerobee.runtime.seams import Clock
from aerobee.store.metadata.offsets import ConsumerOffsetTable
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_DAY_MS: Final = 86_400_000


class Housekeeping:
    """The broker's clockwork."""

    def __init__(
        self,
        effects: ClientEffects,
        locks: QueueLocks[MessageQueue],
        stats: BrokerStats,
        counts: PutCounts,
        offsets: ConsumerOffsetTable,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._effects = effects
        self._locks = locks
        self._stats = stats
        self._counts = counts
        self._offsets = offsets
        self._config = config
        self._clock = clock
        self._warn = RateLimitedLog(get_log("broker.housekeeping"), clock)
        now_s = clock.monotonic()
        self._scan_s = now_s + SCAN_INTERVAL_S
        self._sample_s = now_s + SAMPLE_INTERVAL_MS / 1000
        self._save_s = now_s + config.flush_consumer_offset_interval_ms / 1000
        self._saving = False
        self._day = clock.now_ms() // _DAY_MS

    def tick(self) -> None:
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self._counts.tick(now_ms)
        if now_s >= self._scan_s:
            self._scan_s = now_s + SCAN_INTERVAL_S
            self._effects.expire(now_s)
            self._locks.expire(now_s)
        if now_s >= self._sample_s:
            self._sample_s = now_s + SAMPLE_INTERVAL_MS / 1000
            self._sample(now_ms)
        if now_s >= self._save_s:
            self._save_s = now_s + self._config.flush_consumer_offset_interval_ms / 1000
            self._save_offsets()

    def _sample(self, now_ms: int) -> None:
        self._stats.sample(now_ms)
        if self._config.max_stats_idle_minutes > 0:
            self._stats.forget_idle(self._config.max_stats_idle_minutes * 60_000, now_ms)
        day = now_ms // _DAY_MS
        if day > self._day:
            self._stats.midnight()
            self._day = day

    def _save_offsets(self) -> None:
        if self._saving:
            return
        self._saving = True

        def saved(error: Exception | None) -> None:
            self._saving = False
            if error is not None:
                self._warn.warning("offsets", "consume offsets were not saved", reason=error)

        self._offsets.submit(saved)

    def close(self) -> None:
        """At stop: blocking."""
        self._counts.flush(self._clock.now_ms())
        self._offsets.save()
