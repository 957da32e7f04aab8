"""The sink in a real Spark: each level, failed and replayed batches, and what it refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, PythonException, StreamingQueryException
from pyspark.sql.functions import expr, udf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


AWAIT_S = 120


def write(frame: DataFrame, cluster: Any, **options: object) -> None:
    writer = frame.write.format("rocketmq").mode("append").option("nameServer", cluster.namesrv)
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def test_columns_become_messages(spark: SparkSession, cluster: Any) -> None:
    one, two = cluster.topic("sink"), cluster.topic("sink")
    rows = [
        ("a", one, "PAID", "k1 k2", {"colour": "red"}, "s1"),
        ("b", one, None, None, None, None),
        ("c", two, "PAID", "k3", {"size": "1"}, "s1"),
        ("d", None, None, None, {}, "s2"),
    ]
    schema = "body string, topic string, tags string, keys string, properties map<string,string>, sharding_key string"
    write(spark.createDataFrame(rows, schema), cluster, topic=two)
    got = {message.body: message for message in cluster.messages(one) + cluster.messages(two)}
    assert {body: got[body].topic for body in got} == {b"a": one, b"b": one, b"c": two, b"d": two}
    assert (got[b"a"].tags, got[b"a"].keys, got[b"a"].properties) == ("PAID", "k1 k2", {"colour": "red"})
    assert got[b"a"].system_properties["__SHARDINGKEY"] == "s1"
    assert not got[b"b"].tags and not got[b"b"].properties


def test_queues_are_chosen(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("sink", queues=3)
    rows = [(f"{i}".encode(), cluster.broker_name(i % 2), i % 3) for i in range(30)]
    write(spark.createDataFrame(rows, "body binary, broker string, queue_id int"), cluster, topic=topic)
    assert all(message.queue_id == int(message.body) % 3 for message in cluster.messages(topic))
    assert all(m.broker == cluster.broker_name(int(m.body) % 2) for m in cluster.messages(topic))
    keyed = cluster.topic("sink", queues=3)
    frame = spark.range(300).selectExpr("cast(id as string) body", "cast(id % 7 as string) sharding_key")
    write(frame.repartition(1), cluster, topic=keyed)
    places: dict[str, set[Any]] = {}
    order: dict[str, list[int]] = {}
    for message in cluster.messages(keyed):
        key = message.system_properties["__SHARDINGKEY"]
        places.setdefault(key, set()).add((message.broker, message.queue_id))
        order.setdefault(key, []).append(int(message.body))
    assert all(found == sorted(found) for found in order.values())
    assert len(places) == 7 and all(len(found) == 1 for found in places.values())


# -- streams: a directory of files, one a batch


def fill(directory: Path, files: int, rows: int) -> list[str]:
    """Texts, `rows` to a file."""
    directory.mkdir(exist_ok=True)
    texts = [f"{file}-{row}" for file in range(files) for row in range(rows)]
    for file in range(files):
        path = directory / f"{file}.txt"
        if not path.exists():
            path.write_text("\n".join(texts[file * rows : (file + 1) * rows]))
    return texts


def stream(spark: SparkSession, directory: Path) -> DataFrame:
    reading = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
    return reading.text(str(directory)).selectExpr("value body", "value idempotencyKey")


def run(frame: DataFrame, cluster: Any, checkpoint: Path, mode: str = "append", **options: object) -> None:
    """Until everything there is written."""
    writer = frame.writeStream.format("rocketmq").outputMode(mode).trigger(availableNow=True)
    named = {"nameServer": cluster.namesrv, "checkpointLocation": str(checkpoint), **options}
    query = writer.options(**{name: str(value) for name, value in named.items()}).start()
    try:
        assert query.awaitTermination(AWAIT_S)
    finally:
        query.stop()


def forget_last_commit(checkpoint: Path) -> int:
    """As if the driver had died after the sink's commit and before Spark's own."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def bodies(cluster: Any, topic: str) -> list[str]:
    return sorted(message.body.decode() for message in cluster.messages(topic))


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "exactly-once"])
def test_a_replayed_batch(spark: SparkSession, cluster: Any, tmp_path: Path, guarantee: str) -> None:
    topic = cluster.topic("sink")
    texts = fill(tmp_path / "in", files=3, rows=40)
    frame = stream(spark, tmp_path / "in").repartition(3)
    if guarantee != "idempotent":
        frame = frame.drop("idempotencyKey")
    options = {"topic": topic, "deliveryGuarantee": guarantee}
    run(frame, cluster, tmp_path / "checkpoint", **options)
    assert bodies(cluster, topic) == sorted(texts)
    assert len({message.broker for message in cluster.messages(topic)}) == 2
    assert forget_last_commit(tmp_path / "checkpoint") == 2
    more = fill(tmp_path / "in", files=4, rows=40)
    run(frame, cluster, tmp_path / "checkpoint", **options)
    found = bodies(cluster, topic)
    twice = Counter(found) - Counter(more)
    assert set(found) == set(more)
    # The file of the batch that was run again, and nothing else.
    files = {text.partition("-")[0] for text in twice}
    assert (len(files), len(twice)) == ((1, 40) if guarantee == "at-least-once" else (0, 0))


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
def test_a_replay_after_a_group_by(spark: SparkSession, cluster: Any, tmp_path: Path, guarantee: str) -> None:
    """Rows of a shuffle come in another order the second time, in other partitions."""
    topic = cluster.topic("sink")
    fill(tmp_path / "in", files=2, rows=60)
    counted = stream(spark, tmp_path / "in").groupBy(expr("substring(body, 3, 1) digit")).count()
    frame = counted.selectExpr("concat(digit, '=', count) body", "digit idempotencyKey")
    if guarantee == "exactly-once":
        frame = frame.drop("idempotencyKey")
    options = {"topic": topic, "deliveryGuarantee": guarantee, "mode": "complete"}
    run(frame.repartition(2, "body"), cluster, tmp_path / "checkpoint", **options)
    first = bodies(cluster, topic)
    assert len(first) == 20 and "1=11" in first and "1=22" in first
    forget_last_commit(tmp_path / "checkpoint")
    run(frame.repartition(2, "body"), cluster, tmp_path / "checkpoint", **options)
    assert bodies(cluster, topic) == first


def test_a_failed_batch_leaves_nothing(spark: SparkSession, cluster: Any, tmp_path: Path) -> None:
    """One task writes and another fails; later the batch succeeds."""
    topic = cluster.topic("sink")
    texts = fill(tmp_path / "in", files=1, rows=50)
    healed = str(tmp_path / "healed")

    def broken(body):  # type: ignore[no-untyped-def]  # Spark would read annotations
        if body == "0-49" and not Path(healed).exists():
            raise ValueError("broken on purpose")
        return body

    fragile = udf(broken, "string")
    frame = stream(spark, tmp_path / "in").repartition(2).select(fragile("body").alias("body"))
    options = {"topic": topic, "deliveryGuarantee": "exactly-once"}
    with pytest.raises(StreamingQueryException, match="broken on purpose"):
        run(frame, cluster, tmp_path / "checkpoint", **options)
    assert bodies(cluster, topic) == []
    Path(healed).touch()
    run(frame, cluster, tmp_path / "checkpoint", **options)
    assert bodies(cluster, topic) == sorted(texts)


def test_a_batch_write_is_all_or_nothing(spark: SparkSession, cluster: Any) -> None:
    topic = cluster.topic("sink")
    options = {"topic": topic, "deliveryGuarantee": "exactly-once", "jobId": f"nightly-{topic}"}
    good = spark.range(100).selectExpr("cast(id as string) body").repartition(2)
    bad = good.selectExpr("if(body = '77', null, body) body")
    with pytest.raises(PythonException, match="column body: 1 rows are NULL"):
        write(bad, cluster, **options)
    assert bodies(cluster, topic) == []
    for _ in range(2):  # run again under its name, the job writes nothing
        write(good, cluster, **options)
        assert bodies(cluster, topic) == sorted(str(number) for number in range(100))


# -- what is refused


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("'x' value, 1 queue_id, 2 tags", {}, "value is unknown.*tags is INT, not STRING.*body is missing"),
        ("'x' body", {"topic": ""}, "option topic: '' is empty"),
        ("'x' body", {"deliveryGuarantee": "exactly"}, "deliveryGuarantee.*did you mean exactly-once"),
        ("'x' body", {"deliveryGarantee": "x"}, "no option deliveryGarantee: did you mean deliveryGuarantee"),
        ("'x' body", {"deliveryGuarantee": "idempotent"}, "idempotencyKey is missing"),
        ("'x' body, map('TAGS', 'x') properties", {}, "'TAGS' is RocketMQ's own"),
        ("'x' body", {"nameServer": "127.0.0.1:1", "requestTimeoutMs": 500, "retryTimeoutMs": 500}, "no name server"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, cluster: Any, columns: str, options: dict[str, object], says: str
) -> None:
    topic = cluster.topic("sink")
    frame = spark.sql(f"select {columns}")
    named = {"nameServer": cluster.namesrv, "topic": topic, **options}
    with pytest.raises(PySparkException, match=f"(?si){says}"):
        frame.write.format("rocketmq").mode("append").options(**{n: str(v) for n, v in named.items()}).save()
    assert bodies(cluster, topic) == []


def test_overwrite_is_refused(spark: SparkSession, cluster: Any) -> None:
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        spark.range(1).selectExpr("'x' body").write.format("rocketmq").mode("overwrite").options(
            nameServer=cluster.namesrv, topic=cluster.topic("sink")
        ).save()
