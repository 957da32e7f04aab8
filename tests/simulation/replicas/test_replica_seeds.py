"""Seeds of the simulation of replicas: no promise is broken, and a seed is the same run each time."""

from __future__ import annotations

import pytest

from aerobee.testing.simulation.replicas.run import run_replicas

# What these seeds found first: see the names of the bugs from 33 on in planted.py, and the commit messages.
_FOUND = {
    55: "a change of the set from an earlier life made a process lead its old epoch",
    625: "an epoch without records barred its replica from following",
    12: "an empty log was taken for a lost one",
    738: "a master that failed left the set to a member that was gone",
    2439: "a torn record of a follower was taken for a whole one",
    10480: "a follower that had synced nothing acknowledged what it had at its handshake",
    2737: "a late request of a replica was taken for another process",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + 20):
        assert run_replicas(seed).problems == [], f"make simulate SEEDS={seed} ARGS=--bare-replicas"


@pytest.mark.parametrize("seed", _FOUND)
def test_what_a_seed_found_stays_mended(seed: int) -> None:
    assert run_replicas(seed).problems == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_is_one_run(seed: int) -> None:
    one, other = run_replicas(seed), run_replicas(seed)
    assert (one.digest, one.events) == (other.digest, other.events)
    assert one.counts["acknowledged"] > 0
