"""Each planted bug of replication is found. `make test` tries a few, others each day; the slow suite tries all."""

from __future__ import annotations

import datetime
import importlib.util
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

from aerobee._pure import is_compiled
from aerobee.testing.simulation.replicas.run import run_replicas

SEEDS_MAX = 1000
_SAMPLE = 6
# These patch classes of the store, which cannot be done where they are compiled.
_IN_THE_STORE = ("n14_cut_not_durable", "n18_numbers_of_a_cut_tail_stay")


def _load() -> ModuleType:
    """Load planted.py by its path: tests are no package to import from."""
    spec = importlib.util.spec_from_file_location("planted_replicas", Path(__file__).with_name("planted.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MODULE = _load()
# Where each was found last. Another change of the product or the harness may move it, then it is searched for.
_FOUND_AT: dict[str, int] = _MODULE.FOUND_AT


def _of_today() -> list[str]:
    """Return the bugs of this day: all of them come in turn."""
    quick = [name for name, seed in sorted(_FOUND_AT.items()) if seed <= 60 and name not in _IN_THE_STORE]
    first = datetime.datetime.now(tz=datetime.UTC).toordinal() * _SAMPLE
    return [quick[(first + place) % len(quick)] for place in range(_SAMPLE)]


def _is_found(name: str) -> bool:
    known = _FOUND_AT[name]
    return any(run_replicas(seed).problems for seed in chain((known,), range(SEEDS_MAX)))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _of_today())
def test_a_planted_bug_of_today_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _MODULE.PLANTED[name](monkeypatch)
    assert _is_found(name), f"{name} was not found"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(_MODULE.PLANTED))
def test_every_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_compiled() and name in _IN_THE_STORE:
        pytest.skip("compiled classes call each other past what is planted: set AEROBEE_PURE=1")
    _MODULE.PLANTED[name](monkeypatch)
    assert _is_found(name), f"{name} was not found"


def test_every_planted_bug_has_a_place() -> None:
    assert set(_MODULE.PLANTED) == set(_FOUND_AT)
    assert len(_FOUND_AT) >= 30
