"""The clock of the machine."""

from __future__ import annotations

import time
from typing import Final

from mypy_extensions import i64

from aerobee.runtime.seams import Clock

# These are called for every message, so the names are looked up once.
_time_ns: Final = time.time_ns
_monotonic: Final = time.monotonic


class SystemClock:
    """The clock of the machine. Wall time may jump; monotonic time never goes back."""

    def now_ms(self) -> int:
        now_ns: i64 = _time_ns()
        return now_ns // 1_000_000

    def monotonic(self) -> float:
        return _monotonic()


# In compiled code, a call on a known class goes straight to its code. On a protocol the method is looked up each time.


def now_ms_of(clock: Clock) -> int:
    """Return `clock.now_ms()`. This form is faster for code that asks for every message."""
    if isinstance(clock, SystemClock):
        return clock.now_ms()
    return clock.now_ms()


def monotonic_of(clock: Clock) -> float:
    """Return `clock.monotonic()`. This form is faster for code that asks for every read."""
    if isinstance(clock, SystemClock):
        return clock.monotonic()
    return clock.monotonic()
