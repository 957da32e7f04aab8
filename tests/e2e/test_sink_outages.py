"""Writes live through outages: a broker or the name server is away for a while, and every row is there once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aerobee.errors import AerobeeError
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.sink.levels import BatchName, Level, level_of

GUARANTEES = ("at-least-once", "idempotent", "exactly-once")
AWAY_S = 1.0


def texts(first: int, count: int = 40) -> list[pa.RecordBatch]:
    """Two Arrow batches, so that a task looks at the route again in its middle."""
    names = [f"{number}" for number in range(first, first + count)]
    keys = [f"key-{number % 5}" for number in range(count)]
    whole = pa.record_batch([pa.array(names), pa.array(names), pa.array(keys)], names=["body", "keys", "sharding_key"])
    return [whole.slice(0, count // 2), whole.slice(count // 2)]


def level(cluster: LocalCluster, guarantee: str, *columns: str, **given: str) -> Level:
    named = {"nameServer": cluster.namesrv, "topic": "T", "deliveryGuarantee": guarantee, "idempotencyKey": "keys"}
    fields = [StructField(name, StringType()) for name in columns or ("body", "keys", "sharding_key")]
    return level_of({"requestTimeoutMs": "2000", **named, **given}, StructType(fields))


@contextmanager
def back_after(work: Callable[[], None]) -> Iterator[None]:
    """Bring something back a moment later, while the body runs."""
    timer = threading.Timer(AWAY_S, work)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def register(cluster: LocalCluster) -> None:
    """Let brokers register now. They do so every 10 seconds, which is too long here."""
    for node in list(cluster._nodes.values()):
        cluster._run(node.registrar.register_now())


def restart_namesrv(cluster: LocalCluster) -> None:
    cluster.restart_namesrv(0)
    register(cluster)


def run_batch(sink: Level, batch: int, first: int) -> None:
    sink.commit([sink.write(BatchName("Q", batch, f"run-{batch}"), texts(first))], batch)


def bodies(cluster: LocalCluster) -> list[int]:
    return sorted(int(message.body) for message in cluster.messages("T"))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_batch_waits_for_what_is_away(tmp_path: Path, guarantee: str) -> None:
    with LocalCluster(2, data=tmp_path) as cluster:
        cluster.create_topic("T", 2)
        # Each broker learns the topics of the other one when it registers next.
        register(cluster)
        register(cluster)
        sink = level(cluster, guarantee)
        run_batch(sink, 0, 0)
        cluster.kill(1)
        with back_after(lambda: cluster.restart(1)):
            run_batch(sink, 1, 100)
        cluster.stop_namesrv(0)
        with back_after(lambda: restart_namesrv(cluster)):
            run_batch(sink, 2, 200)
        cluster.stop_namesrv(0)
        cluster.kill(0)

        def both() -> None:
            restart_namesrv(cluster)
            cluster.restart(0)

        with back_after(both):
            run_batch(sink, 3, 300)
        assert bodies(cluster) == [start + number for start in (0, 100, 200, 300) for number in range(40)]
        # A key stays in its queue, whoever was away.
        places: dict[str, set[tuple[str | None, int | None]]] = {}
        for message in cluster.messages("T"):
            key = message.system_properties.get("__SHARDINGKEY", "")
            places.setdefault(key, set()).add((message.broker, message.queue_id))
        assert len(places) == 5 and all(len(found) == 1 for found in places.values()), places


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
def test_an_outage_in_the_middle_of_a_task(tmp_path: Path, guarantee: str) -> None:
    with LocalCluster(2, data=tmp_path) as cluster:
        cluster.create_topic("T", 2)
        sink = level(cluster, guarantee)

        def batches() -> Iterator[pa.RecordBatch]:
            one, two = texts(0)
            yield one
            cluster.kill(1)
            threading.Timer(AWAY_S, lambda: cluster.restart(1)).start()
            yield two

        sink.commit([sink.write(BatchName("Q", 0, "run"), batches())], 0)
        assert bodies(cluster) == list(range(40))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_does_not_come_back_is_named(tmp_path: Path, guarantee: str) -> None:
    with LocalCluster(2, data=tmp_path) as cluster:
        cluster.create_topic("T", 2)
        sink = level(cluster, guarantee, retryTimeoutMs="600")
        run_batch(sink, 0, 0)
        cluster.kill(1)
        with pytest.raises(AerobeeError, match="broker-b"):
            run_batch(sink, 1, 100)
        cluster.stop_namesrv(0)
        with pytest.raises(AerobeeError, match="name server"):
            run_batch(sink, 2, 200)


def test_the_patience_of_a_sink_is_two_minutes(tmp_path: Path) -> None:
    from pyspark_rocketmq.sinkoptions import sink_options

    assert sink_options({"nameServer": "a:1", "topic": "T"}, {}).endpoint.retry_timeout_ms == 120_000
