"""Test 49: the image of deploy/Containerfile, which needs a container engine (podman, docker).

What the image promises about its processes is also tested without one: in a mount namespace, which needs root.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing.commands import aerobee, command, environment
from aerobee.testing.containers import ContainerError, Engine, found_engine
from aerobee.testing.waiting import wait_until

CONTAINERFILE = Path(__file__).parents[2] / "deploy" / "Containerfile"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    base, *others = set(re.findall(r"^FROM (\S+)", CONTAINERFILE.read_text(), re.MULTILINE))
    assert not others
    try:
        return found_engine(base)
    except ContainerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def image(engine: Engine) -> Iterator[str]:
    name = f"localhost/aerobee-test-{uuid.uuid4().hex[:8]}"
    engine.build("-f", str(CONTAINERFILE), "-t", name, ".")
    yield name
    engine("rmi", "-f", name)


def test_image_runs_read_only(engine: Engine, image: str) -> None:
    """User 10001, a read-only root file system, a probe that passes, and a clean stop within 10 s of SIGTERM."""
    name = image.rpartition("/")[2]
    engine.run(
        "-d", "--name", name, "--read-only", "--tmpfs", "/tmp", "-v", "/data", image, "up", "--data", "/data/up"
    )  # fmt: skip
    try:
        assert engine("exec", name, "id", "-u").strip() == "10001"
        assert "Read-only file system" in str(engine.refusal("exec", "-u", "0", name, "touch", "/written"))
        assert "(compiled)" in engine("exec", name, "aerobee", "--version")
        assert engine.refusal("exec", name, "gcc", "--version") is not None, "the second stage has a compiler"
        wait_until(lambda: "10911" in engine("logs", name), "the servers are ready")
        engine("exec", name, "aerobee", "ping", "--wait", "30")
        for words in (("topic", "create", "-t", "orders"), ("produce", "-t", "orders", "-m", "hello")):
            engine("exec", name, "aerobee", *words)
        probe = json.loads(engine("inspect", name))[0]["Config"]["Healthcheck"]["Test"]
        assert probe[0] == "CMD"
        engine("exec", name, *probe[1:])
        began_s = time.monotonic()
        engine("stop", "-t", "30", name)
        assert time.monotonic() - began_s < 10
        state = json.loads(engine("inspect", name))[0]["State"]
        assert state["ExitCode"] == 0
    finally:
        engine("rm", "-f", "-v", name)


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
    # The namespace has a /tmp of its own: what lies there now must not be needed.
    words = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", sys.executable, "-c", "import aerobee"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not is_possible(),
    reason="only root may make a mount namespace with a read-only root, and the tree must not lie in /tmp",
)
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
