"""Typed bodies with real brokers and Spark: batch and stream, read and written, by every source of a schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def load(spark: Any, cluster: Any, topic: str, **options: str) -> Any:
    return spark.read.format("rocketmq").options(nameServer=cluster.namesrv, topic=topic, **options)


def test_json_fields_are_columns_in_batch_and_stream(spark: Any, cluster: Any, tmp_path: Path) -> None:
    topic = cluster.topic("typed-json")
    orders = [{"id": n, "amount": n / 4, "customer": {"city": "Oslo" if n % 2 else None}} for n in range(40)]
    cluster.send(topic, [json.dumps(one) for one in orders])
    inferred = load(spark, cluster, topic, format="json").load()
    names = [*"topic broker queue_id queue_offset message_id keys tags body properties".split()]
    names += ["born_timestamp", "store_timestamp", "id", "amount", "customer", "_corrupt"]
    assert inferred.columns == names
    total = inferred.where("customer.city = 'Oslo' and _corrupt is null").selectExpr("sum(amount)", "max(queue_offset)")
    row = total.collect()[0]
    assert row[0] == sum(n / 4 for n in range(40) if n % 2) and row[1] is not None

    cluster.send(topic, ["broken", json.dumps({"id": "text"})])
    chosen = load(spark, cluster, topic, format="json").schema("id bigint, _corrupt string, queue_id int").load()
    assert chosen.where("_corrupt is not null and id is null").count() == 2
    assert chosen.where("id is not null").count() == 40
    assert load(spark, cluster, topic, format="json", schema="id bigint", mode="DROPMALFORMED").load().count() == 40
    with pytest.raises(Exception, match=r"of topic typed-json-\d+ on \S+ cannot be read"):
        load(spark, cluster, topic, format="json", schema="id bigint", mode="FAILFAST").load().collect()

    reading = spark.readStream.format("rocketmq").options(nameServer=cluster.namesrv, topic=topic, format="json")
    stream = reading.option("startingOffsets", "earliest").option("schema", "id bigint, amount double").load()
    target = tmp_path / "out"
    writing = stream.select("id", "amount", "_corrupt").writeStream.format("parquet").option("path", str(target))
    query = writing.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.read.parquet(str(target)).collect()
    assert sorted(row.id for row in rows if row.id is not None) == list(range(40))
    assert len(rows) == 42 and sum(row._corrupt is not None for row in rows) == 2


def test_wrong_schemas_are_told_at_load(spark: Any, cluster: Any) -> None:
    topic = cluster.topic("typed-wrong")
    for options, reason in (
        ({"format": "json"}, "there are no messages yet"),
        ({"format": "avro"}, "needs option schema"),
        ({"format": "json", "schema": "tags array<int>"}, "option payload"),
        ({"mode": "FAILFAST"}, "needs option format"),
    ):
        with pytest.raises(Exception) as told:
            load(spark, cluster, topic, **options).load().collect()
        assert reason in str(told.value), options


def test_sql_knows_the_schema_that_is_stored_for_a_topic(spark: Any, cluster: Any) -> None:
    from pyspark_rocketmq.formats.stored import register
    from pyspark_rocketmq.formats.types import SchemaError
    from pyspark_rocketmq.jobs.sql import Places, TopicSql

    topic = cluster.topic("typed-sql")
    with pytest.raises(SchemaError):
        register(cluster.namesrv, topic, format="json", schema="amount dollars")
    register(cluster.namesrv, topic, format="json", schema="amount double")
    rows = spark.createDataFrame([(1.5,), (2.0,)], "amount double")
    writing = rows.write.format("rocketmq").mode("append").option("nameServer", cluster.namesrv)
    writing.option("format", "registered").save(topic)
    sql = TopicSql(spark, Places(cluster.namesrv))
    assert sql.query(f"select sum(amount), count(_corrupt) from `{topic}`").collect()[0][:] == (3.5, 0)
