"""The demo's Spark process: `python -m aerobee.demo.pipeline NAMESRV DIRECTORY ROWS`.

It reads orders as a stream, ROWS a batch, counts each once, and writes what a batch adds to each shop to a topic
(exactly once) and to a Parquet table. It reports in lines of JSON. The one command `finish COUNT` lets it go on until
COUNT rows were read and then report what the table holds. It ends when its input is closed.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aerobee.demo.shop import TOPIC, TOTALS
from aerobee.errors import AerobeeError
from aerobee.model.numbers import parse_int
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.signals import terminate_interrupts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.2
# The path of a socket has at most 108 characters, and Spark's own name takes half of them.
_SOCKET_DIRECTORY_MAX: Final = 50
# This JVM lives for seconds and the brokers need the cores, so it has the simplest compiler and collector.
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={}"
_ORDER: Final = "order long, shop string, cents long"


def main() -> int:
    namesrv, directory, rows = sys.argv[1:]
    jvms: list[subprocess.Popen[bytes]] = []
    code = 1
    try:
        with terminate_interrupts():
            code = _run(namesrv, Path(directory), parse_int(rows), jvms)
    except KeyboardInterrupt:
        code = 130
    finally:
        for jvm in jvms:
            jvm.kill()
            jvm.wait()
        sys.stdout.flush()
        # An orderly end would take seconds. The parent process removes the directory with everything in it.
        os._exit(code)


def _run(namesrv: str, directory: Path, rows: int, jvms: list[subprocess.Popen[bytes]]) -> int:
    from pyspark_rocketmq.jobs.failures import failure
    from pyspark_rocketmq.session import why_no_spark

    missing = why_no_spark()
    if missing is not None:
        _say("skipped", why=missing)
        return 0
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    clock = SystemClock()
    began_s = clock.monotonic()
    try:
        spark = _session(directory, jvms)
    except (AerobeeError, PySparkException, Py4JError, OSError, RuntimeError) as error:
        _say("skipped", why=f"Spark did not start: {failure(error).message}")
        return 0
    _say("session", seconds=clock.monotonic() - began_s)
    try:
        query = start(spark, namesrv, directory, rows)
        _say("query")
        if _watch(query):
            query.stop()
            _say("table", **table(spark, directory))
    except (AerobeeError, PySparkException, Py4JError) as error:
        _say("failed", why=failure(error).message)
        return 1
    return 0


def _session(directory: Path, jvms: list[subprocess.Popen[bytes]]) -> SparkSession:
    from pyspark import java_gateway

    from pyspark_rocketmq.session import session

    class Remembered(subprocess.Popen[bytes]):
        """The JVM that PySpark starts. PySpark itself knows it only when it is up, and a stop may come before."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            jvms.append(self)

    setattr(java_gateway, "Popen", Remembered)  # noqa: B010 (not a name it exports)
    confs = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _JAVA.format(directory),
        "spark.python.unix.domain.socket.enabled": len(str(directory)) <= _SOCKET_DIRECTORY_MAX,
        # A hundred thousand order numbers fit into memory, so no native library needs to be unpacked.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
    }
    return session("aerobee-demo", "local[2]", **confs)


def start(spark: SparkSession, namesrv: str, directory: Path, rows: int) -> StreamingQuery:
    """Start the streaming query."""
    from pyspark.sql import functions as f

    orders = (
        spark.readStream.format("rocketmq")
        .option("nameServer", namesrv)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows))
        .schema("keys string, body binary")
        .load(TOPIC)
    )
    order = f.from_json(f.col("body").cast("string"), _ORDER).alias("order")
    # A send that was tried twice may be stored twice. An order counts once.
    once = orders.dropDuplicates(["keys"]).select(order)

    def publish(batch: DataFrame, number: int) -> None:
        added = batch.groupBy("order.shop").agg(f.count("*").alias("orders"), f.sum("order.cents").alias("cents"))
        added = added.persist()
        message = added.select(
            f.concat_ws("-", f.lit(str(number)), "shop").alias("keys"),
            f.to_json(f.struct("shop", "orders", "cents")).alias("body"),
        )
        (
            message.write.format("rocketmq")
            .option("nameServer", namesrv)
            .option("topic", TOTALS)
            .option("deliveryGuarantee", "exactly-once")
            .option("jobId", f"demo-{number}")
            .mode("append")
            .save()
        )
        added.coalesce(1).write.mode("overwrite").parquet(str(_table(directory) / f"batch={number}"))
        added.unpersist()

    writer = once.writeStream.foreachBatch(publish).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.start()


def _table(directory: Path) -> Path:
    return directory / "totals.parquet"


def table(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """Return what the Parquet table holds: its rows, and orders and cents by shop."""
    from pyspark.sql import functions as f

    rows = spark.read.parquet(str(_table(directory))).groupBy("shop").agg(f.count("*"), f.sum("orders"), f.sum("cents"))
    found = rows.collect()
    return {"rows": sum(row[1] for row in found), "shops": {row[0]: [row[2], row[3]] for row in found}}


def _watch(query: StreamingQuery) -> bool:
    """Report every batch until all rows were read; return False where the parent process has gone."""
    wanted, read = None, 0
    seen: set[int] = set()
    while wanted is None or read < wanted:
        ready, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if ready:
            words = sys.stdin.readline().split()
            if not words:
                return False
            wanted = parse_int(words[1])
        failed = query.exception()
        if failed is not None:
            raise failed
        for batch in _batches(query, seen):
            read += batch["rows"]
            _say("batch", **batch)
    return True


def _batches(query: StreamingQuery, seen: set[int]) -> Iterator[dict[str, Any]]:
    from datetime import datetime

    for progress in query.recentProgress:
        report = json.loads(progress.json)
        if report["numInputRows"] and report["batchId"] not in seen:
            seen.add(report["batchId"])
            began = datetime.fromisoformat(report["timestamp"])
            took_ms = report["durationMs"]["triggerExecution"]
            yield {"rows": report["numInputRows"], "began_ms": int(began.timestamp() * 1000), "took_ms": took_ms}


def _say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
