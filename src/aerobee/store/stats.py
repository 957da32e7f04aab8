"""What the store did: totals and rates, in the words of Apache's runtime info.

Rates come from a sample that the owner takes each second. How long puts and gets took is not measured: those values are
0. RocketMQ: StoreStatsService.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from aerobee.model.dialect import java_double

_SAMPLES_MAX: Final = 601
_PERIODS_S: Final = (10, 60, 600)
_PUT_TIMES: Final = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0"
    " [4~5s]:0 [5~10s]:0 [10s~]:0 "
)


class StoreStats:
    """One store's counters. The owner sets the attributes."""

    def __init__(self, boot_timestamp: int) -> None:
        self.boot_timestamp = boot_timestamp
        self.put_messages = 0
        self.put_size = 0
        self.put_failed = 0
        self.get_found = 0
        self.get_miss = 0
        self.transferred = 0  # messages handed to consumers
        self.dispatch_behind_max = 0  # bytes
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SAMPLES_MAX)

    def sample(self, now_ms: int) -> None:
        """Note the totals. The owner calls this once a second."""
        self._samples.append((now_ms, self.put_messages, self.get_found, self.get_miss, self.transferred))

    def _rate(self, column: int, period_s: int) -> float | None:
        """Return the rate a second over the last `period_s` samples; None where there are not yet enough."""
        if len(self._samples) <= period_s:
            return None
        first, last = self._samples[-period_s - 1], self._samples[-1]
        elapsed_ms = last[0] - first[0]
        return (last[column] - first[column]) / elapsed_ms * 1000 if elapsed_ms > 0 else 0.0

    def _rates(self, column: int) -> str:
        rates = (self._rate(column, period) for period in _PERIODS_S)
        return " ".join("" if rate is None else java_double(rate) for rate in rates)

    def _total_get_rates(self) -> str:
        return " ".join(
            java_double((self._rate(2, period) or 0.0) + (self._rate(3, period) or 0.0)) for period in _PERIODS_S
        )

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """Return the store's part of the broker's runtime info. RocketMQ: StoreStatsService.getRuntimeInfo."""
        messages, size = self.put_messages, self.put_size
        return {
            "bootTimestamp": str(self.boot_timestamp),
            "runtime": format_runtime(now_ms - self.boot_timestamp),
            "putMessageEntireTimeMax": "0",
            # Apache shows 1 where nothing was put, because it divides by this number.
            "putMessageTimesTotal": str(messages or 1),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(size),
            "putMessageDistributeTime": _PUT_TIMES,
            "putMessageAverageSize": java_double(size / (messages or 1)),
            "dispatchMaxBuffer": str(self.dispatch_behind_max),
            "getMessageEntireTimeMax": "0",
            "putTps": self._rates(1),
            "getFoundTps": self._rates(2),
            "getMissTps": self._rates(3),
            "getTotalTps": self._total_get_rates(),
            "getTransferredTps": self._rates(4),
            "putLatency99": "0.00",
            "putLatency999": "0.00",
        }


def format_runtime(elapsed_ms: int) -> str:
    """Return a duration as Apache shows it. RocketMQ: StoreStatsService.getFormatRuntime."""
    seconds = max(elapsed_ms, 0) // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
