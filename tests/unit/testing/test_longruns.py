"""A long run that was interrupted goes on with the rounds that are not done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aerobee.testing.longruns import LongRun, rounds_of, state_of_source, table


def test_only_rounds_that_ended_well_are_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out" / "rounds.json"
    first = LongRun(path, "commit")
    with first.noted("1") as found:
        found["rows"] = 7
    with pytest.raises(ZeroDivisionError), first.noted("2"):
        _ = 1 // 0
    again = LongRun(path, "commit")
    assert again.is_done("1") and not again.is_done("2") and again.done["1"]["rows"] == 7
    assert [one.name for one in path.parent.iterdir()] == ["rounds.json"]
    # Another source has proved nothing yet.
    other = LongRun(path, "other")
    assert not other.done and "is of commit, and this is other" in capsys.readouterr().out
    with other.noted("2"):
        pass
    assert set(json.loads(path.read_text())["done"]) == {"2"}


def test_a_run_may_begin_anew_or_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rounds.json"
    with LongRun(path, "commit").noted("1"):
        pass
    monkeypatch.setenv("FRESH", "1")
    assert not LongRun(path, "commit").done
    monkeypatch.delenv("NOT_SET_AT_ALL", raising=False)
    assert rounds_of("NOT_SET_AT_ALL").path is None
    assert state_of_source() == state_of_source() != ""


def test_the_table_is_markdown() -> None:
    assert table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |"
