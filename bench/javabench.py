"""Java's own benchmark producer and consumer (org.apache.rocketmq.example.benchmark) against each broker.

Resolved through Maven. Rates and round trips (a consumer's: from birth to consumption) are what the Java clients report
of the last ten seconds, after their virtual machine has warmed; the broker's CPU is read from its process over the same
time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.contenders import PROJECT, Contender

from aerobee.testing.apache import free_ports

if TYPE_CHECKING:
    from bench.peer import Bench

_PACKAGE = "org.apache.rocketmq.example.benchmark"
_SENT = re.compile(r"Send TPS: (\d+).*?Average RT\(ms\): +([\d.]+).*?Send Failed: (\d+)")
_CONSUMED = re.compile(r"Consume TPS: (\d+).*?AVG\(B2C\) RT\(ms\): +([\d.]+|NaN)")
_SENDING = ("-w", 32, "-s", 128)
PRODUCER, BOTH = "Java producer, 32 threads, 128 B", "Java producer and consumer, 32 threads"


def classpath() -> str:
    target = PROJECT / "out" / "bench" / "benchmark-classpath.txt"
    source = PROJECT / "bench" / "java" / "benchmark" / "pom.xml"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={target}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(source), *goal], check=True, timeout=900)
        target.touch()
    return target.read_text().strip()


class JavaClient:
    """One of Java's programs, and the reports it printed."""

    def __init__(self, name: str, work: Path, pattern: re.Pattern[str], *words: object) -> None:
        jvm = ["java", "-Xmx512m", f"-Duser.home={work}", "-cp", classpath()]
        self.process = subprocess.Popen(
            [*jvm, f"{_PACKAGE}.{name}", *(str(word) for word in words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=work,
        )  # fmt: skip
        self.reports: list[tuple[float, float, float]] = []
        self._last: list[str] = []
        self._pattern = pattern
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._last = [*self._last[-20:], line]
            found = self._pattern.search(line)
            if found:
                numbers = [float(one) for one in found.groups()]
                self.reports.append((numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0.0))

    def wait_for(self, count: int) -> None:
        """Reports of something."""
        self._wait_until(lambda: len([one for one in self.reports if one[0] > 0]) >= count)

    def wait_for_reports(self, count: int) -> None:
        """Reports of nothing count too: the client is there."""
        self._wait_until(lambda: len(self.reports) >= count)

    def _wait_until(self, done: Callable[[], bool]) -> None:
        until_s = time.monotonic() + 60
        while not done():
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"Java's benchmark did not begin:\n{''.join(self._last)}")
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._reader.join(10)


def java_rows(bench: Bench, seconds: float) -> None:
    for _ in range(bench.rounds):
        for name in bench.names:
            _one(bench, name, seconds)
    bench.tell(PRODUCER)
    bench.tell(BOTH)


def _one(bench: Bench, name: str, seconds: float) -> None:
    port = free_ports()
    namesrv = f"127.0.0.1:{port}"
    words = ["namesrv", "--json", "--set", f"listenPort={port}"]
    server = subprocess.Popen(
        [sys.executable, "-m", "aerobee", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert server.stdout is not None
        server.stdout.readline()
        broker = bench.start(name, namesrvAddr=namesrv)
        try:
            bench.warm(broker)
            _load(bench, broker, namesrv, seconds)
        finally:
            broker.stop()
    finally:
        server.terminate()
        server.wait(30)


def _load(bench: Bench, broker: Contender, namesrv: str, seconds: float) -> None:
    """The producer alone; then another beside a consumer that was there first, so that none begins behind."""
    work = bench.work / broker.name

    def words(topic: str) -> tuple[object, ...]:
        broker.create_topic(topic, 4)
        return ("-n", namesrv, "-t", topic, "-ri", 1000)

    with JavaClient("Producer", work, _SENT, *words("sent"), *_SENDING) as producer:
        producer.wait_for(4)
        _watch(bench, PRODUCER, broker, producer, seconds)
    with JavaClient("Consumer", work, _CONSUMED, *words("consumed"), "-g", "javabench_group") as consumer:
        consumer.wait_for_reports(4)
        with JavaClient("Producer", work, _SENT, *words("consumed"), *_SENDING):
            consumer.wait_for(6)
            _watch(bench, BOTH, broker, consumer, seconds)


def _watch(bench: Bench, row: str, broker: Contender, client: JavaClient, seconds: float) -> None:
    first = len(client.reports)
    before = broker.usage().cpu_s
    time.sleep(seconds)
    used_s = broker.usage().cpu_s - before
    reports = client.reports[first:]
    # Each report is of the last ten seconds.
    rate, trip_ms, _ = reports[-1]
    refused = max(one[2] for one in reports)
    bench.note(
        row, broker.name, per_second=rate, cpu_us=used_s / (rate * seconds) * 1e6, mean_ms=trip_ms, refused=refused
    )
