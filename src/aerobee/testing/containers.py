"""A container engine for tests of the image: podman or docker as it is, or podman on a storage of its own.

Where the base image cannot be pulled, root makes a stand-in by debootstrap: Debian with its own Python and pip. It lies
in a storage of its own under `.build/image`, where nobody takes it for the real one.
"""

from __future__ import annotations

import configparser
import os
import resource
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerobee.errors import AerobeeError

PROJECT: Final = Path(__file__).parents[3]
RELEASE: Final = "bookworm"
_PACKAGES: Final = ("python3", "python3-pip", "libpython3-dev", "ca-certificates")
_PIP_CONF: Final = "/etc/pip.conf"


class ContainerError(AerobeeError):
    """A command of the engine failed, or no container can be run here. The message says why."""


@dataclass(frozen=True)
class Engine:
    """How containers are built and run here."""

    words: tuple[str, ...]
    for_both: tuple[str, ...] = ()
    for_build: tuple[str, ...] = ()

    def __call__(self, *words: str) -> str:
        """Run a command of the engine, which must succeed; return its output."""
        done = self._done(words)
        if done.returncode:
            raise ContainerError(
                f"{self.words[0]} {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def build(self, *words: str) -> str:
        return self("build", *self.for_both, *self.for_build, *words)

    def run(self, *words: str) -> str:
        """Run a container that has nothing but its own loopback."""
        return self("run", *self.for_both, "--network", "none", *words)

    def refusal(self, *words: str) -> str | None:
        """Run a command; return the last line of its errors if it fails."""
        done = self._done(words)
        return (done.stderr.strip() or "no output").splitlines()[-1] if done.returncode else None

    def _done(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.words, *words], cwd=PROJECT, capture_output=True, text=True, check=False)


def found_engine(base: str) -> Engine:
    """Return an engine that has the image `base` and runs containers. Raise ContainerError where there is none."""
    names = [name for name in ("podman", "docker") if shutil.which(name) and Engine((name,)).refusal("info") is None]
    if not names:
        raise ContainerError("there is no container engine (podman, docker) on this machine")
    engine = _podman() if names[0] == "podman" else Engine(("docker",))
    refusal = engine.refusal("pull", "-q", base)
    if refusal is not None:
        if names[0] != "podman" or os.geteuid() != 0 or shutil.which("debootstrap") is None:
            raise ContainerError(
                f"{base} cannot be pulled, and a stand-in needs root, podman and debootstrap ({refusal})"
            )
        engine = _with_stand_in(PROJECT / ".build" / "image", base)
    return _that_runs(engine, base)


def _podman(*options: str) -> Engine:
    # It asks for more open files than every root may have, and for more processes than it leaves to itself.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = ("--ulimit", f"nofile={files}:{files}", "--ulimit", "nproc=4096:4096")
    # The Docker format keeps HEALTHCHECK.
    build = ("--network", "host", "--format", "docker", "--layers=false")
    return Engine(("podman", *options), limits, build)


def _that_runs(engine: Engine, base: str) -> Engine:
    """Return the engine with the first runtime that starts a container."""
    refusals = []
    for runtime in ((), ("--runtime", "runc"), ("--runtime", "crun")) if engine.words[0] == "podman" else ((),):
        tried = Engine((*engine.words, *runtime), engine.for_both, engine.for_build)
        refusal = tried.refusal("run", "--rm", *engine.for_both, "--network", "none", base, "true")
        if refusal is None:
            return tried
        refusals.append(refusal)
    raise ContainerError(f"no container starts on this machine: {'; '.join(refusals)}")


def _with_stand_in(work: Path, base: str) -> Engine:
    """Return podman on its own storage, with a stand-in for the base image in it."""
    work.mkdir(parents=True, exist_ok=True)
    # podman takes 50 characters at most for this directory.
    running = f"/run/aerobee-image-{zlib.crc32(str(work).encode()):08x}"
    engine = _podman("--root", str(work / "storage"), "--runroot", running, "--tmpdir", f"{running}/libpod")
    if engine.refusal("image", "exists", base) is not None:
        _import_debian(engine, work, base)
    return Engine(engine.words, engine.for_both, (*engine.for_build, *_package_settings(work)))


def _import_debian(engine: Engine, work: Path, base: str) -> None:
    with tempfile.TemporaryDirectory(dir=work) as root:
        words = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", RELEASE, root]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ContainerError(
                f"debootstrap ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        os.chmod(root, 0o755)
        # Debian's pip leaves its system alone. Python's own images have no such rule.
        for mark in Path(root).glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        archive = work / "base.tar"
        subprocess.run(["tar", "-C", root, "-cf", str(archive), "."], check=True)
        try:
            engine("import", str(archive), base)
        finally:
            archive.unlink()


def _package_settings(work: Path) -> list[str]:
    """Return options that show this machine's settings of pip to a build. They do not come into the image."""
    settings = configparser.RawConfigParser()
    settings.read(_PIP_CONF)
    if not settings.has_section("global"):
        settings.add_section("global")
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            settings.set("global", name[4:].lower().replace("_", "-"), value)
    settings.remove_option("global", "find-links")
    path = work / "pip.conf"
    path.touch(0o600)
    with path.open("w") as file:
        settings.write(file)
    shown = [(str(path), _PIP_CONF)]
    certificates = settings.get("global", "cert", fallback="")
    if os.path.isfile(certificates):
        shown.append((certificates, certificates))
    return [word for source, target in shown for word in ("-v", f"{source}:{target}:ro")]
