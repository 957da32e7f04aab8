"""A stream reads a topic of a replicated group and writes another one exactly once, while the master is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.runtime.blocking import pause
from aerobee.sync import Producer
from aerobee.testing.commands import up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9")

BATCH_ROWS = 40
SENT_BEFORE, SENT_AFTER = 240, 120


def send(namesrv: str, first: int, count: int) -> None:
    with Producer(namesrv, group="filler") as producer:
        futures = [producer.send_nowait("source", b"%d" % number) for number in range(first, first + count)]
        for future in futures:
            future.result(timeout=60)


def read_until(query: StreamingQuery, rows: int) -> None:
    """Wait until the query has read so many rows."""
    for _ in range(2400):
        assert query.exception() is None, query.exception()
        if sum(one.numInputRows for one in query.recentProgress) >= rows:
            return
        pause(0.05)
    raise AssertionError(f"the query did not read {rows} rows")


def test_a_stream_goes_on_by_itself_when_a_master_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    with up("--replicas", "3", "--data", str(tmp_path / "data")) as running:
        for topic in ("source", "target"):
            running.json("topic", "create", "-t", topic, "-q", "4")
        send(running.namesrv, 0, SENT_BEFORE)
        options = {"nameServer": running.namesrv, "checkpointLocation": str(tmp_path / "checkpoint"), "topic": "target"}
        reading = spark.readStream.format("rocketmq").option("nameServer", running.namesrv).option("topic", "source")
        reading = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", BATCH_ROWS)
        writing = reading.load().selectExpr("body").writeStream.format("rocketmq").options(**options)
        query = writing.option("deliveryGuarantee", "exactly-once").start()
        try:
            read_until(query, BATCH_ROWS)
            (master,) = [one for one in running.ready["brokers"] if one["address"] == running.ready["broker"]]
            os.kill(master["pid"], signal.SIGKILL)
            send(running.namesrv, SENT_BEFORE, SENT_AFTER)
            query.processAllAvailable()
            assert query.exception() is None
            assert (
                len({one.runId for one in query.recentProgress}) == 1
                and len(query.recentProgress) > SENT_BEFORE / BATCH_ROWS
            )
        finally:
            query.stop()
        written = spark.read.format("rocketmq").option("nameServer", running.namesrv).option("topic", "target").load()
        found = Counter(int(row.body) for row in written.select("body").collect())
        assert found == Counter(range(SENT_BEFORE + SENT_AFTER))
