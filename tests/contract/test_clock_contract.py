"""What every Clock and every Entropy promises."""

from __future__ import annotations

import pytest

from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.seams import Clock, Entropy
from aerobee.testing.clock import VirtualClock
from aerobee.testing.entropy import SeededEntropy


@pytest.mark.parametrize("clock", [SystemClock(), VirtualClock()])
def test_a_clock_does_not_run_back(clock: Clock) -> None:
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)
    assert isinstance(clock.now_ms(), int)
    assert clock.now_ms() > 1_600_000_000_000


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(7)])
def test_entropy_keeps_to_its_ranges(entropy: Entropy) -> None:
    assert [len(entropy.token(size)) for size in (0, 1, 16)] == [0, 1, 16]
    assert entropy.token(16) != entropy.token(16)
    drawn = {entropy.below(5) for _ in range(500)}
    assert drawn == {0, 1, 2, 3, 4}
    assert entropy.below(1) == 0
    shares = [entropy.uniform() for _ in range(500)]
    assert all(0.0 <= share < 1.0 for share in shares) and max(shares) - min(shares) > 0.5
    with pytest.raises(ValueError):
        entropy.below(0)
