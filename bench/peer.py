"""Our broker beside Apache's: both up, both warm, loaded in turn by the same raw frames. `make bench-peer` runs it.

python bench/peer.py [--scale 1.0] [--rounds 3] [--interpreted] [--rows "NAME;NAME"] [--table]

CPU is what the broker's process used (/proc), not what the load generator saw. Every row is measured `rounds` times for
each broker, in turn; the table shows the median and, behind +-, half the span between the lowest and the highest. With
`--rows` the figures of other rows stay as an earlier run left them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import table
from bench.contenders import PROJECT, Contender, build_loadgen, usage_of
from bench.frames import BINARY, JSON, pull_templates, send_templates
from bench.javabench import java_rows

OUT = PROJECT / "out" / "bench"
WARMING = 150_000
ROW_GROUPS = "one group and two (--brokers), 128 B"
ROW_UP = "aerobee up: start to first message stored"


@dataclass(frozen=True)
class Load:
    """One row: what is sent, how, and what counts."""

    name: str
    codec: int = JSON
    size: int = 128
    connections: int = 4
    window: int = 32
    count: int = 200_000
    rate: int = 0
    pull: bool = False
    sync: bool = False
    consumed: bool = False


LOADS = (
    Load("send 128 B, JSON"),
    Load("send 128 B, binary", codec=BINARY),
    Load("send 1 KB, JSON", size=1024),
    Load("send 128 B, 16 x 1 in flight", connections=16, window=1, count=60_000),
    Load("pull 4 queues, 32 a pull", window=1, count=20_000, pull=True),
    Load("fixed 5,000/s of 1 KB", size=1024, connections=8, window=100_000, count=100_000, rate=5000),
    Load("end to end, 5,000/s of 1 KB", size=1024, connections=8, window=1, count=50_000, rate=5000, consumed=True),
    Load("sync flush 1 KB, 4 x 32", size=1024, count=100_000, sync=True),
    Load("sync flush 1 KB, 16 x 1", size=1024, connections=16, window=1, count=30_000, sync=True),
)


class Bench:
    """Runs loads against contenders and keeps every figure."""

    def __init__(self, names: list[str], rounds: int, scale: float) -> None:
        self.names = names
        self.rounds = rounds
        self.scale = scale
        self.figures: table.Figures = {}
        self._loadgen = build_loadgen(OUT / "loadgen")
        self._templates, self._polls = OUT / "templates.bin", OUT / "polls.bin"
        self._fresh = 0
        self._work = OUT / "work"

    @property
    def work(self) -> Path:
        return self._work

    def note(self, row: str, name: str, **figures: float) -> None:
        kept = self.figures.setdefault(row, {}).setdefault(name, {})
        for key, value in figures.items():
            kept.setdefault(key, []).append(value)

    def tell(self, row: str) -> None:
        print("\n".join(table.lines(row, self.figures[row], self.names)), flush=True)

    def start(self, name: str, **settings: object) -> Contender:
        return Contender(name, self._work / name, settings)

    def generate(self, broker: Contender, mode: str, load: Load, count: int) -> dict[str, Any]:
        words = self._words(broker.port, mode, load, count)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"{load.name} against {broker.name}: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _words(self, port: int, mode: str, load: Load, count: int) -> list[str]:
        numbers = (load.connections, load.window, count, load.rate, 120)
        templates = f"{self._templates},{self._polls}" if mode == "e2e" else self._templates
        return [str(word) for word in (self._loadgen, "127.0.0.1", port, templates, mode, *numbers)]

    def warm(self, broker: Contender) -> None:
        """Three runs for the virtual machine's compilers, and messages to pull."""
        for size in (128, 1024, 128):
            send_templates(self._templates, "bench", 4, size, JSON)
            self.generate(broker, "send", Load("warming"), int(WARMING * self.scale))
        send_templates(self._templates, "pulled", 4, 128, JSON)
        self.generate(broker, "send", Load("filling"), 100_000)
        pull_templates(self._templates, "pulled", "bench_group", 4, 32, JSON)
        self.generate(broker, "pull", Load("warming", window=1), int(10_000 * self.scale))

    def _prepare(self, broker: Contender, load: Load) -> str:
        """What the generator sends for this load; its mode."""
        if load.pull:
            pull_templates(self._templates, "pulled", "bench_group", 4, 32, load.codec)
            return "pull"
        topic = "bench"
        if load.consumed:
            # Its polls begin at the beginning: a topic of its own each time.
            self._fresh += 1
            topic = f"consumed-{self._fresh}"
            broker.create_topic(topic, 4)
            pull_templates(self._polls, topic, "bench_group", 4, 32, load.codec, hold_ms=15_000)
        send_templates(self._templates, topic, 4, load.size, load.codec)
        return "e2e" if load.consumed else "send"

    def measure(self, broker: Contender, load: Load) -> None:
        mode = self._prepare(broker, load)
        before = broker.usage().cpu_s
        answer = self.generate(broker, mode, load, int(load.count * self.scale))
        used_s = broker.usage().cpu_s - before
        messages = max(1, answer["messages"])
        self.note(
            load.name,
            broker.name,
            per_second=answer["per_second"],
            cpu_us=used_s / messages * 1e6,
            p50_ms=answer["p50_ms"],
            p99_ms=answer["p99_ms"],
            p999_ms=answer["p999_ms"],
            refused=0 if load.pull else answer["refused"],
        )

    def run(self, loads: list[Load]) -> None:
        for sync in (False, True):
            chosen = [load for load in loads if load.sync is sync]
            if not chosen:
                continue
            brokers = [self.start(name, flushDiskType="SYNC_FLUSH" if sync else "ASYNC_FLUSH") for name in self.names]
            try:
                for broker in brokers:
                    self.warm(broker)
                for load in chosen:
                    for _ in range(self.rounds):
                        for broker in brokers:
                            with broker.running_alone(brokers):
                                self.measure(broker, load)
                    self.tell(load.name)
            finally:
                for broker in brokers:
                    broker.stop()

    def idle(self, settle_s: float, idle_s: float) -> None:
        """All started fresh, left alone for as long (Java compiles on for a while), then watched together."""
        for _ in range(self.rounds):
            brokers = [self.start(name) for name in self.names]
            try:
                time.sleep(settle_s)
                before = {broker.name: broker.usage().cpu_s for broker in brokers}
                time.sleep(idle_s)
                for broker in brokers:
                    after = broker.usage()
                    percent = (after.cpu_s - before[broker.name]) / idle_s * 100
                    self.note("idle, fresh", broker.name, resident_mb=after.resident_mb, cpu_percent=percent)
            finally:
                for broker in brokers:
                    broker.stop()

    def starts(self, gib: float) -> None:
        """From the start of the process to its first answer: empty, on a store stopped cleanly, and after kill -9."""
        for _ in range(self.rounds):
            for name in self.names:
                broker = self.start(name)
                self.note("start, empty store", name, seconds=broker.start_s)
                broker.stop()
        if not gib:
            return
        brokers = [self.start(name) for name in self.names]
        try:
            for broker in brokers:
                self._fill(broker, gib)
                broker.stop()
            for _ in range(self.rounds):
                for broker in brokers:
                    self.note(f"start, {gib:g} GiB stopped cleanly", broker.name, seconds=broker.start())
                    broker.stop()
            send_templates(self._templates, "bench", 4, 1024, JSON)
            for _ in range(self.rounds):
                for broker in brokers:
                    # One at a time, on a disk at rest: a sync would wait for what another broker still writes.
                    os.sync()
                    broker.start()
                    # Something newer than the last flush, as a crash finds it.
                    self.generate(broker, "send", Load("before a crash"), 20_000)
                    broker.kill()
                    self.note(f"start after kill -9, {gib:g} GiB", broker.name, seconds=broker.start())
                    broker.stop()
        finally:
            for broker in brokers:
                broker.stop()

    def first_message(self) -> None:
        """Name server and broker in one process, on an empty directory: until a message is answered."""
        send_templates(self._templates, "bench", 4, 128, JSON)
        for _ in range(self.rounds):
            began = time.monotonic()
            with up(1, self._work / "up-first") as groups:
                words = self._words(groups[0][0], "send", Load("first", connections=1, window=1), 1)
                subprocess.run(words, capture_output=True, check=True)
                self.note(ROW_UP, table.OURS, seconds=time.monotonic() - began)

    def _fill(self, broker: Contender, gib: float) -> None:
        record = 1024 + 240
        send_templates(self._templates, "bench", 4, 1024, JSON)
        self.generate(broker, "send", Load("filling", connections=8, window=64), int(gib * (1 << 30) / record))

    def groups(self, counts: tuple[int, ...]) -> None:
        """Sends to one broker group and to several under one name server, by as many generators as groups at most."""
        load = LOADS[0]
        generators = max(counts)
        for _ in range(self.rounds):
            for count in counts:
                with up(count, self._work / f"up-{count}") as groups:
                    send_templates(self._templates, "bench", 4, load.size, load.codec)
                    for spent in (True, False):
                        before = sum(usage_of(pid).cpu_s for _, pid in groups)
                        total = int(load.count * self.scale) // generators
                        jobs = [
                            subprocess.Popen(
                                self._words(groups[number % count][0], "send", load, total), stdout=subprocess.PIPE
                            )
                            for number in range(generators)
                        ]
                        answers = [json.loads(job.communicate()[0]) for job in jobs]
                        if spent:
                            continue  # the first run makes topics and segments
                        used_s = sum(usage_of(pid).cpu_s for _, pid in groups) - before
                        messages = sum(answer["messages"] for answer in answers)
                        rate = sum(answer["per_second"] for answer in answers)
                        name = f"{count} group" + "s" * (count > 1)
                        self.note(ROW_GROUPS, name, per_second=rate, cpu_us=used_s / messages * 1e6)


@contextlib.contextmanager
def up(count: int, work: Path) -> Iterator[list[tuple[int, int]]]:
    """`aerobee up --brokers N`: port and process of each group."""
    shutil.rmtree(work, ignore_errors=True)
    words = ["up", "--json", "--namesrv-port", "0", "--broker-port", "0", "--data", str(work), "--brokers", str(count)]
    process = subprocess.Popen([sys.executable, "-m", "aerobee", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        found = ready.get("brokers") or [{"address": ready["broker"], "pid": process.pid}]
        yield [(int(one["address"].rpartition(":")[2]), one["pid"]) for one in found]
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(work, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="messages per run (and GiB of the start rows), times this"
    )
    parser.add_argument("--rounds", type=int, default=3, help="alternations")
    parser.add_argument("--interpreted", action="store_true", help="our broker with nothing compiled, too")
    parser.add_argument("--alone", action="store_true", help="without Apache's broker")
    parser.add_argument("--rows", default="", help="only rows whose name holds one of these, separated by ;")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the table of the figures kept")
    return parser.parse_args()


def main() -> None:
    chosen = _arguments()
    names = ([] if chosen.alone else [table.APACHE]) + [table.OURS] + [table.INTERPRETED] * chosen.interpreted
    path = OUT / "peer.json"
    kept: table.Figures = json.loads(path.read_text()) if path.exists() and (chosen.rows or chosen.table) else {}
    bench = Bench(names, chosen.rounds, chosen.scale)

    def wanted(*rows: str) -> bool:
        return not chosen.rows or any(word in row for word in chosen.rows.split(";") for row in rows)

    print(f"{os.cpu_count()} CPUs, {platform.platform()}, Python {platform.python_version()}", flush=True)
    try:
        if not chosen.table:
            _measure(bench, wanted, chosen.scale)
    finally:
        shutil.rmtree(OUT / "work", ignore_errors=True)
        figures = {**kept, **bench.figures}
        OUT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1))
    present = [name for name in names if any(name in row for row in figures.values())]
    alone = (ROW_UP, ROW_GROUPS)
    plain = {row: found for row, found in figures.items() if row not in alone}
    print("\n" + table.whole(plain, present))
    for row in alone:
        if row in figures:
            print("\n" + table.whole({row: figures[row]}, list(figures[row])))
    drawn = " and peer.png" if table.plot(plain, present, OUT / "peer.png") else ""
    print(f"figures in {OUT.relative_to(PROJECT)}/peer.json{drawn}")


def _measure(bench: Bench, wanted: Callable[..., bool], scale: float) -> None:
    bench.run([load for load in LOADS if wanted(load.name)])
    if wanted("start, empty store", "start after kill -9"):
        bench.starts(round(3 * scale, 2))
    if wanted("idle, fresh"):
        bench.idle(max(5.0, 30 * scale), max(5.0, 15 * scale))
    if wanted("Java"):
        java_rows(bench, 11.0)
    if wanted(ROW_UP):
        bench.first_message()
    if wanted(ROW_GROUPS):
        bench.groups((1, 2))


if __name__ == "__main__":
    main()
