"""Spark's source at Apache's broker: a batch and a stream of what Java sent, in order, filtered, every message once."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.testing.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def hashes(frame: DataFrame) -> Counter[str]:
    return Counter(hashlib.sha1(bytes(row.body)).hexdigest() for row in frame.select("body").collect())


def produce(place: Place, topic: str, count: int) -> Counter[str]:
    """What Java pulls is what must be read."""
    place.java.run("produce", topic=topic, count=count, tags="a,b", keys="k")
    found = [one for one in place.java.run("pull-all", topic=topic) if one["event"] == "message"]
    assert len(found) >= count
    return Counter(one["bodyHash"] for one in found)


@pytest.mark.timeout(300)
def test_a_batch_of_what_java_sent(spark: SparkSession, apache_place: Place) -> None:
    sent = produce(apache_place, "spark-batch", 700)
    reader = spark.read.format("rocketmq").option("nameServer", apache_place.namesrv)
    frame = reader.load("spark-batch")
    assert hashes(frame) == sent
    assert hashes(reader.option("minPartitions", "7").load("spark-batch")) == sent
    rows = frame.select("broker", "queue_id", "queue_offset", "tags", "keys", "message_id").collect()
    assert (
        len({(row.broker, row.queue_id, row.queue_offset) for row in rows})
        == len({row.message_id for row in rows})
        == 700
    )
    assert {row.tags for row in rows} == {"a", "b"} and all(row.keys for row in rows)
    wanted = sum(row.tags == "a" for row in rows)
    filtered = spark.read.format("rocketmq").options(nameServer=apache_place.namesrv, tags="a").load("spark-batch")
    assert filtered.count() == frame.where("tags = 'a'").count() == wanted


@pytest.mark.timeout(300)
def test_a_stream_of_what_java_sends_goes_on_from_its_checkpoint(
    spark: SparkSession, apache_place: Place, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")

    def run() -> Counter[str]:
        stream = spark.readStream.format("rocketmq").options(
            nameServer=apache_place.namesrv, topic="spark-stream", startingOffsets="earliest",
            maxOffsetsPerTrigger="200", group="spark-mirror", failOnDataLoss="true",
        ).load()  # fmt: skip
        writer = stream.writeStream.format("parquet").option("path", table).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(200)
        return hashes(spark.read.parquet(table))

    sent = produce(apache_place, "spark-stream", 500)
    assert run() == sent
    sent = produce(apache_place, "spark-stream", 300)
    assert sum(sent.values()) == 800 and run() == sent
    progress = apache_place.java.mqadmin("consumerProgress", "-g", "spark-mirror", "-s", "true")
    assert "spark-stream" in progress, "the mirrored group is known"


@pytest.mark.timeout(300)
def test_a_topic_that_is_not_there(spark: SparkSession, apache_place: Place) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="topic 'nowhere' does not exist"):
        spark.read.format("rocketmq").option("nameServer", apache_place.namesrv).load("nowhere").count()
