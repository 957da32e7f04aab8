"""The clock of the machine."""

from __future__ import annotations

import time
from typing import Final

from mypy_extensions import i64

from aerobee.runtime.bases import Clock

# These are called for every message, so the names are looked up once.
_time_ns: Final = time.time_ns
_monotonic: Final = time.monotonic


class SystemClock(Clock):
    """The clock of the machine. Wall time may jump, monotonic time never goes back."""

    def now_ms(self) -> int:
        now_ns: i64 = _time_ns()
        return now_ns // 1_000_000

    def monotonic(self) -> float:
        return _monotonic()


class BootClock(SystemClock):
    """The clock of the machine, whose monotonic time goes on while the machine is suspended, where the system has that.

    Leases are measured by it: a machine that slept must not believe that its lease is alive.
    """

    def monotonic(self) -> float:
        return _boot_time()


def _boot_time() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return _monotonic()
