"""The same seed is the same run, event for event, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from aerobee.testing.simulation.__main__ import WORK, main
from aerobee.testing.simulation.run import RunOutcome, run_seed

_DIGEST = """
from aerobee.testing.simulation.run import run_seed
for seed in (3, 4):
    outcome = run_seed(seed)
    print(seed, outcome.events, outcome.digest)
"""


def _digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", _DIGEST], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_two_processes_run_a_seed_alike() -> None:
    """With different hash seeds, so that the order of sets differs."""
    assert _digests("1") == _digests("2")


def test_a_seed_does_not_depend_on_the_one_before() -> None:
    alone = run_seed(3)
    run_seed(4)
    assert run_seed(3).digest == alone.digest


def test_seeds_differ() -> None:
    assert run_seed(3).digest != run_seed(4).digest


def test_the_command_adds_up_what_it_ran() -> None:
    done = CliRunner().invoke(main, ["--seeds", "3..4", "--processes", "1"])
    assert done.exit_code == 0, done.output
    assert "seeds 3..4: 0 broken" in done.output
    assert "messages: " in done.output


def test_the_command_tells_a_broken_promise_and_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int) -> RunOutcome:
        outcome = run_seed(seed)
        outcome.problems.append("lost: 1-2")
        return outcome

    monkeypatch.setitem(WORK, "", broken)
    done = CliRunner().invoke(main, ["--seeds", "3", "--processes", "1"])
    assert done.exit_code == 1
    assert "lost: 1-2" in done.output
    assert "make simulate SEEDS=3 ARGS=--trace" in done.output


def test_the_command_refuses_what_is_no_range() -> None:
    done = CliRunner().invoke(main, ["--seeds", "a..b"])
    assert done.exit_code == 2
    assert "'a..b' is not like 0..99" in done.output
