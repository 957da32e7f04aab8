"""`pip install .` into a fresh environment, with a C compiler and without one, and what it installed is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="paths as Unix has them"),
]
ROOT = Path(__file__).parents[2]
# A build with mypyc takes two minutes of a quiet core.
BUILD_S = 1200
COMPILED = "import aerobee.hot.log.record as one; print(one.__file__.endswith('.so'))"


def source(target: Path) -> Path:
    """Return a copy of what git tracks: a build leaves its traces in the tree it is made from."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def without_compilers(directory: Path) -> str:
    """Return a PATH that holds every program of ours but C compilers."""
    directory.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            is_compiler = any(word in program.name for word in ("cc", "gcc", "clang", "c++", "g++", "c89", "c99"))
            link = directory / program.name
            if not is_compiler and not link.exists():
                link.symlink_to(program)
    return str(directory)


@pytest.mark.parametrize("has_compiler", [True, False], ids=["with a compiler", "without one"])
def test_pip_installs_it_and_the_demo_runs_from_there(has_compiler: bool, tmp_path: Path) -> None:
    if has_compiler and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler on this machine")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AEROBEE_", "PYTHON"))}
    if not has_compiler:
        environment["PATH"] = without_compilers(tmp_path / "bin")
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = str(tmp_path / "venv/bin/python")

    def run(*words: str) -> str:
        done = subprocess.run(
            [python, *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", "-q", "--disable-pip-version-check", str(source(tmp_path / "source")))
    assert run("-c", COMPILED).strip() == str(has_compiler)
    told = run("-m", "aerobee.demo", "--no-spark", "--orders", "5000")
    assert "5,000         5,000     5,000     0" in told
