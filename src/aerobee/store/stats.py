"""What the store did: totals, rates and the spread of put times, in the words of Apache's runtime info.

The hot path touches plain numbers only; rates come from a sample a second that the owner asks for.
RocketMQ: StoreStatsService.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from aerobee.model.dialect import java_double

_SAMPLES_MAX: Final = 601
_PERIODS_S: Final = (10, 60, 600)
_SPREAD_PERIOD_MS: Final = 60_000

# The spread of put times: bucket 0 is "no time at all", then each up to its edge, the last without end.
_SPREAD_EDGES_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_SPREAD_NAMES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)


def _latency_edges() -> tuple[int, ...]:
    edges = []
    edge = 0
    for width, count in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9)):
        for _ in range(count):
            edge += width
            edges.append(edge)
    return tuple(edges)


# Finer buckets, from which the percentiles come: a time belongs to the first edge that is not below it.
_LATENCY_EDGES_MS: Final = _latency_edges()


class TopicCount:
    """Puts of one topic. Whoever puts keeps the object and adds to it."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0


class StoreStats:
    """One store's counters. Attributes are added to directly."""

    def __init__(self, boot_timestamp: int) -> None:
        self.boot_timestamp = boot_timestamp
        self.put_failed = 0
        self.get_found = 0
        self.get_miss = 0
        self.transferred = 0  # messages handed to consumers
        self.dispatch_behind_max = 0  # bytes
        self.put_time_max_ms = 0
        self.get_time_max_ms = 0
        self._topics: dict[bytes, TopicCount] = {}
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SAMPLES_MAX)
        self._spread = [0] * len(_SPREAD_NAMES)
        self._last_spread = self._spread
        self._latency = [0] * (len(_LATENCY_EDGES_MS) + 1)
        self._last_latency = self._latency
        self._spread_since_ms = boot_timestamp

    def topic(self, topic: bytes) -> TopicCount:
        """The counter of a topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicCount()
        return found

    def forget_topic(self, topic: bytes) -> None:
        """A deleted topic is no longer counted."""
        self._topics.pop(topic, None)

    def put_took(self, elapsed_ms: int, count: int = 1) -> None:
        """So many puts took so long, from being received to being written."""
        self._spread[bisect_right(_SPREAD_EDGES_MS, elapsed_ms)] += count
        self._latency[bisect_left(_LATENCY_EDGES_MS, elapsed_ms)] += count
        if elapsed_ms > self.put_time_max_ms:
            self.put_time_max_ms = elapsed_ms

    def get_took(self, elapsed_ms: int) -> None:
        """One get took so long."""
        if elapsed_ms > self.get_time_max_ms:
            self.get_time_max_ms = elapsed_ms

    @property
    def put_messages(self) -> int:
        """Messages put since the start."""
        return sum(topic.messages for topic in self._topics.values())

    @property
    def put_size(self) -> int:
        """Their bytes in the log."""
        return sum(topic.size for topic in self._topics.values())

    def sample(self, now_ms: int) -> None:
        """Once a second: note the totals. Once a minute the spread of put times starts anew."""
        self._samples.append((now_ms, self.put_messages, self.get_found, self.get_miss, self.transferred))
        if now_ms >= self._spread_since_ms + _SPREAD_PERIOD_MS:
            self._spread_since_ms = now_ms
            self._last_spread, self._spread = self._spread, [0] * len(_SPREAD_NAMES)
            self._last_latency, self._latency = self._latency, [0] * (len(_LATENCY_EDGES_MS) + 1)

    def _rate(self, column: int, period_s: int) -> float | None:
        """Per second over the last so many samples; None where there are not yet enough."""
        if len(self._samples) <= period_s:
            return None
        first, last = self._samples[-period_s - 1], self._samples[-1]
        elapsed_ms = last[0] - first[0]
        return (last[column] - first[column]) / elapsed_ms * 1000 if elapsed_ms > 0 else 0.0

    def put_tps(self, period_s: int = 10) -> float:
        """Messages put per second over the last 10, 60 or 600 s."""
        return self._rate(1, period_s) or 0.0

    def _rates(self, column: int) -> str:
        rates = (self._rate(column, period) for period in _PERIODS_S)
        return " ".join("" if rate is None else java_double(rate) for rate in rates)

    def _total_get_rates(self) -> str:
        return " ".join(
            java_double((self._rate(2, period) or 0.0) + (self._rate(3, period) or 0.0)) for period in _PERIODS_S
        )

    def put_time_percentile(self, share: float) -> float:
        """Milliseconds, of the last whole minute. RocketMQ: findPutMessageEntireTimePX."""
        wanted = int(sum(self._last_latency) * share)
        passed = 0
        below = 0
        for edge, count in zip(_LATENCY_EDGES_MS, self._last_latency, strict=False):
            if wanted <= passed + count:
                return below + ((edge - below) * (wanted - passed) / count if count else 0)
            passed += count
            below = edge
        return below * 1.0

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """The store's part of the broker's runtime info. RocketMQ: StoreStatsService.getRuntimeInfo."""
        messages, size = self.put_messages, self.put_size
        spread = "".join(f"{name}:{n} " for name, n in zip(_SPREAD_NAMES, self._last_spread, strict=True))
        return {
            "bootTimestamp": str(self.boot_timestamp),
            "runtime": format_runtime(now_ms - self.boot_timestamp),
            "putMessageEntireTimeMax": str(self.put_time_max_ms),
            # Apache shows 1 where nothing was put, for it divides by it.
            "putMessageTimesTotal": str(messages or 1),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(size),
            "putMessageDistributeTime": spread,
            "putMessageAverageSize": java_double(size / (messages or 1)),
            "dispatchMaxBuffer": str(self.dispatch_behind_max),
            "getMessageEntireTimeMax": str(self.get_time_max_ms),
            "putTps": self._rates(1),
            "getFoundTps": self._rates(2),
            "getMissTps": self._rates(3),
            "getTotalTps": self._total_get_rates(),
            "getTransferredTps": self._rates(4),
            "putLatency99": f"{self.put_time_percentile(0.99):.2f}",
            "putLatency999": f"{self.put_time_percentile(0.999):.2f}",
        }


def format_runtime(elapsed_ms: int) -> str:
    """RocketMQ: StoreStatsService.getFormatRuntime."""
    seconds = max(elapsed_ms, 0) // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
