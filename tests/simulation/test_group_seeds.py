"""Seeds of a simulated group of three replicas. `make simulate ARGS=--replicas SEEDS=0..9999` runs more of them."""

from __future__ import annotations

import pytest

from aerobee.testing.simulation.grouprun import run_group_seed

_SEEDS = 40
_PARTS = 8


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_group_keeps_its_promises_under_faults(part: int) -> None:
    for seed in range(part, _SEEDS, _PARTS):
        outcome = run_group_seed(seed)
        replay = f"replay: make simulate SEEDS={seed} ARGS='--replicas --trace'\n"
        assert not outcome.problems, replay + "\n".join(outcome.problems)
        assert outcome.counts["acknowledged"] > 20, f"seed {seed} has hardly any load"


def test_the_same_seed_is_the_same_run() -> None:
    assert run_group_seed(1).digest == run_group_seed(1).digest
