"""The wheel that fits every Python: built without a compiler, installed apart from the tree, and used from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release")
    words = [sys.executable, str(ROOT / "tools" / "release.py"), "--out", str(out), "--only", "pure", "--no-check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "SHA256SUMS").read_text().count("\n") == 1
    return next(out.glob("*.whl"))


def test_wheel_fallback(wheel: Path, tmp_path: Path) -> None:
    """It installs without a compiler, a broker starts from it, and it says that it is interpreted."""
    assert wheel.name == "aerobee-0.1.0-py3-none-any.whl"
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".pyd", ".c"))]
        assert {"aerobee/py.typed", "pyspark_rocketmq_store/__init__.py"} <= set(archive.namelist())
        archive.extractall(place)
    # The dependencies are those of this environment; `make release` takes an empty one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AEROBEE_")} | {"PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "smoke.py"), "--form", "interpreted"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"(interpreted) from {place}" in done.stdout
    assert "500 messages sent and received, the server ended with 0" in done.stdout


def test_the_versions_agree(wheel: Path) -> None:
    import aerobee

    assert f"aerobee-{aerobee.__version__}-" in wheel.name
    said = subprocess.run([sys.executable, "-m", "aerobee", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"aerobee, version {aerobee.__version__} (")
