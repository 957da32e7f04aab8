"""A clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable

from aerobee.runtime.seams import Clock

START_MS = 1_700_000_000_000


class VirtualClock(Clock):
    """Monotonic time from `source` (a VirtualLoop's `time`) or moved by `advance`; the wall besides is off
    by an offset, jumps, and drifts by `drift` seconds in a second."""

    def __init__(
        self, source: Callable[[], float] | None = None, *, wall_ms: int = START_MS, drift: float = 0.0
    ) -> None:
        self._source = source
        self._advanced_s = 0.0
        self._drift = drift
        self._drift_from_s = self.monotonic()
        self._wall_ms = wall_ms - self.monotonic() * 1000.0

    def now_ms(self) -> int:
        elapsed_s = self.monotonic()
        return int(self._wall_ms + (elapsed_s + self._drift * (elapsed_s - self._drift_from_s)) * 1000.0 + 1e-6)

    def monotonic(self) -> float:
        return self._advanced_s if self._source is None else self._source()

    def advance(self, seconds: float) -> None:
        """Let time pass. Only a clock without a source can do this."""
        if self._source is not None:
            raise ValueError("this clock follows its source")
        if seconds < 0:
            raise ValueError("monotonic time does not go back; use jump for the wall")
        self._advanced_s += seconds

    def jump(self, milliseconds: int) -> None:
        """Set the wall time forward, or back."""
        self._wall_ms += milliseconds

    def set_drift(self, drift: float) -> None:
        """Drift from now on. What the wall time gained or lost before stays."""
        elapsed_s = self.monotonic()
        self._wall_ms += self._drift * (elapsed_s - self._drift_from_s) * 1000.0
        self._drift, self._drift_from_s = drift, elapsed_s
