"""Topics as streams in a real Spark: restarts from the checkpoint, AvailableNow, queues that come and go, lost data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from aerobee.model.queue import MessageQueue
from aerobee.sync import Producer
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source.cluster import Cluster
from pyspark_rocketmq.source.settings import Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_of(spark: SparkSession, cluster: Any, topic: str, **options: str) -> DataFrame:
    given = {"nameServer": cluster.namesrv, "startingOffsets": "earliest", **options}
    return spark.readStream.format("rocketmq").options(**given).load(topic)


def run_now(frame: DataFrame, work: Path, seconds: int = 120) -> list[dict[str, Any]]:
    """One AvailableNow run to a Parquet table; the progress of its batches."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(work / "table"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(seconds), "no end in time"
        return [json.loads(progress.json) for progress in query.recentProgress]
    finally:
        query.stop()


def bodies(spark: SparkSession, work: Path) -> Counter[bytes]:
    return Counter(bytes(row.body) for row in spark.read.parquet(str(work / "table")).select("body").collect())


def send_to(cluster: Any, topic: str, numbers: range, queues: int) -> Counter[bytes]:
    """In turn to every queue of both brokers."""
    sent = [b"%d" % number for number in numbers]
    with Producer(cluster.namesrv, group="test-sender") as producer:
        futures = [
            producer.send_nowait(topic, body, queue=MessageQueue(topic, "broker-" + "ab"[at % 2], at // 2 % queues))
            for at, body in enumerate(sent)
        ]
        for future in futures:
            future.result(timeout=60)
    return Counter(sent)


def offsets_of(work: Path) -> list[dict[str, Any]]:
    """Every batch's end as Spark keeps it."""
    logs = sorted(
        (one for one in (work / "checkpoint" / "offsets").iterdir() if one.name.isdigit()), key=lambda p: int(p.name)
    )
    return [json.loads(log.read_text().splitlines()[2]) for log in logs]


def test_runs_go_on_where_the_checkpoint_stands_while_queues_come_and_go(
    spark: SparkSession, cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.topic("stream", queues=2)
    sent = send_to(cluster, topic, range(400), 2)
    frame = stream_of(spark, cluster, topic, maxOffsetsPerTrigger="150", minPartitions="3")
    sizes = [one["numInputRows"] for one in run_now(frame, tmp_path) if one["numInputRows"]]
    assert sizes == [150, 150, 100], "admission control holds for AvailableNow"
    assert bodies(spark, tmp_path) == sent
    first = offsets_of(tmp_path)[0]
    assert first["v"] == 1
    assert first["start"][topic]["broker-a"] == {"0": 0, "1": 0}
    assert sum(sum(queues.values()) for queues in first["offsets"][topic].values()) == 150
    # Queues appear.
    cluster.create_topic(topic, 4)
    sent += send_to(cluster, topic, range(400, 800), 4)
    run_now(stream_of(spark, cluster, topic), tmp_path)
    assert bodies(spark, tmp_path) == sent
    ends = offsets_of(tmp_path)[-1]["offsets"][topic]
    assert sorted(ends["broker-b"]) == ["0", "1", "2", "3"]
    # Queues go: their numbers stay.
    cluster.create_topic(topic, 1)
    sent += send_to(cluster, topic, range(800, 900), 1)
    run_now(stream_of(spark, cluster, topic, minPartitions="5"), tmp_path)
    assert bodies(spark, tmp_path) == sent
    later = offsets_of(tmp_path)[-1]["offsets"][topic]
    assert {broker: queues["3"] for broker, queues in later.items()} == {b: q["3"] for b, q in ends.items()}
    # Nothing new: no batch.
    batches = len(offsets_of(tmp_path))
    run_now(stream_of(spark, cluster, topic), tmp_path)
    assert len(offsets_of(tmp_path)) == batches
    assert bodies(spark, tmp_path) == sent


def test_a_running_query_reads_what_comes_and_shows_as_a_group(
    spark: SparkSession, cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.topic("live", queues=1)
    send_to(cluster, topic, range(5), 1)
    group = f"spark-{topic}"
    seen: Counter[bytes] = Counter()

    def take(frame: DataFrame, batch: int) -> None:
        seen.update(bytes(row.body) for row in frame.select("body").collect())

    started = stream_of(spark, cluster, topic, group=group, startingOffsets="latest", tags="*").writeStream
    query = started.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    asked = Cluster(Endpoint((cluster.namesrv,)))
    queues = asked.queues(Wanted((topic,)))
    try:
        expected: Counter[bytes] = Counter()
        # The first run of the query resolves "latest" somewhere in here: send until it is seen.
        for round_number in range(60):
            expected += send_to(cluster, topic, range(100 + round_number * 2, 102 + round_number * 2), 1)
            query.processAllAvailable()
            if seen:
                break
        assert seen, query.exception()
        missing = expected - seen
        assert not seen - expected and all(int(body) < min(map(int, seen)) for body in missing), "none after the first"
        sent = send_to(cluster, topic, range(1000, 1050), 1)
        query.processAllAvailable()
        assert sent <= seen and max(seen.values()) == 1
        ends = {queue: one.end for queue, one in asked.bounds(queues).items()}
        for _ in range(100):
            if asked.committed(group, queues) == ends:
                break
            query.processAllAvailable()
        assert asked.committed(group, queues) == ends, "lag 0"
    finally:
        query.stop()


def test_tags_and_sql_are_filtered_by_the_broker(spark: SparkSession, tmp_path: Path, cluster: Any) -> None:
    topic = cluster.topic("filtered", queues=1)
    for tag in ("A", "B", "C"):
        cluster.send(topic, [f"{tag}{number}" for number in range(20)], tags=tag)
    run_now(stream_of(spark, cluster, topic, tags="A || C"), tmp_path)
    assert Counter(body[:1] for body in bodies(spark, tmp_path)) == {b"A": 20, b"C": 20}


def test_lost_data_stops_a_query_unless_it_may_go_on(spark: SparkSession, fresh_cluster: Any, tmp_path: Path) -> None:
    topic = fresh_cluster.topic("lost", queues=1)
    sent = send_to(fresh_cluster, topic, range(60), 1)
    run_now(stream_of(spark, fresh_cluster, topic), tmp_path)
    assert bodies(spark, tmp_path) == sent
    delete_topic(fresh_cluster, topic)
    fresh_cluster.create_topic(topic, 1)
    sent += send_to(fresh_cluster, topic, range(100, 120), 1)
    with pytest.raises(PySparkException, match=r"deleted and created again"):
        run_now(stream_of(spark, fresh_cluster, topic), tmp_path)
    run_now(stream_of(spark, fresh_cluster, topic, failOnDataLoss="false"), tmp_path)
    assert bodies(spark, tmp_path) == sent, "none of the new messages is lost"


def delete_topic(cluster: Any, topic: str) -> None:
    import asyncio

    from aerobee.admin import topics
    from aerobee.admin.connection import AdminConnection

    async def work() -> None:
        async with AdminConnection(cluster.namesrv) as admin:
            await topics.delete_topic(admin, topic)

    asyncio.run(work())


def test_a_stream_of_nothing_ends_with_one_clear_error(spark: SparkSession, cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="topic 'nothing-there' does not exist"):
        run_now(stream_of(spark, cluster, "nothing-there"), tmp_path)
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")), "nothing was committed"
    with pytest.raises(PySparkException, match="a stream has no end"):
        run_now(stream_of(spark, cluster, cluster.topic("endless"), endingOffsets="latest"), tmp_path / "other")
