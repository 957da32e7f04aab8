"""The stage: servers in a process of their own, a witness that uses them, and the checks after each case.

While a case runs, a witness sends, pulls and asks for routes all the time. Four things are checked afterwards: the
witness never waited longer than 0.1 s; the servers' memory is back within 32 MiB after 5 s; no request ended in an
unexpected exception or filled the log; after a restart everything that was acknowledged is there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from aerobee.hot.log.record import decode_records
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import RequestCode
from aerobee.runtime.clock import SystemClock
from aerobee.testing.commands import PATIENCE_S, UP, Up, command, environment
from aerobee.testing.hostile.attacker import Attacker, Kept, Line
from aerobee.testing.hostile.witness import TOPIC, pull_fields

WAIT_MAX_S: Final = 0.1
# Interpreted, one request takes several times as long.
WAIT_INTERPRETED_MAX_S: Final = 0.3
MEMORY_MAX: Final = 32 << 20
# The most memory that the servers may use while a case runs.
PEAK_MAX: Final = 640 << 20
# Log lines fill a disk too.
LOG_MAX: Final = 1 << 20
_SETTLE_S: Final = 5.0
_TRIES: Final = 3
_PULL_MAX: Final = 1024
_CLOCK: Final = SystemClock()

Case = Callable[[Attacker], None]


class HurtError(AssertionError):
    """A case harmed others. The message says how."""


@dataclass(frozen=True, slots=True)
class SideEffects:
    """The effects of one case on others."""

    longest_s: float
    by_the_clock_s: float
    at: str
    grown: int
    peak: int
    rounds: int

    def __str__(self) -> str:
        return (
            f"waited {self.longest_s * 1000:4.0f} ms for {self.at or 'nothing'} ({self.by_the_clock_s * 1000:.0f} by"
            f" the clock), memory {self.grown / (1 << 20):+.0f} MiB (peak {self.peak >> 20}), {self.rounds} rounds"
        )


class Stage:
    """The servers and the witness: `with Stage(directory) as stage: stage.perform(case)`."""

    def __init__(self, directory: Path, *settings: str, wait_max_s: float = WAIT_MAX_S) -> None:
        self._directory = directory
        self._settings = settings
        self._wait_max_s = wait_max_s
        self._up: Up | None = None
        self._witness: subprocess.Popen[str] | None = None
        self._witnessed: list[bytes] = []
        self._kept: list[Kept] = []
        self._restarts = 0
        self._log_read = 0

    def __enter__(self) -> Stage:
        self._start()
        words = [sys.executable, "-m", "aerobee.testing.hostile.witness"]
        pipe = subprocess.PIPE
        self._witness = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment())
        with Line(self.broker) as line:
            ext = {
                "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            answer = line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
            assert answer is not None and answer.code == 0, answer
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._witness, self._up.process if self._up is not None else None):
            if process is not None:
                process.kill()
                process.communicate()

    @property
    def broker(self) -> str:
        assert self._up is not None
        address: str = self._up.ready["broker"]
        return address

    def perform(self, case: Case) -> SideEffects:
        """Run a case beside the witness; raise HurtError where the witness notices it.

        A wait over the limit counts only where it comes again, because the machine may do other things too.
        """
        seen: list[SideEffects] = []
        for _ in range(_TRIES):
            seen.append(self._once(case))
            if seen[-1].longest_s <= self._wait_max_s:
                return seen[-1]
        raise HurtError(f"others waited: {'; '.join(map(str, seen))}")

    def _once(self, case: Case) -> SideEffects:
        assert self._up is not None
        self._watch()
        before = self._memory("RssAnon")
        attacker = Attacker(self.broker, self._up.namesrv, urlsplit(self._up.ready["metrics"][0]).netloc)
        try:
            case(attacker)
        except OSError as error:
            # Where the server ended, that is the failure, not the error that the attacker saw.
            if self._up.process.poll() is None:
                raise HurtError(f"the server did not answer the attacker: {error!r}") from error
        finally:
            attacker.close()
            told = self._watched()
        self._witnessed += [body.encode() for body in told["acknowledged"]]
        self._kept += attacker.kept
        if self._up.process.poll() is not None:
            raise HurtError(f"the server ended: {self._said()}")
        if told["problem"]:
            raise HurtError(f"{told['problem']}; the server said: {self._said()}")
        peak = self._memory("VmHWM")
        if peak > before + PEAK_MAX:
            raise HurtError(f"memory grew from {before >> 20} to {peak >> 20} MiB for a while")
        grown = self._settled(before)
        self._no_exceptions()
        self._restart()
        self._check()
        self._no_exceptions()
        return SideEffects(told["longest_s"], told["by_the_clock_s"], told["at"], grown, peak, told["rounds"])

    # -- the witness

    def _watch(self) -> None:
        assert self._witness is not None and self._witness.stdin is not None and self._witness.stdout is not None
        assert self._up is not None
        asked = {"broker": self.broker, "namesrv": self._up.namesrv, "pid": self._up.process.pid}
        self._witness.stdin.write(json.dumps(asked) + "\n")
        self._witness.stdin.flush()
        self._witness.stdout.readline()  # it is ready

    def _watched(self) -> dict[str, Any]:
        assert self._witness is not None and self._witness.stdin is not None and self._witness.stdout is not None
        self._witness.stdin.write("stop\n")
        self._witness.stdin.flush()
        told: dict[str, Any] = json.loads(self._witness.stdout.readline())
        return told

    # -- the server

    def _start(self) -> None:
        words = command(*UP, "--data", str(self._directory), *self._words())
        with self._log.open("ab") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment())
        self._up = Up(process)

    def _words(self) -> Iterator[str]:
        small = ("mappedFileSizeCommitLog=67108864", "maxIndexNum=40000", "maxHashSlotNum=10000")
        for one in (*small, "metricsExporterType=PROM", "metricsPromExporterPort=0", *self._settings):
            yield "--set"
            yield one

    @property
    def _log(self) -> Path:
        return self._directory.parent / f"{self._directory.name}.log"

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _no_exceptions(self) -> None:
        """Raise HurtError for an unexpected exception in the servers' log, even where the request was answered."""
        with self._log.open("rb") as log:
            log.seek(self._log_read)
            said = log.read()
        self._log_read += len(said)
        if len(said) > LOG_MAX:
            raise HurtError(f"the server wrote {len(said)} bytes of log, at last {said[-300:]!r}")
        for line in said.splitlines():
            if b"Traceback" in line or b"never retrieved" in line:
                raise HurtError(f"an unexpected exception in the log: {line[:4000].decode(errors='replace')}")

    def _restart(self) -> None:
        """Restart the servers, alternately by kill -9 and in order."""
        assert self._up is not None
        self._restarts += 1
        process = self._up.process
        process.send_signal(signal.SIGKILL if self._restarts % 2 else signal.SIGTERM)
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise HurtError(f"the server did not stop in {PATIENCE_S} s: {self._said()}") from error
        if self._restarts % 2 == 0 and process.returncode != 0:
            raise HurtError(f"the server did not stop in order ({process.returncode}): {self._said()}")
        try:
            self._start()
        except AssertionError as error:
            raise HurtError(f"the server does not start again: {self._said()}") from error

    def _memory(self, name: str) -> int:
        """Return a line of the process's status in bytes, or 0 where the system has none."""
        assert self._up is not None
        try:
            text = Path(f"/proc/{self._up.process.pid}/status").read_text()
        except OSError:
            return 0
        found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:")]
        return parse_int(found[0]) * 1024 if found else 0

    def _settled(self, before: int) -> int:
        """Return by how much memory has grown, once that is within the limit."""
        until_s = _CLOCK.monotonic() + _SETTLE_S
        while (now := self._memory("RssAnon")) > before + MEMORY_MAX:
            if _CLOCK.monotonic() > until_s:
                raise HurtError(f"memory grew from {before >> 20} to {now >> 20} MiB and stayed")
            threading.Event().wait(0.1)
        return now - before

    # -- what must be there

    def _check(self) -> None:
        """Check that all acknowledged messages are there: the witness's in order, the attacker's at their offsets."""
        with Line(self.broker) as line:
            found = iter([body for _, body in _read(line, TOPIC, 0, 0)])
            missing = [body for body in self._witnessed if body not in found]
            if missing:
                raise HurtError(
                    f"{len(missing)} of {len(self._witnessed)} acknowledged messages are gone: {missing[:3]}"
                )
            for queue in {(one.topic, one.queue_id) for one in self._kept}:
                wanted = [one for one in self._kept if (one.topic, one.queue_id) == queue]
                there = dict(_read(line, *queue, min(one.offset for one in wanted)))
                lost = [one for one in wanted if there.get(one.offset) != one.body]
                if lost:
                    raise HurtError(f"{len(lost)} of {len(wanted)} acknowledged messages are gone: {lost[:3]}")


def _read(line: Line, topic: str, queue_id: int, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and body of every message of a queue."""
    while True:
        answer = line.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset, _PULL_MAX))
        if answer is None or answer.code != 0:
            return
        for record in decode_records(answer.body):
            yield record.queue_offset, record.body
        offset = parse_int(answer.ext["nextBeginOffset"])


def wait_max_s() -> float:
    """Return how long the witness may wait: longer where the servers are interpreted."""
    return WAIT_INTERPRETED_MAX_S if os.environ.get("AEROBEE_PURE") or not _compiled() else WAIT_MAX_S


def _compiled() -> bool:
    from aerobee._pure import is_compiled

    return is_compiled()
