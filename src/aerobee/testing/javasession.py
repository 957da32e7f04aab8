"""Many commands of the Java driver in one JVM, because a JVM takes seconds to start: clients and mqadmin.

The session writes to the JVM's standard input and reads its lines (see `tests/interop/java/driver`, Session).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aerobee.testing.apache import (
    LEGACY,
    NEWEST,
    ApacheError,
    JavaProcess,
    client_system,
    driver_arguments,
    driver_classpath,
)

Event = dict[str, Any]

# A shared machine may stall for so long that a broker answers busy. These tests are not about such answers.
PATIENT = {"brokerFastFailureEnable": "false"}

# The clients that must work, by version and header codec.
CLIENTS = [(version, codec) for version in (LEGACY, NEWEST) for codec in ("JSON", "ROCKETMQ")]


class JavaSession(JavaProcess):
    """A JVM with the official client of `version` and the header `codec`. `system` are further system properties."""

    # A failure of one run leaves the others running.
    killed_when_late = False

    def __init__(
        self,
        work: Path,
        namesrv: str,
        *,
        version: str = NEWEST,
        codec: str = "JSON",
        system: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            driver_classpath(version),
            "interop.Main",
            ["session"],
            work,
            system={**client_system(codec), **(system or {})},
            interactive=True,
        )
        self.namesrv = namesrv
        self.label = f"{version} {codec}"
        self._lines = self.output.open("rb")
        self._partial = b""
        self._runs: dict[str, list[Event]] = {}
        self._count = 0
        self.wait_for('"event":"serving"')

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        self._read()
        self._lines.close()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def named(self, words: str) -> str:
        """Return the name of a topic or group for this kind of client alone."""
        return f"{words}-{self.label.replace('.', '_').replace(' ', '-')}"

    def start(self, command: str, **options: object) -> SessionRun:
        """Start a command beside those that run already; see `Driver.start`."""
        return self._start(command, driver_arguments(self.namesrv, options))

    def run(self, command: str, *, within_s: float = 60, **options: object) -> list[Event]:
        """Run a command, which must succeed; return every line that it printed."""
        return self.start(command, **options).wait(within_s)

    def mqadmin(self, *arguments: str, within_s: float = 60) -> str:
        """Run Apache's admin command and return its output with stack traces: it always reports success."""
        name_server = [] if "-n" in arguments else ["-n", self.namesrv]
        events = self._start("mqadmin", [*arguments, *name_server]).wait(within_s)
        lines = str(next(event["text"] for event in events if event["event"] == "output")).split("\n")
        return "\n".join(line for line in lines if "|-" not in line)

    def tell(self, run: str, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join([run, *words]).encode() + b"\n")
        self.process.stdin.flush()

    def events_of(self, run: str) -> list[Event]:
        """Return the lines of a run so far."""
        if not self._lines.closed:
            self._read()
        return self._runs.setdefault(run, [])

    def _read(self) -> None:
        whole, _, self._partial = (self._partial + self._lines.read()).rpartition(b"\n")
        for line in whole.split(b"\n"):
            if line.startswith(b'{"event"'):
                event: Event = json.loads(line)
                self._runs.setdefault(event.get("run", ""), []).append(event)

    def _start(self, command: str, arguments: list[str]) -> SessionRun:
        self._count += 1
        run = SessionRun(self, f"{command}-{self._count}")
        self.tell(run.name, command, *arguments)
        return run


class Jvms:
    """The JVMs of a test session: one for each kind of client, used for one cluster after the other."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._sessions: dict[tuple[str, str], JavaSession] = {}

    def __enter__(self) -> Jvms:
        return self

    def __exit__(self, *details: Any) -> None:
        for session in self._sessions.values():
            session.__exit__(*details)

    def at(self, namesrv: str, version: str, codec: str) -> JavaSession:
        """Return the JVM of this kind. Its next commands use `namesrv`."""
        session = self._sessions.get((version, codec))
        if session is None:
            work = self._work / f"{version}-{codec}"
            session = self._sessions[version, codec] = JavaSession(work, namesrv, version=version, codec=codec)
        session.namesrv = namesrv
        return session


class SessionRun:
    """A command in a session."""

    def __init__(self, session: JavaSession, name: str) -> None:
        self._session = session
        self.name = name

    def events(self, kind: str | None = None) -> list[Event]:
        events = self._session.events_of(self.name)
        return [event for event in events if kind is None or event["event"] == kind]

    def wait_for_events(self, kind: str, count: int = 1, timeout_s: float = 60) -> list[Event]:
        """Wait until `count` lines of `kind` were printed."""
        what = f"{count} {kind} lines of {self.name}"
        self._session.wait_until(lambda: len(self.events(kind)) >= count, what, timeout_s)
        return self.events(kind)

    def wait_for_message(self, kind: str, part: str, timeout_s: float = 60) -> None:
        """Wait until a line of `kind` was printed whose message has that part."""
        what = f"{kind} line with {part!r} of {self.name}"
        self._session.wait_until(lambda: any(part in e["message"] for e in self.events(kind)), what, timeout_s)

    def wait(self, timeout_s: float = 60) -> list[Event]:
        """Wait for the end, which must be a success; return every line that was printed."""
        self.wait_for_events("end", 1, timeout_s)
        if self.events("end")[0]["status"]:
            said = [event for event in self.events() if event["event"] not in ("sent", "message")]
            raise ApacheError(f"{self.name} failed: {said[-10:]}")
        return self.events()

    def stop(self, timeout_s: float = 60) -> list[Event]:
        """End the command in good order."""
        self._session.tell(self.name, "stop")
        return self.wait(timeout_s)

    def facts(self) -> Mapping[str, Any]:
        """Return the fields of the `started` line."""
        return self.wait_for_events("started")[0]
