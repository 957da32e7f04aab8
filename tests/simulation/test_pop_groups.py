"""POP at a group of replicas. `make simulate ARGS='--pops --replicas' SEEDS=0..999` runs more seeds.

Bugs that these runs found in the product, all of them mended, by their seeds:

- 29: a replica that stopped saved a picture of takes which its log never got. As a follower it then held messages
  that the next master had acknowledged, and gave them out when it led again.
- 29: the acknowledgement of a message whose take was lost with its master was answered, and forgotten, where the group
  had popped nothing else of that queue.
- 44: a follower that stopped saved a picture that named more of the journal than it had read, and forgot
  acknowledgements.
- 61: the change of a message whose take was lost with its master was answered, and the message came at once.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from aerobee import _pure
from aerobee.testing.simulation.popgroup import run_pop_group

_SEEDS = (0, 1, 2, 3, 29, 44, 61)


def _load() -> ModuleType:
    """Load plantedpops.py by its path: tests are no package to import from."""
    spec = importlib.util.spec_from_file_location("plantedpops", Path(__file__).with_name("plantedpops.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PLANTED = _load().PLANTED_IN_GROUPS


@pytest.mark.parametrize("seed", _SEEDS)
def test_leases_outlive_masters(seed: int) -> None:
    outcome = run_pop_group(seed)
    replay = f"replay: make simulate SEEDS={seed} ARGS='--pops --replicas --trace'\n"
    assert not outcome.problems, replay + "\n".join(outcome.problems)
    assert outcome.counts["popped_and_acknowledged"] > 20, f"seed {seed} has hardly any load"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _PLANTED)
def test_a_planted_bug_of_leases_in_groups_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if _pure.is_compiled():
        pytest.skip("compiled classes cannot be patched: AEROBEE_PURE=1 runs this")
    plant, seeds = _PLANTED[name]
    plant(monkeypatch)
    assert any(run_pop_group(seed).problems for seed in seeds), f"{name} was not found"
