"""Test 49: the image of deploy/Containerfile, which needs a container engine (podman, docker).

What the image promises about its processes is also tested without one: in a mount namespace, which needs root.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing.commands import aerobee, command, environment
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


# The name of the mount namespace is this process's own: nothing outside changes.
READ_ONLY = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir /tmp/data
mount -t tmpfs -o mode=700,uid=10001,gid=10001 tmpfs /tmp/data
mount -o remount,bind,ro /
cd /
if touch /written 2>/dev/null; then exit 99; fi
exec setpriv --reuid 10001 --regid 10001 --clear-groups "$@"
"""


def is_possible() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    words = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not is_possible(), reason="only root may make a mount namespace with a read-only root")
def test_servers_run_as_a_plain_user_with_a_read_only_root() -> None:
    """User 10001, a read-only root file system, data in one directory, and a clean stop within 10 s of SIGTERM."""
    up = command("up", "--data", "/tmp/data/up", "--namesrv-port", "0", "--broker-port", "0", "--json")
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", *up],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(HOME="/nonexistent"),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert os.stat(f"/proc/{process.pid}").st_uid == 10001
        for words in (("ping",), ("topic", "create", "-t", "orders"), ("produce", "-t", "orders", "-m", "hello")):
            done = aerobee(*words, "-n", ready["namesrv"])
            assert done.returncode == 0, done.stderr
        began_s = time.monotonic()
        process.terminate()
        _, said = process.communicate(timeout=30)
        assert time.monotonic() - began_s < 10
        assert (process.returncode, "Traceback" in said) == (0, False), said
    finally:
        process.kill()
        process.wait()
