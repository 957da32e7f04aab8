"""A hundred seeds of the simulated cluster. `make simulate SEEDS=0..9999` runs more of them."""

from __future__ import annotations

import pytest

from aerobee.testing.simulation.run import run_seed

_SEEDS = 100
_PARTS = 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_promises_hold_under_faults(part: int) -> None:
    for seed in range(part, _SEEDS, _PARTS):
        outcome = run_seed(seed)
        assert not outcome.problems, f"replay: make simulate SEEDS={seed} ARGS=--trace\n" + "\n".join(outcome.problems)
        assert outcome.counts["acknowledged"] > 50, f"seed {seed} has hardly any load"
