"""Which Python `make setup` takes: asked of scripts that answer as a Python would."""

import json
import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "choose_python.py"


def _python(directory: Path, *, usable: bool = True, optimised: bool = True) -> str:
    """A `python3` in a directory of its own: what it would say of itself."""
    directory.mkdir()
    path = directory / "python3"
    path.write_text(f"#!/bin/sh\necho '{json.dumps([usable, optimised, str(path), '3.12.1'])}'\n")
    path.chmod(0o755)
    return str(path)


def _choose(*directories: Path) -> tuple[str, str]:
    path = os.pathsep.join(map(str, directories))
    done = subprocess.run(
        [sys.executable, TOOL], env={"PATH": path}, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip(), done.stderr


def test_the_first_is_taken_without_a_word_if_it_is_optimised(tmp_path: Path) -> None:
    first = _python(tmp_path / "a")
    _python(tmp_path / "b")
    assert _choose(tmp_path / "a", tmp_path / "b") == (first, "")


def test_an_optimised_one_is_taken_before_it_and_said_so(tmp_path: Path) -> None:
    first = _python(tmp_path / "a", optimised=False)
    second = _python(tmp_path / "b")
    chosen, said = _choose(tmp_path / "a", tmp_path / "b")
    assert chosen == second
    assert f"{first} was built without optimisation" in said
    assert "PY=" in said


def test_one_that_cannot_make_a_venv_or_does_not_start_is_passed_over(tmp_path: Path) -> None:
    first = _python(tmp_path / "a", optimised=False)
    _python(tmp_path / "b", usable=False)
    broken = Path(_python(tmp_path / "c"))
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert _choose(tmp_path / "nowhere", tmp_path / "a", tmp_path / "b", tmp_path / "c") == (first, "")


def test_without_any_the_name_is_left_to_say_what_is_missing(tmp_path: Path) -> None:
    assert _choose(tmp_path) == ("python3", "")
