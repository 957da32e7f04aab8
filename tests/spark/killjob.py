"""The Spark driver that test_kill_driver.py kills: one topic read by several queries, one for each way out of Spark.

    python killjob.py PID-FILE        then a line with the path of PLAN.json on stdin

The JVM's process id is written to the file when Spark is ready, so that a driver can be started ahead of its plan. The
plan names the name server, the topics and the checkpoints. With `available_now` the queries end by themselves and the
table's rows are written to `rows` by Spark itself, which alone knows which files of a table count. Where a query ends
with an error, so does the driver, and Spark's log is kept beside PID-FILE.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

# Short lives: no time for the JVM's better compiler, no cores for its collector.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STARTS_MAX = 5
# What follows the name of the PID-FILE in that of Spark's log, where the driver ends with an error.
LOG_SUFFIX = ".spark.log"
CONTENT = ("cast(body as string) body", "tags", "keys", "properties")


def writer(spark: Any, plan: dict[str, Any], name: str) -> Any:
    """One of the queries, ready to start."""
    reading = spark.readStream.format("rocketmq").option("nameServer", plan["namesrv"])
    rows = reading.options(
        topic=plan["source"], startingOffsets="earliest", maxOffsetsPerTrigger=plan["batch_rows"],
        minPartitions=plan["partitions"],
    ).load()  # fmt: skip
    plain = rows.selectExpr(*CONTENT)
    if name == "table":
        return plain.writeStream.format("parquet").option("path", plan["table"])
    if name in ("delta", "iceberg"):
        from pyspark_rocketmq.tables import to_delta, to_iceberg

        return to_delta(plain, plan["delta"]) if name == "delta" else to_iceberg(plain, plan["iceberg"], "kills.rows")
    guarantee, mode = "exactly-once", "append"
    if name == "loose":
        guarantee = "at-least-once"
    elif name == "keyed":
        guarantee, plain = "idempotent", plain.selectExpr("*", "body idempotencyKey")
    elif name == "counted":
        number = "cast(split(cast(body as string), ':')[1] as bigint) number"
        grouped = rows.selectExpr("tags", number).groupBy("tags").agg({"*": "count", "number": "sum"})
        plain, mode = grouped.selectExpr("concat_ws(':', tags, `count(1)`, `sum(number)`) body"), "complete"
    writing = plain.writeStream.format("rocketmq").outputMode(mode).option("nameServer", plan["namesrv"])
    return writing.options(topic=plan["topics"][name], deliveryGuarantee=guarantee)


def is_slow_start(error: Exception) -> bool:
    """Spark gives each of its Pythons ten seconds to connect back: few on a loaded machine, and no fault of ours.

    Where it was the Python of a commit, and that of the abort after it, the error itself says only that a job was
    aborted. The reason is below it.
    """
    return "failed to connect back" in f"{error}{getattr(error, '_stackTrace', '')}"


def begin(spark: Any, plan: dict[str, Any], name: str) -> Any:
    """Start a query and wait until it has its source, so that not all Pythons start at once."""
    from pyspark.errors import PySparkException

    for _ in range(STARTS_MAX):
        try:
            made = writer(spark, plan, name).queryName(name)
            made = made.option("checkpointLocation", f"{plan['checkpoints']}/{name}")
            query = (made.trigger(availableNow=True) if plan["available_now"] else made).start()
            while query.isActive and query.status["message"].startswith("Initializing"):
                query.awaitTermination(0.05)
            query.awaitTermination(0.01)
            return query
        except PySparkException as error:
            if not is_slow_start(error):
                raise
    raise SystemExit("Spark's Python does not start")


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Until all have ended."""
    from pyspark.errors import StreamingQueryException

    running = {name: begin(spark, plan, name) for name in plan["queries"]}
    while running:
        for name, query in list(running.items()):
            try:
                if query.awaitTermination(0.5):
                    del running[name]
            except StreamingQueryException as error:
                if not is_slow_start(error):
                    raise
                running[name] = begin(spark, plan, name)


def main() -> int:
    from pyspark import SparkContext

    from pyspark_rocketmq.session import log_path, session

    confs = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": JVM}
    # Every batch's offsets are kept: the test computes from them what each batch must have written.
    spark = session("kill-rounds", "local[2,3]", **confs, **{"spark.sql.streaming.minBatchesToRetain": 10_000})
    gateway: Any = SparkContext._gateway
    fresh = Path(sys.argv[1] + ".new")
    fresh.write_text(str(gateway.proc.pid))
    os.replace(fresh, sys.argv[1])
    line = sys.stdin.readline().strip()
    if not line:
        return 0
    plan = json.loads(Path(line).read_text())
    try:
        run(spark, plan)
    except BaseException:
        # Spark's log goes with the session. It says what the error does not.
        shutil.copy(log_path(), sys.argv[1] + LOG_SUFFIX)
        raise
    if "table" in plan["queries"]:
        rows = spark.read.parquet(plan["table"]).collect()
        Path(plan["rows"]).write_text(json.dumps([row.asDict() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
