"""Which brokers a producer avoids for a while: a machine that is told how each try of a send ended.

A broker that did not answer in time is avoided by default, so that a hung one costs one try and not every send. The
latency of answers counts only with `avoid_slow_brokers`. RocketMQ: MQFaultStrategy, LatencyFaultToleranceImpl
(sendLatencyEnable, which is off there by default; there is no detector here).
"""

from __future__ import annotations

from typing import Final

# (latency, how long a broker is avoided from that latency on), both in ms.
BANDS: Final = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000), (0, 0))
# The latency a failed send counts as.
FAILED_MS: Final = 10_000


class FaultTable:
    """The brokers that are avoided, by name. Times are monotonic milliseconds."""

    def __init__(self, *, by_latency: bool = True) -> None:
        self.by_latency = by_latency
        # Until when each is avoided. While all is well this is empty, and most sends look no further.
        self.avoided: dict[str, float] = {}
        self._unreachable: set[str] = set()

    def succeeded(self, broker: str, latency_ms: float, now_ms: float) -> None:
        self._unreachable.discard(broker)
        if self.by_latency:
            self._avoid(broker, latency_ms, now_ms)
        else:
            self.avoided.pop(broker, None)

    def failed(self, broker: str, now_ms: float, *, hung: bool = False) -> None:
        """Note that a try failed. `hung`: no answer came in time."""
        if hung or self.by_latency:
            self._avoid(broker, FAILED_MS, now_ms)
            self._unreachable.add(broker)

    def _avoid(self, broker: str, latency_ms: float, now_ms: float) -> None:
        duration_ms = next(duration for least, duration in BANDS if latency_ms >= least)
        if duration_ms:
            self.avoided[broker] = max(self.avoided.get(broker, 0), now_ms + duration_ms)

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Tell whether the broker is not avoided, or not any more."""
        until_ms = self.avoided.get(broker)
        if until_ms is None:
            return True
        if now_ms < until_ms:
            return False
        del self.avoided[broker]
        return True

    def is_reachable(self, broker: str) -> bool:
        """Tell whether the last send to the broker was answered."""
        return broker not in self._unreachable
