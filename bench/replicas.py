"""A master with one slave, ours beside Apache's, loaded in turn by the same raw frames. `make bench-replicas` runs it.

python bench/replicas.py [--scale 1.0] [--rounds 3] [--rows "NAME;NAME"] [--table]

CPU is what master and slave used together. All pairs have the same settings: brokerRole SYNC_MASTER with inSyncReplicas
2, or ASYNC_MASTER, and asynchronous flush. While one pair is measured the others stand still.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import table
from bench.contenders import PROJECT, SETTLE_S, Contender, Usage, build_loadgen
from bench.frames import JSON, send_templates
from bench.loads import run_loads
from bench.peer import Load

from aerobee.model.dialect import loads_object
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import decode_frame, encode_command, request
from aerobee.testing.apache import free_ports

OUT = PROJECT / "out" / "bench"
KEPT = OUT / "replicas.json"
WARMING = 150_000
CAUGHT_UP_S = 60.0

LOADS = (
    Load("sync replication 1 KB, 4 x 32", size=1024),
    Load("sync replication 1 KB, 16 x 1", size=1024, connections=16, window=1, count=60_000),
    Load("fixed 5,000/s of 1 KB, sync replication", size=1024, connections=8, window=100_000, count=100_000, rate=5000),
    Load("async replication 1 KB, 4 x 32", size=1024),
)


class Pair:
    """A master and its slave."""

    def __init__(self, name: str, work: Path, namesrv: str, *, sync: bool) -> None:
        self.name = name
        role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
        shared = {
            "namesrvAddr": namesrv, "brokerIP2": "127.0.0.1", "totalReplicas": 2, "inSyncReplicas": 2 if sync else 1,
            "brokerName": f"{name}-{role.lower()}",
        }  # fmt: skip
        self.master = Contender(name, work / "master", {**shared, "brokerRole": role})
        self.slave = Contender(name, work / "slave", {**shared, "brokerId": 1, "brokerRole": "SLAVE"})
        self.port = self.master.port

    @property
    def members(self) -> tuple[Contender, Contender]:
        return self.master, self.slave

    def usage(self) -> Usage:
        both = [member.usage() for member in self.members]
        return Usage(sum(one.cpu_s for one in both), sum(one.resident_mb for one in both))

    def wait_until_level(self) -> None:
        """Wait until the slave has all of the master's log."""
        deadline = time.monotonic() + CAUGHT_UP_S
        while _log_end(self.master.port) != _log_end(self.slave.port):
            if time.monotonic() > deadline:
                raise SystemExit(f"the slave of {self.name} did not catch up within {CAUGHT_UP_S:.0f} s")
            time.sleep(0.05)

    @contextlib.contextmanager
    def running_alone(self, pairs: Sequence[Pair]) -> Iterator[None]:
        for pair in pairs:
            for member in pair.members:
                member.process.send_signal(signal.SIGCONT if pair is self else signal.SIGSTOP)
        time.sleep(SETTLE_S)
        # A connection that was silent for long is made anew. The slave is measured when it follows again.
        self.wait_until_level()
        try:
            yield
        finally:
            for pair in pairs:
                for member in pair.members:
                    member.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for member in reversed(self.members):
            member.stop()


def _log_end(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(encode_command(request(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=1)))
        with connection.makefile("rb") as stream:
            length = stream.read(4)
            answer = decode_frame(length + stream.read(int.from_bytes(length, "big")))
    return int(loads_object(answer.body)["table"]["commitLogMaxOffset"])


@contextlib.contextmanager
def name_server() -> Iterator[str]:
    """Run one name server of ours, which tells all slaves where their masters are."""
    port = free_ports()
    words = [sys.executable, "-m", "aerobee", "namesrv", "--set", f"listenPort={port}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


class ReplicaBench:
    """Runs the loads against the pairs and keeps every figure."""

    def __init__(self, names: list[str], rounds: int, scale: float) -> None:
        self.figures: table.Figures = {}
        self._names = names
        self._rounds = rounds
        self._scale = scale
        self._loadgen = build_loadgen(OUT / "loadgen")
        self._templates = OUT / "replica-templates.bin"

    def run(self, loads: Sequence[Load]) -> None:
        for sync in (True, False):
            chosen = [load for load in loads if ("async" not in load.name) is sync]
            if chosen:
                self._run(chosen, sync=sync)

    def _run(self, loads: Sequence[Load], *, sync: bool) -> None:
        pairs: list[Pair] = []
        with name_server() as namesrv:
            try:
                for name in self._names:
                    pairs.append(Pair(name, OUT / "work" / name, namesrv, sync=sync))
                for pair in pairs:
                    self._warm(pair)
                for load in loads:
                    for _ in range(self._rounds):
                        for pair in pairs:
                            with pair.running_alone(pairs):
                                self._measure(pair, load)
                    print("\n".join(table.lines(load.name, self.figures[load.name], self._names)), flush=True)
            finally:
                for pair in pairs:
                    pair.stop()

    def _warm(self, pair: Pair) -> None:
        send_templates(self._templates, "bench", 4, 1024, JSON)
        for _ in range(3):
            self._generate(pair, Load("warming"), int(WARMING * self._scale))
        pair.wait_until_level()

    def _generate(self, pair: Pair, load: Load, count: int) -> dict[str, Any]:
        numbers = (load.connections, load.window, count, load.rate, 120)
        words = [self._loadgen, "127.0.0.1", pair.port, self._templates, "send", *numbers]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"{load.name} against {pair.name}: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _measure(self, pair: Pair, load: Load) -> None:
        before = pair.usage().cpu_s
        answer = self._generate(pair, load, int(load.count * self._scale))
        pair.wait_until_level()
        used_s = pair.usage().cpu_s - before
        kept = self.figures.setdefault(load.name, {}).setdefault(pair.name, {})
        figures = {
            "per_second": answer["per_second"],
            "cpu_us": used_s / max(1, answer["messages"]) * 1e6,
            "p50_ms": answer["p50_ms"],
            "p99_ms": answer["p99_ms"],
            "refused": answer["refused"],
        }
        for key, value in figures.items():
            kept.setdefault(key, []).append(value)


def main() -> None:
    run_loads(__doc__, LOADS, KEPT, ReplicaBench, table.whole)


if __name__ == "__main__":
    main()
