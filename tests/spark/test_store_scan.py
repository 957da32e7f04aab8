"""The store scan with a real Spark: beside a live broker, after a dead one, pruned, checked, damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft, encode_blank, encode_records
from aerobee.store.segment import segment_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SEGMENT = 1 << 16
T0 = 1_700_000_000_000


def draft(topic: str, number: int, size: int = 100) -> Draft:
    properties = encode_properties({"KEYS": f"k{number}", "TAGS": "A" if number % 2 else "B", "n": str(number)})
    made = Draft(topic.encode(), 0, 0, 0, T0, HOST, HOST, 0, 0, b"%0*d" % (size, number), properties, 0, "", "")
    made.queue_offset = number
    return made


def write_log(root: Path, count: int, topics: tuple[str, ...] = ("a", "b"), step_ms: int = 1000) -> list[int]:
    """A log of small segments; where each record begins."""
    directory = root / "commitlog"
    directory.mkdir(parents=True, exist_ok=True)
    places: list[int] = []
    start, data = 0, b""
    for number in range(count):
        record = encode_records(
            [draft(topics[number % len(topics)], number)], start + len(data), T0 + number * step_ms, True
        )
        if len(data) + len(record) + 8 > SEGMENT:
            data += encode_blank(SEGMENT - len(data))
            (directory / segment_name(start)).write_bytes(data.ljust(SEGMENT, b"\0"))
            start, data = start + SEGMENT, b""
            record = encode_records([draft(topics[number % len(topics)], number)], start, T0 + number * step_ms, True)
        places.append(start + len(data))
        data += record
    (directory / segment_name(start)).write_bytes(data.ljust(SEGMENT, b"\0"))
    return places


def scan(spark: SparkSession, root: Path, schema: str | None = None, **options: Any) -> Any:
    reader = spark.read.format("rocketmq_store").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(root))


def offsets(frame: Any) -> list[int]:
    return sorted(row.queue_offset for row in frame.select("queue_offset").collect())


def test_a_live_brokers_log_and_all_columns(
    spark: SparkSession, cluster: Any, wait_synced: Callable[[Path], None]
) -> None:
    topic = cluster.topic("scan", queues=2)
    cluster.send(topic, [f"body-{i}" for i in range(300)], tags="T", keys="K", properties={"p": "v"})
    for broker in range(cluster.brokers):
        wait_synced(cluster.store_path(broker))
    rows: list[Any] = []
    for broker in range(cluster.brokers):
        rows += scan(spark, cluster.store_path(broker), topic=topic, broker=f"b{broker}").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"body-%d" % i for i in range(300))
    row = rows[0]
    assert (row.topic, row.tags, row.keys, row.properties) == (topic, "T", "K", {"p": "v"})
    assert row.broker in ("b0", "b1") and len(row.message_id) == 32
    # More is sent while the log stays open: the next read sees it.
    cluster.send(topic, [f"more-{i}" for i in range(50)])
    for broker in range(cluster.brokers):
        wait_synced(cluster.store_path(broker))
    again = sum(scan(spark, cluster.store_path(b), topic=topic).count() for b in range(cluster.brokers))
    assert again == 350


def test_a_dead_brokers_log_ends_where_the_torn_record_begins(spark: SparkSession, tmp_path: Path) -> None:
    places = write_log(tmp_path, 1000)
    (tmp_path / "abort").write_bytes(b"1")
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    at = places[-1] - int(last.name)
    data = bytearray(last.read_bytes())
    data[at + 120 :] = bytes(len(data) - at - 120)
    last.write_bytes(data)
    assert offsets(scan(spark, tmp_path, splitBytes="16k")) == list(range(999))


def test_only_what_is_wanted_is_read(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, 2000, step_ms=10_000)
    frame = scan(spark, tmp_path)
    assert frame.rdd.getNumPartitions() > 4
    assert offsets(frame.where("topic = 'a'")) == list(range(0, 2000, 2))
    assert offsets(scan(spark, tmp_path, topic="b")) == list(range(1, 2000, 2))
    late = T0 + 1900 * 10_000
    pruned = scan(spark, tmp_path, startingTimestamp=str(late))
    assert pruned.rdd.getNumPartitions() < frame.rdd.getNumPartitions()
    assert offsets(pruned) == list(range(1900, 2000))
    assert offsets(scan(spark, tmp_path, endingTimestamp=str(T0 + 50_000))) == list(range(5))
    assert frame.count() == 2000, "an earlier WHERE of the same DataFrame is forgotten"
    once = scan(spark, tmp_path, filterPushdown="true")
    pushed = once.where(f"store_timestamp >= timestamp_millis({late}) and topic in ('a', 'zzz')")
    assert offsets(pushed) == list(range(1900, 2000, 2))
    assert pushed.rdd.getNumPartitions() < frame.rdd.getNumPartitions()
    narrow = scan(spark, tmp_path, "tags STRING, commitlog_offset BIGINT")
    assert narrow.groupBy("tags").count().orderBy("tags").collect() == [("A", 1000), ("B", 1000)]
    assert scan(spark, tmp_path, topic="nothing").count() == 0


def test_damage_is_one_clear_error_or_skipped(spark: SparkSession, tmp_path: Path) -> None:
    places = write_log(tmp_path, 1000)
    first = sorted((tmp_path / "commitlog").iterdir())[0]
    data = bytearray(first.read_bytes())
    data[places[10] + 95] ^= 1  # inside a body: only the checksum tells
    first.write_bytes(data)
    assert scan(spark, tmp_path).count() == 1000
    with pytest.raises(Exception, match=rf"{first.name}: byte {places[10]}: checksum does not match"):
        scan(spark, tmp_path, verify="true").count()
    assert offsets(scan(spark, tmp_path, verify="true", badRecords="skip")) == [i for i in range(1000) if i != 10]
    data[places[20] + 4] ^= 1  # a magic number
    first.write_bytes(data)
    with pytest.raises(Exception, match=rf"{first.name}: byte {places[20]}: magic number"):
        scan(spark, tmp_path).count()
    assert offsets(scan(spark, tmp_path, badRecords="skip")) == [i for i in range(1000) if i != 20]


def test_a_segment_deleted_after_planning(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, 1000)
    strict, lenient = scan(spark, tmp_path), scan(spark, tmp_path, failOnDataLoss="false")
    for frame in (strict, lenient):
        frame._jdf.queryExecution().executedPlan()  # the partitions are fixed from here on
        frame._jdf.queryExecution().toRdd().getNumPartitions()
    segments = sorted((tmp_path / "commitlog").iterdir())
    segments[0].unlink()
    with pytest.raises(Exception, match=f"segment .*{segments[0].name} is gone.*"):
        strict.collect()
    rest = [row.queue_offset for row in lenient.collect()]
    assert rest and min(rest) > 0 and max(rest) == 999


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"topics": "a"}, None, "no option topics: did you mean topic"),
        ({"verify": "maybe"}, None, "option verify: 'maybe' is neither true nor false"),
        ({}, "tagz STRING", "no column 'tagz': did you mean 'tags'"),
        ({"commitLogPath": "nowhere"}, None, "nowhere is not a directory: no commit log there"),
    ],
)
def test_wrong_words(spark: SparkSession, tmp_path: Path, options: dict[str, str], schema: str, words: str) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(Exception, match=words):
        scan(spark, tmp_path, schema, **options).count()
