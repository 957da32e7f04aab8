"""What the service manager is told by real servers, which exit codes it sees, and whether it takes our units."""

from __future__ import annotations

import configparser
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aerobee.testing.commands import PATIENCE_S, aerobee, command, environment, up

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SMALL = ("mappedFileSizeCommitLog=67108864", "maxHashSlotNum=10000", "maxIndexNum=40000")


class Manager:
    """The end of the socket that the service manager reads."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE_S)
        self.address = address

    def told(self) -> str:
        return self._socket.recv(4096).decode()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@aerobee-test-{tmp_path.name}"
    made = Manager(address)
    yield made
    made.close()


@contextmanager
def server(*words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(*words), stdout=pipe, stderr=pipe, text=True, env=environment(**env))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def broker(store: Path, namesrv: str) -> list[str]:
    settings = ("brokerName=served", "listenPort=0", f"storePathRootDir={store}", *SMALL)
    return ["broker", "-n", namesrv, *(word for one in settings for word in ("--set", one))]


def test_systemd_notify_and_no_loop(manager: Manager, tmp_path: Path) -> None:
    with up() as running:
        words = broker(tmp_path / "store", running.namesrv)
        with server(*words, NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="60000000") as process:
            assert manager.told() == "READY=1"
            # Ready means that clients find it.
            assert "served" in {one["broker"] for one in running.json("cluster")["brokers"]}
            assert manager.told() == "WATCHDOG=1"
            process.send_signal(signal.SIGTERM)
            while (told := manager.told()) == "WATCHDOG=1":
                pass
            assert told == "STOPPING=1"
            assert process.wait(PATIENCE_S) == 0

        # A damaged store: not again.
        topics = tmp_path / "store" / "config" / "topics.json"
        for path in (topics, topics.with_name("topics.json.bak")):
            path.write_bytes(b"{" * 100)
        damaged = aerobee(*words)
        assert damaged.returncode == 4, damaged.stderr
        assert "state cannot be read" in damaged.stderr

        # Wrong settings: not again. A port in use: again.
        wrong = aerobee(*words, "--set", "flushDiskType=SOMETIMES")
        assert wrong.returncode == 2, wrong.stderr
        port = running.ready["broker"].rpartition(":")[2]
        taken = aerobee(*broker(tmp_path / "other", running.namesrv), "--set", f"listenPort={port}")
        assert taken.returncode == 1, taken.stderr
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(UNITS / "aerobee-broker@.service")
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Service"]["RestartPreventExitStatus"].split() == ["2", "4"]


def test_a_process_that_nobody_watches_says_only_that_it_is_ready(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    words = ("namesrv", "--set", "listenPort=0")
    with server(*words, NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="1000000", WATCHDOG_PID="1") as process:
        assert manager.told() == "READY=1"
        process.send_signal(signal.SIGTERM)
        assert manager.told() == "STOPPING=1"
        assert process.wait(PATIENCE_S) == 0
    manager.close()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze on the PATH")
def test_systemd_takes_our_units(tmp_path: Path) -> None:
    for unit in sorted(UNITS.glob("*.service")):
        name = unit.name.replace("@.", "@main.")
        # The command is where this test found it.
        text = unit.read_text().replace("/usr/bin/aerobee", f"{Path(sys.executable).parent}/aerobee")
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert not [line for line in done.stderr.splitlines() if name in line], done.stderr
