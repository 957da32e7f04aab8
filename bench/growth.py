"""What a message costs when everything is large, over what it costs when it is small. `make bench-growth` runs it.

python bench/growth.py [--scale 1.0] [--rounds 3] [--rows "NAME;NAME"]

Our broker alone, small and large case in turn: 10,000 topics against 1, 1,000 connections against 16, 64 consumers
that long-poll against 4, a backlog of 5 GiB read cold while writing against a small one in memory; then how long a
start takes with all that, stopped cleanly and after kill -9. The bound is 1.5 times the small case's CPU per
message. `--scale` multiplies messages, backlog and topics.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.contenders import Contender, build_loadgen
from bench.frames import JSON, pull_templates, send_templates
from bench.peer import OUT
from bench.table import shown

BOUND = 1.5
RECORD_BYTES = 1024 + 240


class Growth:
    """One broker that grows."""

    def __init__(self, scale: float, rounds: int) -> None:
        self._scale = scale
        self._rounds = rounds
        self._work = OUT / "growth"
        self._loadgen = build_loadgen(OUT / "loadgen")
        self.broker = Contender("aerobee", self._work, {})
        self.figures: dict[str, dict[str, list[float]]] = {}

    # -- running load

    def _templates(self, name: str, make: Callable[..., None], *arguments: object, **more: object) -> Path:
        path = self._work / f"{name}.bin"
        if not path.exists():
            make(path, *arguments, **more)
        return path

    def _begin(
        self, templates: Path, mode: str, connections: int, window: int, count: int, rate: int = 0, seconds: int = 100
    ) -> subprocess.Popen[str]:
        words = (
            self._loadgen,
            "127.0.0.1",
            self.broker.port,
            templates,
            mode,
            connections,
            window,
            count,
            rate,
            seconds,
        )
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)

    def _run(self, *jobs: subprocess.Popen[str]) -> tuple[float, int]:
        """CPU seconds of the broker until all ended, and the messages they moved."""
        before = self.broker.usage().cpu_s
        answers = [json.loads(job.communicate()[0]) for job in jobs]
        return self.broker.usage().cpu_s - before, sum(answer["messages"] for answer in answers)

    def note(self, row: str, case: str, used: tuple[float, int]) -> None:
        seconds, messages = used
        self.figures.setdefault(row, {}).setdefault(case, []).append(seconds / max(1, messages) * 1e6)

    def _count(self, count: int) -> int:
        return max(1000, int(count * self._scale))

    # -- rows

    def topics(self) -> None:
        """Sends that go round all topics. The small case is one topic of four queues, and as many different messages:
        each has its own place in the index."""
        names = [f"grown-{number}" for number in range(int(10_000 * self._scale))]
        many = self._templates("many", send_templates, "", 1, 128, JSON, topics=names)
        few = self._templates("different", send_templates, "bench", 4, 128, JSON, different=len(names) // 4)
        row = f"topics: 1 / {len(names):,}"
        self._run(self._begin(many, "send", 1, 32, len(names)))  # makes them
        self._run(self._begin(few, "send", 4, 32, self._count(100_000)))
        for _ in range(self._rounds):
            self.note(row, "small", self._run(self._begin(few, "send", 4, 32, self._count(200_000))))
            self.note(row, "large", self._run(self._begin(many, "send", 4, 32, self._count(200_000))))

    def connections(self) -> None:
        few = self._templates("few", send_templates, "bench", 4, 128, JSON)
        row = "connections, one in flight each: 16 / 1,000"
        for _ in range(self._rounds):
            self.note(row, "small", self._run(self._begin(few, "send", 16, 1, self._count(60_000))))
            self.note(row, "large", self._run(self._begin(few, "send", 1000, 1, self._count(60_000))))

    def polls(self) -> None:
        """Every message is sent, wakes a held pull and is read by it: two requests."""
        row, rate = "consumers long-polling: 4 / 64", 2000
        count = self._count(20_000)
        for consumers, case in ((4, "small"), (64, "large")):
            topic = f"polled-{consumers}"
            sends = self._templates(f"send-{topic}", send_templates, topic, consumers, 128, JSON)
            pulls = self._templates(
                f"pull-{topic}", pull_templates, topic, "polls", consumers, 32, JSON, hold_ms=15_000
            )
            self.broker.create_topic(topic, consumers)
            self._run(self._begin(sends, "send", 4, 32, 1000))
            self._run(self._begin(pulls, "poll", consumers, 1, 1000, seconds=20))
            for _ in range(self._rounds):
                # Pollers begin at the queues' start: by the time sends begin they have caught up and are held.
                poller = self._begin(pulls, "poll", consumers, 1, 1 << 30, seconds=int(count / rate) + 4)
                time.sleep(2)
                self.note(row, case, self._run(self._begin(sends, "send", 8, 1000, count, rate=rate)))
                poller.communicate()

    def backlog(self) -> None:
        """Pulls of 1 KB from the beginning, cold, while 5,000 a second are written; small: the same from memory."""
        gib = 5 * self._scale
        pulled = int(500_000 * self._scale)
        row = f"backlog read while writing: in memory / {gib:g} GiB cold"
        cases = (("small", 60_000), ("large", int(gib * (1 << 30) / RECORD_BYTES)))
        for case, count in cases:
            fill = self._templates(f"fill-{case}", send_templates, f"{case}-backlog", 4, 1024, JSON)
            self._run(self._begin(fill, "send", 8, 64, count, seconds=300))
        write = self._templates("write", send_templates, "written", 4, 1024, JSON)
        for _ in range(self._rounds):
            for case, _count in cases:
                pull = self._templates(f"pull-{case}", pull_templates, f"{case}-backlog", "b", 4, 32, JSON)
                if case == "large":
                    self._forget_pages()
                reader = self._begin(pull, "pull", 4, 1, pulled // 32)
                writer = self._begin(write, "send", 8, 1000, max(1000, pulled // 40), rate=5000)
                self.note(row, case, self._run(reader, writer))

    def _forget_pages(self) -> None:
        """The log leaves the page cache, as far as it is on disk."""
        for path in sorted((self._work / "store" / "commitlog").iterdir()):
            fd = os.open(path, os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def starts(self) -> dict[str, float]:
        self.broker.stop()
        queues = len(list((self._work / "store" / "consumequeue").glob("*/*")))
        log_gib = sum(path.stat().st_blocks * 512 for path in (self._work / "store" / "commitlog").iterdir()) / (
            1 << 30
        )
        self.broker.stop()
        made = {f"start, {queues:,} queues and {log_gib:.1f} GiB, stopped cleanly": self.broker.start()}
        self.broker.kill()
        made["the same after kill -9"] = self.broker.start()
        return made

    def close(self) -> None:
        self.broker.stop()
        shutil.rmtree(self._work, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="", help="only rows whose name holds one of these, separated by ;")
    chosen = parser.parse_args()
    wanted = chosen.rows.split(";")
    growth = Growth(chosen.scale, chosen.rounds)
    starts: dict[str, float] = {}
    try:
        for name in ("connections", "polls", "backlog", "topics"):
            if any(word in name for word in wanted):
                getattr(growth, name)()
        if any(word in "starts" for word in wanted):
            starts = growth.starts()
        memory_mb = growth.broker.usage().resident_mb
    finally:
        growth.close()
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "growth.json").write_text(json.dumps({"cpu_us": growth.figures, "seconds": starts}, indent=1))
    print("| growing | small: CPU us/msg | large: CPU us/msg | ratio | bound | met |\n|---|---|---|---|---|---|")
    for row, kept in growth.figures.items():
        ratio = statistics.median(kept["large"]) / statistics.median(kept["small"])
        met = "yes" if ratio <= BOUND else "SHORT"
        print(f"| {row} | {shown(kept['small'])} | {shown(kept['large'])} | {ratio:.2f}x | <= {BOUND}x | {met} |")
    for row, seconds in starts.items():
        print(f"{row}: {seconds:.2f} s")
    print(f"resident at the end: {memory_mb:.0f} MB; figures in out/bench/growth.json")


if __name__ == "__main__":
    main()
