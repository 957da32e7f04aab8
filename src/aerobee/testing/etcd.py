"""A real etcd for tests: one server on loopback, with the faults that a process has. `make etcd` builds it.

with EtcdServer(directory) as etcd:
    etcd.kill()
    etcd.restart(empty=True)
"""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from aerobee.errors import AerobeeError
from aerobee.testing.apache import PROJECT, free_ports

HOST = "127.0.0.1"
READY_S = 30.0
_POLL_S = 0.05


def etcd_binary() -> Path | None:
    """Return the etcd of `make etcd`, or the one that AEROBEE_ETCD names, or None."""
    named = os.environ.get("AEROBEE_ETCD")
    path = Path(named) if named else PROJECT / ".build" / "etcd" / "etcd"
    return path if path.exists() else None


def etcd_unavailable() -> str | None:
    """Return why etcd cannot run here, or None."""
    return None if etcd_binary() else "etcd is not built (make etcd, which needs Go)"


class EtcdServer:
    """One server. It serves once it is entered, keeps its ports over restarts, and ends with its context."""

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        binary = etcd_binary()
        if binary is None:
            raise AerobeeError(etcd_unavailable() or "")
        self._binary = binary
        self._directory = directory
        self._options = list(options)
        self.port = free_ports(1)
        self.address = f"{HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        client, peer = f"http://{HOST}:{self.port}", f"http://{HOST}:{self.port + 1}"
        scheme = {"--listen-client-urls": client, "--advertise-client-urls": client}
        given = {option.partition("=")[0] for option in self._options}
        self._directory.mkdir(parents=True, exist_ok=True)
        command = [
            str(self._binary),
            "--name=test",
            f"--data-dir={self._directory / 'data'}",
            *(f"{name}={value}" for name, value in scheme.items() if name not in given),
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
            "--log-level=warn",
            *self._options,
        ]
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        for _ in range(int(READY_S / _POLL_S)):
            if self._answers() or self._ended_within(_POLL_S):
                break
        if not self._answers():
            self.kill()
            raise AerobeeError(f"etcd did not start:\n{self.log_text()[-2000:]}")

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def restart(self, *, empty: bool = False) -> None:
        """Kill the server and start it again. `empty`: its directory was lost."""
        self.kill()
        if empty:
            shutil.rmtree(self._directory / "data")
        self.start()

    def log_text(self) -> str:
        return (self._directory / "etcd.log").read_text(errors="replace")

    def _answers(self) -> bool:
        """Return whether the server is healthy: it has elected itself and its disk works."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        scheme = "https" if any(option.startswith("--cert-file") for option in self._options) else "http"
        try:
            with urllib.request.urlopen(f"{scheme}://{self.address}/health", timeout=1, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ended_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
