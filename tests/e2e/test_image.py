"""Test 49: the image of deploy/Containerfile. It needs a container engine, podman or docker."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing.waiting import wait_until

ROOT = Path(__file__).parents[2]


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@functools.cache
def engine_name() -> str | None:
    """Return the engine that works here: a client without its daemon does not."""
    for name in filter(None, map(shutil.which, ("podman", "docker"))):
        if subprocess.run([name, "info"], capture_output=True, check=False, timeout=60).returncode == 0:
            return name
    return None


def engine(*words: str) -> str:
    name = engine_name()
    assert name is not None
    done = subprocess.run([name, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if engine_name() is None:
        pytest.skip("there is no container engine (podman, docker) on this machine")
    name = f"aerobee-test-{uuid.uuid4().hex[:8]}"
    engine("build", "-f", "deploy/Containerfile", "-t", name, ".")
    yield name
    engine("rmi", "-f", name)


def test_image_runs_read_only(image: str) -> None:
    """User 10001, a read-only root file system, and a clean stop within 10 s of SIGTERM."""
    name = f"{image}-up"
    engine(
        "run", "-d", "--name", name, "--read-only", "--tmpfs", "/tmp", "-v", "/data", image, "up", "--data", "/data/up"
    )
    try:
        assert engine("exec", name, "id", "-u").strip() == "10001"
        wait_until(lambda: "10911" in engine("logs", name), "the servers are ready")
        engine("exec", name, "aerobee", "ping", "--wait", "30")
        began_s = time.monotonic()
        engine("stop", "-t", "30", name)
        assert time.monotonic() - began_s < 10
        state = json.loads(engine("inspect", name))[0]["State"]
        assert state["ExitCode"] == 0
    finally:
        engine("rm", "-f", name)
