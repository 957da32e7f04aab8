"""The `aerobee` command as a user runs it: each command in a process of its own, and `aerobee up` beside a test.

with up("--brokers", "2") as running:
    assert running.json("topic", "list")["topics"] == []
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aerobee.runtime.clock import SystemClock
from aerobee.testing.secrets import require_unseen

# The limit for a command on a busy machine. No test waits for this time to pass.
PATIENCE_S = 60
UP: Sequence[str] = ("up", "--namesrv-port", "0", "--broker-port", "0", "--json")
_CLOCK = SystemClock()


def command(*words: str) -> list[str]:
    """Return the words of a command for `subprocess`."""
    return [sys.executable, "-m", "aerobee", *words]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without the variables that change what commands print."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AEROBEE_LOG", "NAMESRV"))}
    return {**kept, "NO_COLOR": "1", **more}


def aerobee(*words: str, feed: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    done = subprocess.run(
        command(*words),
        capture_output=True, text=True, timeout=PATIENCE_S, env=environment(**env), input=feed, check=False,
    )  # fmt: skip
    if "--show-secrets" not in words:
        require_unseen(f"aerobee {' '.join(words)}", done.stdout + done.stderr)
    return done


class Up:
    """A running `aerobee up --json`. `ready` is what it printed when it began to serve."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"it ended: {process.stderr.read() if process.stderr else ''}"
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def namesrv(self) -> str:
        address: str = self.ready["namesrv"]
        return address

    @property
    def members(self) -> list[int]:
        """The process ids of its broker groups, where there are several."""
        return [one["pid"] for one in self.ready["brokers"]]

    def run(self, *words: str, feed: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command against this cluster."""
        return aerobee(*words, feed=feed, NAMESRV_ADDR=self.namesrv)

    def json(self, *words: str) -> Any:
        """Run a command, which must succeed, and return what it prints with `--json`."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        self._said()
        return self.process.returncode

    def _said(self) -> str:
        """Return what was printed on stderr, when it has ended."""
        shown, said = self.process.communicate(timeout=PATIENCE_S)
        require_unseen("aerobee up", f"{shown}\n{said}")
        return said

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, float, str]:
        """Send a signal; return the exit code, the seconds until the end and what was printed on stderr."""
        started_s = _CLOCK.monotonic()
        self.process.send_signal(how)
        said = self._said()
        return self.process.returncode, _CLOCK.monotonic() - started_s, said


@contextmanager
def up(*words: str) -> Iterator[Up]:
    """Run `aerobee up` with these words on free ports; stop it at the end of the block if it still runs."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(*UP, *words), stdout=pipe, stderr=pipe, text=True, env=environment())
    try:
        yield Up(process)
    finally:
        process.terminate()
        try:
            shown, said = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            shown, said = process.communicate()
        require_unseen("aerobee up", f"{shown}\n{said}")


@contextmanager
def proxy_of(*words: str, files: int = 0) -> Iterator[str]:
    """Run `aerobee proxy` with these words on a free port; return its address. `files` limits its open files."""
    pipe = subprocess.PIPE
    started = command("proxy", "--set", "grpcServerPort=0", "--json", *words)
    if files:
        started = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "limited", *started]
    process = subprocess.Popen(started, stdout=pipe, text=True, env=environment())
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the proxy did not start"
        yield json.loads(line)["proxy"]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
