"""The sink in a real Spark: each level, failed and replayed batches, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
