"""Topics as batch tables in a real Spark: rows, column subsets, splits, WHERE; one clear error for each bad input."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from aerobee.errors import AerobeeError
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.sync import Producer
from aerobee.testing.secrets import secret_for
from pyspark_rocketmq.columns.schema import COLUMNS, DEFAULT_COLUMNS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SWITCH = "spark.sql.python.filterPushdown.enabled"


def topic_of(spark: SparkSession, cluster: Any, topic: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(nameServer=cluster.namesrv, **options).load(topic)


def fill(cluster: Any, topic: str, count: int) -> None:
    with Producer(cluster.namesrv, group="test-sender") as producer:
        futures = [
            producer.send_nowait(
                topic,
                b"body %d" % number,
                tags=["A", "B", ""][number % 3],
                keys=f"k{number} all" if number % 2 else "",
                properties={"n": str(number), "ü": "ö"} if number % 5 else None,
            )
            for number in range(count)
        ]
        for future in futures:
            future.result(timeout=60)


def fill_queue(cluster: Any, queue: MessageQueue, count: int, batch: int = 500) -> None:
    """Numbers as bodies, in order, many a request."""
    with Producer(cluster.namesrv, group="test-sender") as producer:
        for start in range(0, count, batch):
            bodies = [b"%d" % number for number in range(start, min(start + batch, count))]
            producer.send_batch([Message(queue.topic, body) for body in bodies], queue=queue)


def test_every_column_says_what_the_message_says(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("columns")
    fill(cluster, topic, 300)
    rows = topic_of(spark, cluster, topic).collect()
    assert tuple(rows[0].asDict()) == DEFAULT_COLUMNS
    found = {(row.broker, row.queue_id, row.queue_offset): row for row in rows}
    sent = cluster.messages(topic)
    assert len(rows) == len(found) == len(sent) == 300
    for message in sent:
        row = found[message.broker, message.queue_id, message.queue_offset]
        assert (row.topic, row.message_id, bytes(row.body)) == (topic, message.message_id, message.body)
        assert (row.keys or "", row.tags or "") == (message.keys or "", message.tags or "")
        assert row.properties == dict(message.properties)
        assert int(row.store_timestamp.timestamp() * 1000) == message.store_timestamp
        assert int(row.born_timestamp.timestamp() * 1000) == message.born_timestamp


def test_any_subset_of_columns_in_any_order(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("subsets")
    fill(cluster, topic, 60)
    place = ["queue_id", "queue_offset", "broker"]
    whole = topic_of_columns(spark, cluster, topic, list(COLUMNS)).collect()
    by_place = {tuple(row[name] for name in place): row for row in whole}
    draw = random.Random(7)
    rest = [name for name in COLUMNS if name not in place]
    draw.shuffle(rest)
    # Every column twice, beside others each time, and each kind of column alone.
    subsets = [rest[at : at + 4] for at in range(0, len(rest), 4)]
    subsets += [draw.sample(rest, draw.randint(1, 9)) for _ in range(4)]
    for subset in subsets:
        columns = [*subset, *place]
        draw.shuffle(columns)
        rows = topic_of_columns(spark, cluster, topic, columns).collect()
        assert len(rows) == 60
        for row in rows:
            assert list(row.asDict()) == columns
            other = by_place[row.queue_id, row.queue_offset, row.broker]
            assert row.asDict() == {name: other[name] for name in columns}
    for alone in ("body", "queue_offset", "properties"):
        rows = topic_of_columns(spark, cluster, topic, [alone]).collect()
        assert sorted(map(repr, (row[0] for row in rows))) == sorted(repr(row[alone]) for row in whole)


def topic_of_columns(spark: SparkSession, cluster: Any, topic: str, columns: list[str]) -> DataFrame:
    reader = spark.read.format("rocketmq").schema(spark_schema(columns))
    return reader.option("nameServer", cluster.namesrv).load(topic)


def _split_finer(spark: SparkSession, cluster: Any, count: int) -> None:
    topic = cluster.topic("split", queues=1)
    for broker in ("broker-a", "broker-b"):
        fill_queue(cluster, MessageQueue(topic, broker, 0), count)
    frame = topic_of(spark, cluster, topic, minPartitions="10")
    assert frame.rdd.getNumPartitions() == 10
    rows = frame.groupBy("broker").agg({"queue_offset": "count", "queue_id": "max"}).collect()
    assert sorted(row[0] for row in rows) == ["broker-a", "broker-b"]
    totals = frame.selectExpr(
        "count(*)", "count(distinct broker, queue_offset)", "sum(cast(cast(body as string) as bigint))",
        "sum(case when cast(cast(body as string) as bigint) = queue_offset then 1 else 0 end)",
    ).collect()[0]  # fmt: skip
    assert tuple(totals) == (2 * count, 2 * count, count * (count - 1), 2 * count)
    parts = topic_of(spark, cluster, topic, maxRecordsPerPartition=str(count // 4)).rdd.getNumPartitions()
    assert parts == 8


def test_two_queues_are_split_finer_than_queues(spark: SparkSession, cluster: Any) -> None:
    _split_finer(spark, cluster, 10_000)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_queues_of_a_million_are_split_finer_than_queues(spark: SparkSession, cluster: Any) -> None:
    _split_finer(spark, cluster, 500_000)


def test_where_reaches_the_brokers_and_changes_no_answer(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("where")
    fill(cluster, topic, 200)
    other = cluster.topic("where")
    fill(cluster, other, 50)
    times = sorted(message.store_timestamp for message in cluster.messages(topic))
    wheres = [
        "tags = 'A'",
        "tags in ('A', 'B') and queue_id = 1",
        f"topic = '{other}' and queue_offset between 3 and 10",
        f"store_timestamp >= timestamp_millis({times[100]}) and store_timestamp <= timestamp_millis({times[150]})",
        "queue_offset = 5 or tags = 'B'",
        "tags is null and broker = 'broker-a'",
        "queue_offset > 100000",
    ]
    both = {"topicPattern": f"{topic}|{other}", "nameServer": cluster.namesrv}

    def load(**more: str) -> DataFrame:
        frame = spark.read.format("rocketmq").options(**both, **more).load()
        return frame.select("topic", "broker", "queue_id", "queue_offset", "body", "tags")

    def answer(frame: DataFrame, where: str) -> list[str]:
        return sorted(map(repr, frame.where(where).collect()))

    assert spark.conf.get(SWITCH) == "true"
    pushed = [answer(load(filterPushdown="true"), where) for where in wheres]
    plan = load(filterPushdown="true").where(wheres[2])
    assert "Filter (" not in plan._jdf.queryExecution().executedPlan().toString(), "topic and offset are done"
    again = load()
    for where, on in zip(wheres, pushed, strict=True):
        assert answer(again, where) == on, f"{where}: one DataFrame, many queries"
    assert again.count() == 250
    spark.conf.set(SWITCH, "false")
    try:
        unpushed = [answer(load(filterPushdown="true"), where) for where in wheres]
        for where, on, off in zip(wheres, pushed, unpushed, strict=True):
            assert (len(on), set(on) - set(off), set(off) - set(on)) == (len(off), set(), set()), where
    finally:
        spark.conf.set(SWITCH, "true")
    assert [len(rows) for rows in pushed[:3]] == [67 + 17, len(pushed[1]), len(pushed[2])]
    assert pushed[6] == [] and all(pushed[:6])


def test_offsets_and_times_bound_a_read(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("bounds", queues=1)
    for broker in ("broker-a", "broker-b"):
        fill_queue(cluster, MessageQueue(topic, broker, 0), 100, batch=10)
    start = {topic: {"broker-a": {"0": 10}, "broker-b": {"0": -2}}}
    end = {topic: {"broker-a": {"0": 30}, "broker-b": {"0": -1}}}
    frame = topic_of(spark, cluster, topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    assert Counter(row.broker for row in frame.select("broker").collect()) == {"broker-a": 20, "broker-b": 100}
    moments = sorted(message.store_timestamp for message in cluster.messages(topic))
    low, high = moments[40], moments[160]
    frame = topic_of(spark, cluster, topic, startingTimestamp=str(low), endingTimestamp=str(high))
    assert frame.count() == sum(low <= moment < high for moment in moments)


def test_tables_and_views_in_sql(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("sql")
    fill(cluster, topic, 30)
    spark.sql(
        f"create or replace temporary view orders using rocketmq "
        f"options (nameServer '{cluster.namesrv}', topic '{topic}', tags 'A')"
    )
    assert spark.sql("select count(*) from orders").collect()[0][0] == 10
    spark.catalog.dropTempView("orders")


BAD = [
    ({"topic": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
    ({"topic": "t", "nameServer": "127.0.0.1:1"}, "no name server answers"),
    ({"topic": "t", "startingOffset": "earliest"}, "no option startingoffset: did you mean startingOffsets?"),
    ({}, "CREATE TABLE ... USING rocketmq OPTIONS (...) loses its options"),
    ({"topic": "t", "secretKey": secret_for("who"), "tagz": "A"}, "no option tagz: did you mean tags?"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=[words.split(":")[0][:30] for _, words in BAD])
def test_bad_input_is_one_clear_error(spark: SparkSession, cluster: Any, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("rocketmq").options(**{"nameServer": cluster.namesrv, **options}).load().count()
    assert words in str(caught.value)
    assert secret_for("who") not in str(caught.value)


def test_a_bad_schema_and_an_end_that_is_not_there(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("bad", queues=1)
    fill(cluster, topic, 5)
    reader = spark.read.format("rocketmq").option("nameServer", cluster.namesrv)
    with pytest.raises(PySparkException, match="no column 'bodi': did you mean 'body'"):
        reader.schema("bodi binary").load(topic).count()
    with pytest.raises(PySparkException, match="column 'queue_id' is INT, not STRING"):
        spark.read.format("rocketmq").option("nameServer", cluster.namesrv).schema("queue_id string").load(
            topic
        ).count()
    end = json.dumps({topic: {"broker-a": {"0": 1000}}})
    with pytest.raises(PySparkException, match=r"messages up to 999 are gone.*failOnDataLoss=false"):
        topic_of(spark, cluster, topic, endingOffsets=end).count()
    assert topic_of(spark, cluster, topic, endingOffsets=end, failOnDataLoss="false").count() == 5


def test_no_way_to_read_leaves_out_a_broker_that_is_away(
    spark: SparkSession, fresh_cluster: Any, tmp_path: Path
) -> None:
    """The name server has dropped the broker, so that no route names it. Every read knows of it all the same."""
    from pyspark_rocketmq.jobs.failures import failure
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    # The session keeps the view that SQL makes of a topic: a second try of this test needs another name.
    topic = fresh_cluster.topic("orders")
    fresh_cluster.send(topic, ["x"] * 40)
    fresh_cluster.register()
    given = {"nameServer": fresh_cluster.namesrv, "topic": topic, "retryTimeoutMs": "1000"}
    sql = TopicSql(spark, Places(fresh_cluster.namesrv, timeout_s=3.0))

    def batch(**more: str) -> int:
        return spark.read.format("rocketmq").options(**given, **more).load().count()

    def stream() -> int:
        frame = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest").load()
        writing = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return sum(one["numInputRows"] for one in query.recentProgress)

    reads: tuple[Callable[[], int], ...] = (
        batch,
        lambda: batch(columns="queue_offset"),
        lambda: sql.query(f"select count(*) from `{topic}`").collect()[0][0],
        stream,
    )
    assert [read() for read in reads] == [40] * 4
    fresh_cluster.kill(1)
    for read in reads:
        with pytest.raises(Exception, match=topic) as raised:
            read()
        error = raised.value if isinstance(raised.value, AerobeeError) else failure(raised.value)
        assert f"a part of topic {topic} is on broker group broker-b, which" in str(error), error
