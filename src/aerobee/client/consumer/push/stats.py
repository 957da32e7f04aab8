"""The figures of a consumer for each topic, over the last minute: a machine. RocketMQ: ConsumerStatsManager."""

from __future__ import annotations

import math
from collections import deque

from aerobee.protocol.bodies.running import ConsumeStatus

_WINDOW_S = 60.0


class _Rate:
    """Events and their sums within the window."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int, float]] = deque()

    def add(self, now_s: float, count: int, total: float = 0.0) -> None:
        second = math.floor(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            _, before, sum_before = self._seconds.pop()
            count, total = count + before, total + sum_before
        self._seconds.append((second, count, total))
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] <= now_s - _WINDOW_S:
            self._seconds.popleft()

    def per_second(self, now_s: float) -> float:
        self._forget(now_s)
        return sum(count for _, count, _ in self._seconds) / _WINDOW_S

    def mean(self, now_s: float) -> float:
        self._forget(now_s)
        count = sum(count for _, count, _ in self._seconds)
        return sum(total for _, _, total in self._seconds) / count if count else 0.0


class ConsumeCounts:
    """The figures of one topic."""

    def __init__(self) -> None:
        self._done = _Rate()
        self._failed = _Rate()
        self._calls = _Rate()
        self.failed_total = 0

    def consumed(self, now_s: float, count: int, cost_ms: float, *, done: bool) -> None:
        """Note that a handler has answered for `count` messages."""
        (self._done if done else self._failed).add(now_s, count)
        self._calls.add(now_s, 1, cost_ms)
        if not done:
            self.failed_total += count

    def status(self, now_s: float) -> ConsumeStatus:
        return ConsumeStatus(
            consume_rt=self._calls.mean(now_s),
            consume_ok_tps=self._done.per_second(now_s),
            consume_failed_tps=self._failed.per_second(now_s),
            consume_failed_msgs=self.failed_total,
        )
