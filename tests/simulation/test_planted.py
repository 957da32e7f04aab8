"""Each planted bug is found within 200 seeds; three of them also in the usual suite."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from aerobee.testing.simulation.run import run_seed

_SEEDS_MAX = 200
_QUICK = ("acknowledged_before_the_sync", "committed_before_handling", "half_message_readable")


def _load() -> ModuleType:
    """Load planted.py by its path: tests are no package to import from."""
    spec = importlib.util.spec_from_file_location("planted", Path(__file__).with_name("planted.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PLANTED = _load().PLANTED


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in _PLANTED]
)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _PLANTED[name](monkeypatch)
    assert any(run_seed(seed).problems for seed in range(_SEEDS_MAX)), f"{name} was not found"
