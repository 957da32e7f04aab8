"""Which brokers to avoid for a while: a machine fed with how long each send took.

RocketMQ: MQFaultStrategy, LatencyFaultToleranceImpl (sendLatencyEnable; no detector of its own).
"""

from __future__ import annotations

from typing import Final

# From this latency on, a broker is avoided for that long (both ms).
BANDS: Final = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000), (0, 0))
# The latency a failed send counts as.
FAILED_MS: Final = 10_000


class FaultTable:
    """Brokers by name; time is an argument (ms, monotonic)."""

    def __init__(self) -> None:
        self._avoid_until_ms: dict[str, float] = {}
        self._unreachable: set[str] = set()

    def succeeded(self, broker: str, latency_ms: float, now_ms: float) -> None:
        self._avoid(broker, latency_ms, now_ms)
        self._unreachable.discard(broker)

    def failed(self, broker: str, now_ms: float) -> None:
        self._avoid(broker, FAILED_MS, now_ms)
        self._unreachable.add(broker)

    def _avoid(self, broker: str, latency_ms: float, now_ms: float) -> None:
        duration_ms = next(duration for least, duration in BANDS if latency_ms >= least)
        if duration_ms:
            self._avoid_until_ms[broker] = max(self._avoid_until_ms.get(broker, 0), now_ms + duration_ms)

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Whether its time of avoidance is over."""
        return now_ms >= self._avoid_until_ms.get(broker, 0)

    def is_reachable(self, broker: str) -> bool:
        """Whether its last send was answered."""
        return broker not in self._unreachable
