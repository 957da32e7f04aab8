"""Build what is published, and check each piece: sdist, this machine's wheel, and the wheel that fits every Python.

    python tools/release.py [--out DIR] [--only pure|native|sdist] [--no-check] [--no-gcc]

A piece is checked by installing it into an empty environment, where no C compiler is found, and running tools/smoke.py
and the messaging half of the demo from there. The sdist is checked a second time with a compiler, where there is one
(not with --no-gcc). SHA256SUMS names everything. The wheels of other platforms come from cibuildwheel (pyproject.toml).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FORMS = {"native": ("bdist_wheel", "1"), "pure": ("bdist_wheel", "0"), "sdist": ("sdist", "0")}
# The smallest demo that kills a broker, without Spark.
DEMO = ("-m", "aerobee.demo", "--no-spark", "--orders", "5000")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "release")
    parser.add_argument("--only", choices=tuple(FORMS), action="append")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--no-gcc", action="store_true", help="compile nothing while checking")
    given = parser.parse_args()
    version = consistent_version()
    given.out.mkdir(parents=True, exist_ok=True)
    for old in given.out.iterdir():
        old.unlink()
    built = {form: build(form, given.out) for form in given.only or FORMS}
    for form, file in built.items():
        inspect(form, file, version)
    if not given.no_check:
        for form, file in built.items():
            check(file, "compiled" if form == "native" else "interpreted")
        if "sdist" in built and not given.no_gcc and shutil.which("gcc"):
            check(built["sdist"], "compiled", path=os.environ["PATH"])
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(built.values()))
    (given.out / "SHA256SUMS").write_text(sums)
    print(f"release {version} in {given.out}:\n{sums}", end="")
    return 0


def consistent_version() -> str:
    """Return the version that pyproject.toml, the package and the changelog agree on."""
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    package = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/aerobee/__init__.py").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    found = {one.group(1) if one else "none" for one in (project, package, newest)}
    if len(found) != 1:
        raise SystemExit(f"release: pyproject.toml, aerobee.__version__ and CHANGELOG.md name versions {sorted(found)}")
    return found.pop()


def tracked_copy(target: Path) -> Path:
    """Return a copy of what git tracks: a build leaves its traces in the tree that it is made from."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def build(form: str, out: Path) -> Path:
    """Build one piece with the setuptools of this Python, and return its file."""
    goal, compiled = FORMS[form]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="aerobee-release-") as work:
        source = tracked_copy(Path(work) / "source")
        target = Path(work) / "dist"
        environment = {k: v for k, v in os.environ.items() if k != "AEROBEE_PURE"} | {"AEROBEE_COMPILE": compiled}
        hook = "build_sdist" if goal == "sdist" else "build_wheel"
        code = f"from setuptools import build_meta; build_meta.{hook}({str(target)!r})"
        target.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=source, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"release: {form} could not be built:\n{(done.stdout + done.stderr)[-3000:]}")
        (made,) = target.iterdir()
        file = Path(shutil.move(made, out / made.name))
    print(f"release: built {file.name} in {time.perf_counter() - started:.0f} s", flush=True)
    return file


def inspect(form: str, file: Path, version: str) -> None:
    """Look into a piece: its name, what must be in it, and what must not."""
    if form == "sdist":
        with tarfile.open(file) as archive:
            names = [name.partition("/")[2] for name in archive.getnames()]
        wanted = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src/aerobee/hot/log/record.py"}
        problem = wanted - set(names)
    else:
        with zipfile.ZipFile(file) as wheel:
            names = wheel.namelist()
        modules = [name for name in names if name.endswith((".so", ".pyd"))]
        wanted = {"aerobee/py.typed", "pyspark_rocketmq/py.typed", f"aerobee-{version}.dist-info/entry_points.txt"}
        problem = wanted - set(names)
        is_pure = file.name.endswith("-py3-none-any.whl")
        if is_pure != (form == "pure") or bool(modules) != (form == "native"):
            raise SystemExit(f"release: {file.name} is not {form} ({len(modules)} compiled modules)")
    if problem:
        raise SystemExit(f"release: {file.name} lacks {', '.join(sorted(problem))}")
    if f"-{version}" not in file.name:
        raise SystemExit(f"release: {file.name} is not version {version}")


def check(file: Path, form: str, *, path: str | None = None) -> None:
    """Install a piece into an empty environment and use it from there. Without `path` no compiler is found."""
    started = time.perf_counter()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AEROBEE_", "PYTHON"))}
    environment.pop("CC", None)
    with tempfile.TemporaryDirectory(prefix="aerobee-release-") as work:
        venv.create(Path(work) / "venv", with_pip=True, symlinks=True)
        python = Path(work) / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        environment["PATH"] = path or str(python.parent)

        def run(*words: str) -> str:
            done = subprocess.run(
                [str(python), *words], cwd=work, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"release: {file.name}: {' '.join(words)}:\n{(done.stdout + done.stderr)[-3000:]}")
            return done.stdout

        run("-m", "pip", "install", "-q", "--disable-pip-version-check", str(file))
        installed_s = time.perf_counter() - started
        smoke = Path(shutil.copy(ROOT / "tools" / "smoke.py", work))
        print(run(str(smoke), "--form", form), end="")
        if "5,000         5,000     5,000     0" not in run(*DEMO):
            raise SystemExit(f"release: the demo of {file.name} lost messages")
    said = f"{'without' if path is None else 'with'} a compiler, as {form}, in {installed_s:.0f} s"
    print(f"release: {file.name} installs {said}; the smoke test and the demo run from it", flush=True)


if __name__ == "__main__":
    sys.exit(main())
