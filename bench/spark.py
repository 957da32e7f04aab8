"""What Spark reads and writes of us, beside the same rows from Parquet and Kafka, in one run (local[2], 1 KB messages).

Kafka is its own broker and Spark's own connector (bench/kafkapeer.py, needs Maven); --no-kafka leaves it out.

Every figure is taken in turns (Parquet, store, live, ..., and again), so that a machine that slows down slows all;
shown are medians, and the ratio to Parquet is the median of the turns' ratios. Beside the time stands the CPU time of
all processes of a row, the brokers among them: where others use the machine too, it says more than the time does.
Results: out/spark.json, out/spark.png.
"""

from __future__ import annotations

import argparse
import contextlib
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

from bench.sparkdata import QUEUES, TOPIC, Broker, cpu_s, write_store

from pyspark_rocketmq.jobs.sql import Places, TopicSql

NARROW = "topic string, queue_id int, store_timestamp timestamp, body binary"
PARQUET = "Parquet zstd, "
KAFKA = "Kafka connector, "
GROUPED = "select topic, queue_id, count(*) n, max(store_timestamp), sum(length(body)) from {} group by topic, queue_id"
# Row -> how much of Parquet's rate for the same work it must have at least.
AIMS: dict[str, float] = {
    "store scan, group-by, by aerobee sql": 0.85,
    "live batch, group-by, its 4 columns": 0.6,
    "live batch, count, by aerobee sql": 0.5,
    "live AvailableNow, stream": 0.6,
    "live AvailableNow, 4-column stream": 0.6,
}
BATCH_MS, FIRST_QUERY_S = 150.0, 1.5
ARCHIVE_MB_S = 150.0
LATENCY_BATCHES = 30
# The first query reads as much as a small topic has.
ENDS = json.dumps({TOPIC: {"broker-a": {str(queue): 1000 for queue in range(QUEUES)}}})


class Bench:
    """One session, one broker, one store."""

    def __init__(self, spark: Any, broker: Broker, work: Path, rows: int) -> None:
        self.spark = spark
        self.broker = broker
        self.work = work
        self.rows = rows
        self.parquet = str(work / "parquet")
        self.numbers = iter(range(1_000_000))
        self.kafka: Any = None
        self.sql = TopicSql(spark, Places(broker.namesrv, store=str(broker.store)))

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

    def query(self, text: str) -> None:
        """Run a query as aerobee sql does, which names the columns by itself."""
        self.expect(sum(row["n"] for row in self.sql.query(text).collect()))

    def count(self, frame: Any) -> None:
        self.expect(frame.count())

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

        def by_sql(text: str) -> Callable[[], float]:
            return timed(self.query, lambda: text)

        schema = self.from_parquet().schema

        def parquet_stream() -> Any:
            return self.spark.readStream.schema(schema).parquet(self.parquet)

        four = ("topic", "queue_id", "store_timestamp", "body")
        made = {
            PARQUET + "group-by": timed(self.group_by, self.from_parquet),
            "store scan, group-by": timed(self.group_by, self.from_store),
            "store scan, group-by, its 4 columns": timed(self.group_by, lambda: self.from_store(NARROW)),
            "store scan, group-by, by aerobee sql": by_sql(GROUPED.format("store")),
            "live batch, group-by": timed(self.group_by, self.live),
            "live batch, group-by, its 4 columns": timed(self.group_by, lambda: self.live(NARROW)),
            "live batch, group-by, by aerobee sql": by_sql(GROUPED.format(TOPIC)),
            PARQUET + "count": timed(self.count, self.from_parquet),
            "live batch, count, by aerobee sql": by_sql(f"select count(*) n from {TOPIC}"),
            "live batch, count, columns=queue_offset": timed(self.count, lambda: self.live(columns="queue_offset")),
            PARQUET + "all columns": timed(self.drain, self.from_parquet),
            "store scan, all columns": timed(self.drain, self.from_store),
            "live batch, all columns": timed(self.drain, self.live),
            PARQUET + "stream": lambda: self.stream(parquet_stream()),
            "live AvailableNow, stream": lambda: self.stream(self.live(stream=True)),
            "live AvailableNow, 4-column stream": lambda: self.stream(self.live(NARROW, stream=True)),
            PARQUET + "4-column stream": lambda: self.stream(parquet_stream().select(*four)),
        }
        if self.kafka is not None:
            named = {"queue_id": "partition", "store_timestamp": "timestamp", "body": "value"}

            def from_kafka() -> Any:
                return self.kafka.read(self.spark).withColumnsRenamed({old: new for new, old in named.items()})

            made |= {
                KAFKA + "group-by": timed(self.group_by, from_kafka),
                KAFKA + "count": timed(self.count, from_kafka),
                KAFKA + "all columns": timed(self.drain, from_kafka),
                KAFKA + "stream": lambda: self.stream(self.kafka.read(self.spark, stream=True)),
            }
        return made


def ratios(row: str, times: dict[str, list[float]]) -> list[float]:
    """To Parquet's row for the same work, turn by turn; more is better."""
    work = row.partition(", ")[2].partition(",")[0]
    beside = times.get(PARQUET + work, [])
    if row.startswith(PARQUET):
        return []
    return [theirs / ours for ours, theirs in zip(times[row], beside, strict=True)]


def table(
    times: dict[str, list[float]],
    cpu: dict[str, list[float]],
    archive: list[float],
    latency: dict[str, list[float]],
    rows: int,
    mb: float,
) -> Iterator[str]:
    """The lines of both tables; markdown."""
    yield "| what | seconds | rows/s | MB/s | of Parquet (span) | aim | met | CPU us a row | of Parquet, by CPU |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row, seconds in times.items():
        middle, found = statistics.median(seconds), ratios(row, times)
        ratio = f"{statistics.median(found):.2f}x ({min(found):.2f} to {max(found):.2f})" if found else ""
        aim = AIMS.get(row)
        met = "" if aim is None else "yes" if statistics.median(found) >= aim else "SHORT"
        by_cpu = ratios(row, cpu)
        yield (
            f"| {row} | {middle:.2f} | {rows / middle:,.0f} | {mb / middle:,.0f} | {ratio} "
            f"| {'' if aim is None else f'>= {aim}x'} | {met} | {statistics.median(cpu[row]) / rows * 1e6:.1f} "
            f"| {f'{statistics.median(by_cpu):.2f}x' if by_cpu else ''} |"
        )
    if archive:
        middle = statistics.median(archive)
        met = "yes" if middle >= ARCHIVE_MB_S else "SHORT"
        per_row = mb / rows
        span = f"{min(archive):.0f} to {max(archive):.0f}"
        yield (
            f"| archive write | | {middle / per_row:,.0f} | {middle:,.0f} ({span}) | | >= {ARCHIVE_MB_S:.0f} MB/s "
            f"| {met} | | |"
        )
    yield ""
    yield f"| a batch of 100 rows, {LATENCY_BATCHES} of them | median ms | p90 ms | aim | met |"
    yield "|---|---|---|---|---|"
    for name, values in latency.items():
        middle = statistics.median(values)
        aim = f"<= {BATCH_MS:.0f}" if name == "live topic" else ""
        met = "" if not aim else "yes" if middle <= BATCH_MS else "SHORT"
        yield f"| {name} | {middle:.0f} | {sorted(values)[int(len(values) * 0.9)]:.0f} | {aim} | {met} |"


def plot(times: dict[str, list[float]], rows: int, path: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, axis = plt.subplots(figsize=(9, 0.45 * len(times) + 1.2))
    rates = [rows / statistics.median(values) / 1000 for values in times.values()]
    colours = ["#999999" if n.startswith(PARQUET) else "#e09f3e" if n.startswith(KAFKA) else "#2a6f97" for n in times]
    axis.barh(list(times), rates, color=colours)
    axis.invert_yaxis()
    axis.set_xlabel("thousand rows of 1 KB a second, local[2] (more is better)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def first_query_s(spark: Any, broker: Broker) -> float:
    """Return the seconds of the first query of a session that has been warmed up (pyspark_rocketmq.warmup)."""
    from pyspark_rocketmq.warmup import warm_up

    spark.range(1000).selectExpr("sum(id)").collect()
    warm_up(spark).join()
    began_s = time.perf_counter()
    reading = spark.read.format("rocketmq").options(nameServer=broker.namesrv, columns="queue_id", endingOffsets=ENDS)
    rows = reading.load(TOPIC).groupBy("queue_id").count().collect()
    if sum(row["count"] for row in rows) != 4000:
        raise SystemExit("the first query read something else")
    return time.perf_counter() - began_s


def measure(work: Path, turns: int, segments: int, only: str, *, with_kafka: bool) -> None:
    from aerobee import _pure
    from pyspark_rocketmq import session

    broker = Broker(work)
    rows, log_bytes = write_store(broker.store, segments)
    mb = log_bytes / 1e6
    with broker, contextlib.ExitStack() as stack:
        confs: dict[str, Any] = {"spark.driver.memory": "3g", "warm": False}
        if with_kafka:
            from bench.kafkapeer import KafkaBroker, classpath

            confs["spark.jars"] = ",".join(classpath("kafkaspark"))
        spark = session.session("bench", "local[2]", **confs)
        first_s = first_query_s(spark, broker)
        bench = Bench(spark, broker, work, rows)
        bench.from_store().write.option("compression", "zstd").parquet(bench.parquet)
        if with_kafka:
            bench.kafka = stack.enter_context(KafkaBroker(work))
            bench.kafka.fill(bench.from_parquet())
        cases = {name: case for name, case in bench.cases().items() if only in name or name.startswith(PARQUET)}
        times: dict[str, list[float]] = {name: [] for name in cases}
        cpu: dict[str, list[float]] = {name: [] for name in cases}
        archive: list[float] = []
        for turn in range(turns + 1):
            for name, case in cases.items():
                used_s, seconds = cpu_s(), case()
                if turn:  # the first is the warming up
                    times[name].append(seconds)
                    cpu[name].append(cpu_s() - used_s)
            if only in "archive":
                archive += [bench.archive()][: 1 if turn else 0]
        latency: dict[str, list[float]] = {}
        if only in "batch of 100 rows":
            rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=100, numPartitions=1).load()
            latency["JVM rate-micro-batch"] = bench.batch_ms(rate)
            live = bench.live(stream=True, maxOffsetsPerTrigger=100, maxRecordsPerPartition=100)
            latency["live topic"] = bench.batch_ms(live)
        session.close()
    text = "\n".join(table(times, cpu, archive, latency, rows, mb))
    kind = "compiled" if _pure.is_compiled() else "interpreted"
    print(f"{rows:,} messages of 1 KB, {mb:,.0f} MB of log, hot path {kind}, {turns} turns\n\n{text}\n")
    met = "yes" if first_s <= FIRST_QUERY_S else "SHORT"
    print(f"first query on a warm session: {first_s:.2f} s (aim: <= {FIRST_QUERY_S} s, met: {met})")
    print(f"load of the machine at the end (2 cores are 2.0): {os.getloadavg()[0]:.1f}")
    out = Path("out")
    out.mkdir(exist_ok=True)
    kept = {
        "rows": rows,
        "log_mb": mb,
        "hot": kind,
        "seconds": times,
        "cpu_s": cpu,
        "archive_mb_s": archive,
        "batch_ms": latency,
    }
    kept |= {"first_query_s": first_s}
    (out / "spark.json").write_text(json.dumps(kept, indent=1))
    plot(times, rows, out / "spark.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--segments", type=int, default=2, help="full segments of 256 MiB")
    parser.add_argument(
        "--only", default="", help="only rows whose name holds this (store, live, archive), and Parquet's"
    )
    parser.add_argument("--no-kafka", action="store_true", help="leave Kafka out, which needs Maven")
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="aerobee-bench-"))
    try:
        measure(work, given.turns, given.segments, given.only, with_kafka=not given.no_kafka)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
