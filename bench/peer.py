"""Our broker beside Apache's: both up, both warm, loaded in turn by the same raw frames. `make bench-peer` runs it.

python bench/peer.py [--scale 1.0] [--rounds 3] [--interpreted] [--rows NAME,...]

CPU is what the broker's process used (/proc), not what the load generator saw. Every row is measured `rounds` times for
each broker, in turn; the table shows the median and, behind +-, half the span between the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contenders import PROJECT, Contender, build_loadgen
from bench.frames import BINARY, JSON, pull_templates, send_templates

OUT = PROJECT / "out" / "bench"
WARMING = 150_000


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


LOADS = (
    Load("send 128 B, JSON"),
    Load("send 128 B, binary", codec=BINARY),
    Load("send 1 KB, JSON", size=1024),
    Load("send 128 B, 16 x 1 in flight", connections=16, window=1, count=60_000),
    Load("pull 4 queues, 32 a pull", window=1, count=20_000, pull=True),
    Load("fixed 5,000/s of 1 KB", size=1024, connections=8, window=100_000, count=100_000, rate=5000),
    Load("sync flush 1 KB, 4 x 32", size=1024, count=100_000, sync=True),
    Load("sync flush 1 KB, 16 x 1", size=1024, connections=16, window=1, count=30_000, sync=True),
)


class Bench:
    """Runs loads against contenders and keeps every figure."""

    def __init__(self, names: list[str], rounds: int, scale: float) -> None:
        self.names = names
        self.rounds = rounds
        self.scale = scale
        self.figures: dict[str, dict[str, dict[str, list[float]]]] = {}
        self._loadgen = build_loadgen(OUT / "loadgen")
        self._templates = OUT / "templates.bin"
        self._work = OUT / "work"

    def note(self, row: str, name: str, **figures: float) -> None:
        kept = self.figures.setdefault(row, {}).setdefault(name, {})
        for key, value in figures.items():
            kept.setdefault(key, []).append(value)

    def start(self, name: str, **settings: object) -> Contender:
        return Contender(name, self._work / name, settings)

    def generate(self, broker: Contender, mode: str, load: Load, count: int) -> dict[str, Any]:
        numbers = (load.connections, load.window, count, load.rate, 120)
        command = [self._loadgen, "127.0.0.1", broker.port, self._templates, mode, *numbers]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"{load.name} against {broker.name}: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def warm(self, broker: Contender) -> None:
        """Three runs for the virtual machine's compilers, and messages to pull."""
        for size in (128, 1024, 128):
            send_templates(self._templates, "bench", 4, size, JSON)
            self.generate(broker, "send", Load("warming"), int(WARMING * self.scale))
        send_templates(self._templates, "pulled", 4, 128, JSON)
        self.generate(broker, "send", Load("filling"), 100_000)
        pull_templates(self._templates, "pulled", "bench_group", 4, 32, JSON)
        self.generate(broker, "pull", Load("warming", window=1), int(10_000 * self.scale))

    def measure(self, broker: Contender, load: Load) -> None:
        if load.pull:
            pull_templates(self._templates, "pulled", "bench_group", 4, 32, load.codec)
        else:
            send_templates(self._templates, "bench", 4, load.size, load.codec)
        before = broker.usage().cpu_s
        answer = self.generate(broker, "pull" if load.pull else "send", load, int(load.count * self.scale))
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
                            self.measure(broker, load)
                    print(_line(load.name, self.figures[load.name], self.names), flush=True)
            finally:
                for broker in brokers:
                    broker.stop()

    def start_and_rest(self, idle_s: float) -> None:
        """From the start of the process to its first answer; then what it costs to do nothing."""
        for _ in range(self.rounds):
            for name in self.names:
                broker = self.start(name)
                try:
                    self.note("start to first answer", name, seconds=broker.start_s)
                    time.sleep(10 * self.scale)  # a virtual machine compiles on for a while
                    before = broker.usage()
                    time.sleep(idle_s)
                    after = broker.usage()
                    share = (after.cpu_s - before.cpu_s) / idle_s * 100
                    self.note("fresh and idle", name, resident_mb=after.resident_mb, cpu_percent=share)
                finally:
                    broker.stop()
        for row in ("start to first answer", "fresh and idle"):
            print(_line(row, self.figures[row], self.names), flush=True)


def _shown(values: list[float]) -> str:
    middle, spread = statistics.median(values), (max(values) - min(values)) / 2
    digits = 0 if middle >= 1000 else 1 if middle >= 10 else 2
    return f"{middle:,.{digits}f}+-{spread:,.{digits}f}"


def _line(row: str, figures: dict[str, dict[str, list[float]]], names: list[str]) -> str:
    """One row: each figure of each broker, and ours over Apache's."""
    parts = [f"{row:30}"]
    keys = ["per_second", "cpu_us", "p50_ms", "p99_ms", "p999_ms", "seconds", "resident_mb", "cpu_percent"]
    latency = row.startswith("fixed")
    for key in keys:
        if key not in figures[names[0]] or (key.startswith("p") and key.endswith("_ms") and not latency):
            continue
        middles = {name: statistics.median(figures[name][key]) for name in names}
        shown = "  ".join(f"{name} {_shown(figures[name][key])}" for name in names)
        ratio = ""
        if "apache" in middles and middles["apache"] > 0:
            ratio = "  " + " ".join(f"{middles[name] / middles['apache']:.2f}x" for name in names if name != "apache")
        parts.append(f"{key}: {shown}{ratio}")
    refused = {name: sum(figures[name].get("refused", [0])) for name in names}
    if any(refused.values()):
        parts.append(f"refused: {refused}")
    return "\n    ".join(parts)


def _plot(figures: dict[str, dict[str, dict[str, list[float]]]], names: list[str], path: Path) -> bool:
    """CPU per message of each load, where matplotlib is installed."""
    try:
        import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return False
    rows = [row for row, kept in figures.items() if "cpu_us" in kept[names[0]]]
    _, axes = plt.subplots(figsize=(9, 0.6 * len(rows) + 1.5))
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [at + number * height for at in range(len(rows))]
        axes.barh(places, [statistics.median(figures[row][name]["cpu_us"]) for row in rows], height, label=name)
    axes.set_yticks([at + height * (len(names) - 1) / 2 for at in range(len(rows))], rows)
    axes.invert_yaxis()
    axes.set_xlabel("CPU per message, us")
    axes.legend()
    plt.tight_layout()
    plt.savefig(path)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="messages per run, times this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interpreted", action="store_true", help="our broker with hot/ interpreted, too")
    parser.add_argument("--alone", action="store_true", help="without Apache's broker")
    parser.add_argument("--rows", default="", help="only rows whose name holds one of these, separated by ;")
    chosen = parser.parse_args()
    names = ([] if chosen.alone else ["apache"]) + ["aerobee"] + (["interpreted"] if chosen.interpreted else [])
    wanted: Callable[[str], bool] = lambda row: not chosen.rows or any(w in row for w in chosen.rows.split(";"))  # noqa: E731
    bench = Bench(names, chosen.rounds, chosen.scale)
    print(f"{os.cpu_count()} CPUs, {platform.platform()}, Python {platform.python_version()}")
    try:
        bench.run([load for load in LOADS if wanted(load.name)])
        if wanted("start to first answer") or wanted("fresh and idle"):
            bench.start_and_rest(10 * chosen.scale)
    finally:
        shutil.rmtree(OUT / "work", ignore_errors=True)
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "peer.json").write_text(json.dumps(bench.figures, indent=1))
    drawn = " and peer.png" if _plot(bench.figures, names, OUT / "peer.png") else ""
    print(f"figures in {OUT.relative_to(PROJECT)}/peer.json{drawn}")


if __name__ == "__main__":
    main()
