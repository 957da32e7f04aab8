"""The clocks of the machine."""

from __future__ import annotations

from aerobee.runtime.clock import BootClock, SystemClock


def test_the_clock_of_leases_is_never_behind_the_other() -> None:
    """It also counts the time that the machine was suspended."""
    before = SystemClock().monotonic()
    boot = BootClock().monotonic()
    assert boot >= before - 0.01
    assert BootClock().monotonic() >= boot
    assert abs(BootClock().now_ms() - SystemClock().now_ms()) < 10_000
