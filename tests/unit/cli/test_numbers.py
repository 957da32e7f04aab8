"""Numbers that commands take."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

import aerobee.cli
from aerobee.cli.main import main
from aerobee.errors import ConfigError
from aerobee.store.config import StoreConfig


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "1e999"])
@pytest.mark.parametrize(
    "words",
    [
        ["produce", "-t", "T", "--count", "1", "--rate"],
        ["replay", "-t", "T", "--to", "U", "--rate"],
        ["topic", "list", "--timeout"],
    ],
)
def test_what_is_no_number_is_refused(words: list[str], value: str) -> None:
    done = CliRunner().invoke(main, [*words, value])
    assert done.exit_code == 2
    assert "is not a number" in done.output or "is not in the range" in done.output


def test_no_option_takes_a_plain_range() -> None:
    for path in Path(aerobee.cli.__path__[0]).rglob("*.py"):
        if path.name != "numbers.py":
            names = {one.attr for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Attribute)}
            assert "FloatRange" not in names, path


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_root_is_no_directory(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting without a value must not put a store into the current directory."""
    with pytest.raises(ConfigError, match="storePathRootDir"):
        StoreConfig(store_path_root_dir=name)
    monkeypatch.chdir(tmp_path)
    for command in ("broker", "up"):
        done = CliRunner().invoke(main, [command, "--set", f"storePathRootDir={name}"])
        assert done.exit_code and "names no directory" in f"{done.output}{done.exception}", done.output
    assert list(tmp_path.iterdir()) == []
