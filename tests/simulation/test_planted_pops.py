"""POP under faults keeps its promises, and each planted bug is found; three of them in the usual suite."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from aerobee import _pure
from aerobee.testing.simulation.pops import run_pops

_SEEDS_MAX = 60
_QUICK = ("acknowledgements_not_learnt", "copy_not_stored", "suspended_tries_counted")


def _load() -> ModuleType:
    """Load plantedpops.py by its path: tests are no package to import from."""
    spec = importlib.util.spec_from_file_location("plantedpops", Path(__file__).with_name("plantedpops.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PLANTED = _load().PLANTED


def test_seeds_of_pop() -> None:
    assert [outcome.problems for outcome in map(run_pops, range(8)) if outcome.problems] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_seeds_of_pop() -> None:
    assert [(seed, found) for seed in range(8, 1_000) if (found := run_pops(seed).problems)] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in _PLANTED]
)
def test_a_planted_bug_of_pop_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if _pure.is_compiled():
        pytest.skip("compiled classes cannot be patched: AEROBEE_PURE=1 runs this")
    _PLANTED[name](monkeypatch)
    assert any(run_pops(seed).problems for seed in range(_SEEDS_MAX)), f"{name} was not found"
