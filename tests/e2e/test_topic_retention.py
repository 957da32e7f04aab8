"""A topic whose messages are served for a shorter time than the log keeps them, as its users meet it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

import aerobee
from aerobee.cli.main import main
from aerobee.sync import LitePullConsumer, Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.waiting import wait_until
from pyspark_rocketmq.columns.schema import spark_schema
from pyspark_rocketmq.source.batch import batch_reader

SCHEMA = spark_schema(["topic", "broker", "queue_id", "queue_offset", "body"])


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as cluster:
        yield cluster


def run(cluster: LocalCluster, *words: str, fails: bool = False) -> str:
    result = CliRunner().invoke(main, [*words, "-n", cluster.namesrv])
    assert (result.exit_code != 0) == fails, result.output
    return result.output


def send(cluster: LocalCluster, topic: str, body: bytes) -> str:
    with Producer(cluster.namesrv) as producer:
        return producer.send(topic, body, keys="k").message_id


def first_offsets(cluster: LocalCluster, topic: str) -> list[int]:
    return [one["min_offset"] for one in json.loads(run(cluster, "topic", "show", "-t", topic, "--json"))["queues"]]


def read_by_spark(cluster: LocalCluster, topic: str) -> list[bytes]:
    """Read as the driver and a task of Spark do."""
    reader = batch_reader({"nameServer": cluster.namesrv, "topic": topic}, SCHEMA)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row["body"] for batch in batches for row in batch.to_pylist()]


def test_what_is_too_old_is_served_to_nobody(cluster: LocalCluster) -> None:
    run(cluster, "topic", "create", "-t", "orders", "-q", "1", "--retention", "2h")
    old = send(cluster, "orders", b"old")
    cluster.advance(hours=1.5)
    send(cluster, "orders", b"young")
    assert first_offsets(cluster, "orders") == [0]
    cluster.advance(hours=1)
    wait_until(lambda: first_offsets(cluster, "orders") == [1])
    assert "served    for 2 h" in run(cluster, "topic", "show", "-t", "orders")
    with LitePullConsumer(cluster.namesrv, group="late", consume_from="first") as consumer:
        consumer.subscribe("orders")
        assert next(iter(consumer)).body == b"young"
    assert read_by_spark(cluster, "orders") == [b"young"]
    run(cluster, "message", "show", old, "-t", "orders", fails=True)
    found = run(cluster, "message", "find", "-t", "orders", "--key", "k", "--json").splitlines()
    assert [json.loads(line)["queue_offset"] for line in found] == [1]
    assert json.loads(run(cluster, "group", "lag", "-g", "late", "-t", "orders", "--json"))["lag"] <= 1
    asked = run(cluster, "topic", "update", "-t", "orders", "--retention", "1", "--dry-run")
    assert "Messages older than 1 h are served to nobody" in asked
    run(cluster, "topic", "update", "-t", "orders", "--retention", "off", "--yes")
    wait_until(lambda: first_offsets(cluster, "orders") == [0])
    assert read_by_spark(cluster, "orders") == [b"old", b"young"]
    run(cluster, "message", "show", old, "-t", "orders")


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "2d", "soon"])
def test_a_time_that_is_none_is_refused_before_anybody_is_asked(cluster: LocalCluster, value: str) -> None:
    told = run(cluster, "topic", "create", "-t", "other", "--retention", value, fails=True)
    assert "is neither off nor a whole number of hours, 1 or more" in told


def test_a_pop_consumer_is_not_served_them_either(cluster: LocalCluster) -> None:
    run(cluster, "topic", "create", "-t", "popped", "-q", "1", "--retention", "1")
    run(cluster, "group", "create", "-g", "poppers")
    send(cluster, "popped", b"old")
    cluster.advance(hours=1.1)
    send(cluster, "popped", b"young")
    wait_until(lambda: first_offsets(cluster, "popped") == [1])

    async def popped() -> list[bytes]:
        async with aerobee.SimpleConsumer(
            cluster.namesrv, group="poppers", subscribe={"popped": "*"}, consume_from="first"
        ) as consumer:
            return [one.body for one in await consumer.receive(max_messages=8, invisible=30.0, wait=5.0)]

    assert asyncio.run(popped()) == [b"young"]
