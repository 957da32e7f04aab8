"""Which brokers to avoid for a while: a machine fed with how each try of a send ended.

A broker that did not answer in time is avoided by default, so that a hung one costs one try and not every send. How
long answers took counts only where that was asked for. RocketMQ: MQFaultStrategy, LatencyFaultToleranceImpl
(sendLatencyEnable, off there by default; no detector of its own).
"""

from __future__ import annotations

from typing import Final

# From this latency on, a broker is avoided for that long (both ms).
BANDS: Final = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000), (0, 0))
# The latency a failed send counts as.
FAILED_MS: Final = 10_000


class FaultTable:
    """Brokers by name; time is an argument (ms, monotonic)."""

    def __init__(self, *, by_latency: bool = True) -> None:
        self.by_latency = by_latency
        # Until when; empty while all is well, which is all that most sends look at.
        self.avoided: dict[str, float] = {}
        self._unreachable: set[str] = set()

    def succeeded(self, broker: str, latency_ms: float, now_ms: float) -> None:
        self._unreachable.discard(broker)
        if self.by_latency:
            self._avoid(broker, latency_ms, now_ms)
        else:
            self.avoided.pop(broker, None)

    def failed(self, broker: str, now_ms: float, *, hung: bool = False) -> None:
        """A try failed; `hung`: no answer came in time."""
        if hung or self.by_latency:
            self._avoid(broker, FAILED_MS, now_ms)
            self._unreachable.add(broker)

    def _avoid(self, broker: str, latency_ms: float, now_ms: float) -> None:
        duration_ms = next(duration for least, duration in BANDS if latency_ms >= least)
        if duration_ms:
            self.avoided[broker] = max(self.avoided.get(broker, 0), now_ms + duration_ms)

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Whether its time of avoidance is over."""
        until_ms = self.avoided.get(broker)
        if until_ms is None:
            return True
        if now_ms < until_ms:
            return False
        del self.avoided[broker]
        return True

    def is_reachable(self, broker: str) -> bool:
        """Whether its last send was answered."""
        return broker not in self._unreachable
