"""What Spark reads and writes of us, beside the same rows from Parquet in the same run (local[2], 1 KB messages).

Every figure is taken in turns (Parquet, store, live, ..., and again), so that a machine that slows down slows all;
shown are medians, and the ratio to Parquet is the median of the turns' ratios. Results: out/spark.json, out/spark.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.sparkdata import TOPIC, Broker, write_store

NARROW = "topic string, queue_id int, store_timestamp timestamp, body binary"
PARQUET = "Parquet zstd, "
# Row -> (what it is a ratio of, at least).
AIMS: dict[str, float] = {"store scan, group-by": 0.7, "live batch, group-by": 0.3}
ARCHIVE_MB_S = 150.0
LATENCY_BATCHES = 30


class Bench:
    """One session, one broker, one store."""

    def __init__(self, spark: Any, broker: Broker, work: Path, rows: int) -> None:
        self.spark = spark
        self.broker = broker
        self.work = work
        self.rows = rows
        self.parquet = str(work / "parquet")
        self.numbers = iter(range(1_000_000))

    # -- tables

    def from_parquet(self) -> Any:
        return self.spark.read.parquet(self.parquet)

    def from_store(self, schema: str | None = None) -> Any:
        reading = self.spark.read.format("rocketmq_store")
        return (reading.schema(schema) if schema else reading).load(str(self.broker.store))

    def live(self, schema: str | None = None, *, stream: bool = False, **options: Any) -> Any:
        reading = (self.spark.readStream if stream else self.spark.read).format("rocketmq")
        reading = reading.schema(schema) if schema else reading
        options = {"topic": TOPIC, "nameServer": self.broker.namesrv, "startingOffsets": "earliest", **options}
        return reading.options(**options).load()

    # -- work

    def group_by(self, frame: Any) -> None:
        from pyspark.sql import functions as f

        grouped = frame.groupBy("topic", "queue_id")
        found = grouped.agg(f.count("*").alias("n"), f.max("store_timestamp"), f.sum(f.length("body"))).collect()
        self.expect(sum(row["n"] for row in found))

    def expect(self, rows: int) -> None:
        if rows != self.rows:
            raise SystemExit(f"{rows} rows of {self.rows} were read")

    def drain(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, frame: Any) -> float:
        """Seconds of the triggers of an AvailableNow run, without the start of the query."""
        checkpoint = str(self.work / f"checkpoint-{next(self.numbers)}")
        writing = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writing.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        done = query.recentProgress
        self.expect(sum(one["numInputRows"] for one in done))
        return float(sum(one["durationMs"]["triggerExecution"] for one in done)) / 1000

    def archive(self) -> float:
        """MB of log a second."""
        from pyspark_rocketmq_store import archive

        target = self.work / f"archive-{next(self.numbers)}"
        # It makes durable what it writes; what was written before it is not its to wait for.
        os.sync()
        began_s = time.perf_counter()
        done = archive.run(self.spark, str(self.broker.store), str(target), "broker-a")
        took_s = time.perf_counter() - began_s
        shutil.rmtree(target)
        return sum(one.end - one.start for one in done) / took_s / 1e6

    def batch_ms(self, frame: Any) -> list[float]:
        """How long small batches take, warm."""
        checkpoint = str(self.work / f"checkpoint-{next(self.numbers)}")
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        times: dict[int, float] = {}
        while len(times) < LATENCY_BATCHES + 5:
            query.awaitTermination(0.2)
            times |= {
                one["batchId"]: float(one["durationMs"]["triggerExecution"])
                for one in query.recentProgress
                if one["numInputRows"]
            }
        query.stop()
        return [times[batch] for batch in sorted(times)][5 : 5 + LATENCY_BATCHES]

    def cases(self) -> dict[str, Callable[[], float]]:
        """Everything that takes turns, by its row; each gives its seconds."""

        def timed(work: Callable[[Any], None], frame: Callable[[], Any]) -> Callable[[], float]:
            def run() -> float:
                began_s = time.perf_counter()
                work(frame())
                return time.perf_counter() - began_s

            return run

        schema = self.from_parquet().schema
        return {
            PARQUET + "group-by": timed(self.group_by, self.from_parquet),
            "store scan, group-by": timed(self.group_by, self.from_store),
            "store scan, group-by, its 4 columns": timed(self.group_by, lambda: self.from_store(NARROW)),
            "live batch, group-by": timed(self.group_by, self.live),
            "live batch, group-by, its 4 columns": timed(self.group_by, lambda: self.live(NARROW)),
            PARQUET + "all columns": timed(self.drain, self.from_parquet),
            "store scan, all columns": timed(self.drain, self.from_store),
            "live batch, all columns": timed(self.drain, self.live),
            PARQUET + "stream": lambda: self.stream(self.spark.readStream.schema(schema).parquet(self.parquet)),
            "live AvailableNow, stream": lambda: self.stream(self.live(stream=True)),
        }


def ratios(row: str, times: dict[str, list[float]]) -> list[float]:
    """To Parquet's row for the same work, turn by turn; more is better."""
    work = row.partition(", ")[2].partition(",")[0]
    beside = times.get(PARQUET + work, [])
    if row.startswith(PARQUET):
        return []
    return [theirs / ours for ours, theirs in zip(times[row], beside, strict=True)]


def table(
    times: dict[str, list[float]], archive: list[float], latency: dict[str, list[float]], rows: int, mb: float
) -> Iterator[str]:
    """The lines of both tables; markdown."""
    yield "| what | seconds | rows/s | MB/s | of Parquet (span) | aim | met |"
    yield "|---|---|---|---|---|---|---|"
    for row, seconds in times.items():
        middle, found = statistics.median(seconds), ratios(row, times)
        ratio = f"{statistics.median(found):.2f}x ({min(found):.2f} to {max(found):.2f})" if found else ""
        aim = AIMS.get(row)
        met = "" if aim is None else "yes" if statistics.median(found) >= aim else "SHORT"
        yield (
            f"| {row} | {middle:.2f} | {rows / middle:,.0f} | {mb / middle:,.0f} | {ratio} "
            f"| {'' if aim is None else f'>= {aim}x'} | {met} |"
        )
    if archive:
        middle = statistics.median(archive)
        met = "yes" if middle >= ARCHIVE_MB_S else "SHORT"
        per_row = mb / rows
        span = f"{min(archive):.0f} to {max(archive):.0f}"
        yield (
            f"| archive write | | {middle / per_row:,.0f} | {middle:,.0f} ({span}) | | >= {ARCHIVE_MB_S:.0f} MB/s "
            f"| {met} |"
        )
    yield ""
    yield f"| a batch of 100 rows, {LATENCY_BATCHES} of them | median ms | p90 ms |"
    yield "|---|---|---|"
    for name, values in latency.items():
        yield f"| {name} | {statistics.median(values):.0f} | {sorted(values)[int(len(values) * 0.9)]:.0f} |"


def plot(times: dict[str, list[float]], rows: int, path: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, axis = plt.subplots(figsize=(9, 0.45 * len(times) + 1.2))
    rates = [rows / statistics.median(values) / 1000 for values in times.values()]
    colours = ["#999999" if name.startswith(PARQUET) else "#2a6f97" for name in times]
    axis.barh(list(times), rates, color=colours)
    axis.invert_yaxis()
    axis.set_xlabel("thousand rows of 1 KB a second, local[2] (more is better)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def measure(work: Path, turns: int, segments: int, only: str) -> None:
    from aerobee import _pure
    from pyspark_rocketmq import session

    broker = Broker(work)
    rows, log_bytes = write_store(broker.store, segments)
    mb = log_bytes / 1e6
    with broker:
        confs = {"spark.driver.memory": "3g"}
        spark = session.session("bench", "local[2]", **confs)
        bench = Bench(spark, broker, work, rows)
        bench.from_store().write.option("compression", "zstd").parquet(bench.parquet)
        cases = {name: case for name, case in bench.cases().items() if only in name or name.startswith(PARQUET)}
        times: dict[str, list[float]] = {name: [] for name in cases}
        archive: list[float] = []
        for turn in range(turns + 1):
            for name, case in cases.items():
                seconds = case()
                if turn:  # the first is the warming up
                    times[name].append(seconds)
            if only in "archive":
                archive += [bench.archive()][: 1 if turn else 0]
        latency: dict[str, list[float]] = {}
        if only in "batch of 100 rows":
            rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=100, numPartitions=1).load()
            latency["JVM rate-micro-batch"] = bench.batch_ms(rate)
            live = bench.live(stream=True, maxOffsetsPerTrigger=100, maxRecordsPerPartition=100)
            latency["live topic"] = bench.batch_ms(live)
        session.close()
    text = "\n".join(table(times, archive, latency, rows, mb))
    kind = "compiled" if _pure.is_compiled() else "interpreted"
    print(f"{rows:,} messages of 1 KB, {mb:,.0f} MB of log, hot path {kind}, {turns} turns\n\n{text}")
    out = Path("out")
    out.mkdir(exist_ok=True)
    kept = {"rows": rows, "log_mb": mb, "hot": kind, "seconds": times, "archive_mb_s": archive, "batch_ms": latency}
    (out / "spark.json").write_text(json.dumps(kept, indent=1))
    plot(times, rows, out / "spark.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--segments", type=int, default=2, help="full segments of 256 MiB")
    parser.add_argument(
        "--only", default="", help="only rows whose name holds this (store, live, archive), and Parquet's"
    )
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="aerobee-bench-"))
    try:
        measure(work, given.turns, given.segments, given.only)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
