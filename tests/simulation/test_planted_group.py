"""Each planted bug of a replicated broker is found within 1,000 seeds; two of them also in the usual suite."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from aerobee.testing.simulation.grouprun import run_group_seed

_SEEDS_MAX = 1000
_QUICK = ("old_master_named_again", "offsets_not_journalled")


def _load() -> ModuleType:
    """Load plantedgroup.py by its path: tests are no package to import from."""
    spec = importlib.util.spec_from_file_location("plantedgroup", Path(__file__).with_name("plantedgroup.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PLANTED = _load().PLANTED


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in _PLANTED]
)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _PLANTED[name](monkeypatch)
    assert any(run_group_seed(seed).problems for seed in range(_SEEDS_MAX)), f"{name} was not found"
