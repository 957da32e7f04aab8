"""A topic that was deleted and created again is an error that says so, also where it outgrew what was read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from aerobee.admin.topics import delete_topic
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.columns.schema import spark_schema
from pyspark_rocketmq.jobs.cluster import converse
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source.batch import batch_reader
from pyspark_rocketmq.source.pulling import DataLossError
from pyspark_rocketmq.source.stream import StreamReader, stream_reader

SCHEMA = spark_schema(["topic", "broker", "queue_id", "queue_offset", "body"])
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, data=tmp_path_factory.mktemp("again")) as running:
        yield running


def send(cluster: LocalCluster, topic: str, count: int) -> None:
    with Producer(cluster.namesrv, group="sender") as producer:
        for future in [producer.send_nowait(topic, b"%d" % number) for number in range(count)]:
            future.result(timeout=60)


def create_again(cluster: LocalCluster, topic: str, count: int) -> None:
    converse(cluster.namesrv, lambda admin: delete_topic(admin, topic))
    cluster.create_topic(topic, 1)
    send(cluster, topic, count)


def stream(cluster: LocalCluster, topic: str, **options: str) -> StreamReader:
    given = {"nameServer": cluster.namesrv, "topic": topic, "longPollMs": "0", "startingOffsets": "earliest"}
    return stream_reader({**given, **options}, SCHEMA)


def text(value: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(value))
    return back


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    partitions = reader.partitions(text(start), text(end))
    return sum(batch.num_rows for one in partitions for batch in reader.read(one))


def test_a_topic_that_outgrew_the_checkpoint_is_not_read_on(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("orders", 1)
    send(cluster, "orders", 10)
    reader = stream(cluster, "orders")
    end = reader.latestOffset(text(reader.initialOffset()), ALL)
    assert rows(reader, reader.initialOffset(), end) == 10
    create_again(cluster, "orders", 30)
    for one in (reader, stream(cluster, "orders")):
        with pytest.raises(
            DataLossError, match="orders on broker-a was deleted and created again after messages up to 10"
        ):
            one.latestOffset(text(end), ALL)
    # The batch that was planned on the old topic is not read from the new one.
    with pytest.raises(DataLossError, match="was deleted and created again: messages 0 to 9 are gone"):
        stream(cluster, "orders").partitions(text(reader.initialOffset()), text(end))
    # With failOnDataLoss=false the new topic is read from its first message.
    going = stream(cluster, "orders", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "pyspark_rocketmq"):
        anew = going.latestOffset(text(end), ALL)
    assert "created again" in caplog.text
    assert rows(going, end, anew) == 0
    last = going.latestOffset(text(anew), ALL)
    assert rows(going, anew, last) == 30
    assert going.latestOffset(text(last), ALL) == text(last)


def test_a_query_that_has_not_read_yet_notices_too(cluster: LocalCluster) -> None:
    cluster.create_topic("quiet", 1)
    send(cluster, "quiet", 10)
    reader = stream(cluster, "quiet", startingOffsets="latest")
    start = reader.initialOffset()
    create_again(cluster, "quiet", 30)
    with pytest.raises(DataLossError, match="created again"):
        reader.latestOffset(text(start), ALL)


def test_a_task_does_not_read_a_topic_that_was_created_after_the_plan(cluster: LocalCluster) -> None:
    cluster.create_topic("tasks", 1)
    send(cluster, "tasks", 10)
    reader = batch_reader({"nameServer": cluster.namesrv, "topic": "tasks"}, SCHEMA)
    planned = reader.partitions()
    create_again(cluster, "tasks", 30)
    with pytest.raises(DataLossError, match=r"topic\[tasks\] was deleted and created again"):
        list(reader.read(planned[0]))


def test_a_checkpoint_of_an_older_version_goes_on(cluster: LocalCluster) -> None:
    cluster.create_topic("older", 1)
    send(cluster, "older", 10)
    reader = stream(cluster, "older")
    old = {"v": 1, "offsets": {"older": {"broker-a": {"0": 4}}}}
    end = reader.latestOffset(text(old), ALL)
    assert rows(reader, old, end) == 6 and end["generations"]["older"]["broker-a"]
    assert reader.latestOffset(text(end), ALL) == end
    # Where nothing is new, the text stays the same, or Spark would run empty batches for ever.
    done = {"v": 1, "offsets": {"older": {"broker-a": {"0": 10}}}}
    assert reader.latestOffset(text(done), ALL) == done


def test_offsets_after_the_end_are_an_error(cluster: LocalCluster) -> None:
    cluster.create_topic("short", 1)
    send(cluster, "short", 10)

    def read(**options: str) -> int:
        reader = batch_reader({"nameServer": cluster.namesrv, "topic": "short", **options}, SCHEMA)
        return sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one))

    def at(offset: int) -> str:
        return json.dumps({"short": {"broker-a": {"0": offset}}})

    assert read(startingOffsets=at(10)) == 0 and read(startingOffsets=at(4), endingOffsets=at(4)) == 0
    with pytest.raises(OptionError, match="startingOffsets: queue 0 of topic short on broker-a ends at 10, before 11"):
        read(startingOffsets=at(11))
    with pytest.raises(OptionError, match="queue 0 of topic short on broker-a starts at 5 and ends at 4"):
        read(startingOffsets=at(5), endingOffsets=at(4))
    with pytest.raises(DataLossError, match="ends at 10: messages up to 11 are gone"):
        read(endingOffsets=at(12))
    with pytest.raises(OptionError, match="ends at 10, before 11"):
        stream(cluster, "short", startingOffsets=at(11)).initialOffset()


def test_the_mark_is_on_disk_and_survives_changes(tmp_path: Path) -> None:
    with LocalCluster(1, data=tmp_path) as cluster:
        cluster.create_topic("kept", 1)
        path = tmp_path / "broker-a" / "config" / "topics.json"
        before = reader_generation(cluster, "kept")
        assert before.isdigit()
        cluster.create_topic("kept", 4)
        assert reader_generation(cluster, "kept") == before
        cluster.restart(0)
        assert reader_generation(cluster, "kept") == before
        assert before in path.read_text()
        create_again(cluster, "kept", 1)
        assert int(reader_generation(cluster, "kept")) > int(before)


def reader_generation(cluster: LocalCluster, topic: str) -> str:
    found: str = stream(cluster, topic).initialOffset()["generations"][topic]["broker-a"]
    return found
