"""Options of `aerobee up` that are refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.cli.main import main


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_directory_name_is_no_directory(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of a shell that is not set must not put a store into the current directory."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["up", "--data", name, "--namesrv-port", "0", "--broker-port", "0"])
    assert done.exit_code == 2
    assert "--data names no directory" in done.output
    assert os.listdir(tmp_path) == []
