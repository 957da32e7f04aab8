"""Planning and pulling against real brokers, without Spark: what the driver and a task each do."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from aerobee.admin.topics import delete_topic
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import SubscriptionError
from aerobee.model.queue import MessageQueue
from aerobee.sync import LitePullConsumer, Producer
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq import DefaultSource
from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA, spark_schema
from pyspark_rocketmq.jobs.cluster import converse
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source import pulling
from pyspark_rocketmq.source.batch import batch_reader, plan
from pyspark_rocketmq.source.cluster import Cluster
from pyspark_rocketmq.source.mirror import GroupInUseError
from pyspark_rocketmq.source.planning import QueueRange
from pyspark_rocketmq.source.pulling import DataLossError
from pyspark_rocketmq.source.pushdown import Pushed
from pyspark_rocketmq.source.settings import Filter, Wanted, source_settings
from pyspark_rocketmq.source.stream import StreamReader, stream_reader
from pyspark_rocketmq.source.topics import NoSuchTopicError

SCHEMA = spark_schema(["topic", "broker", "queue_id", "queue_offset", "body", "tags"])
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(2, data=tmp_path_factory.mktemp("source")) as running:
        yield running


def send(cluster: LocalCluster, topic: str, count: int, start: int = 0) -> None:
    """Over all queues in turn."""
    queues = itertools.cycle(Cluster(Endpoint((cluster.namesrv,))).queues(Wanted((topic,))))
    with Producer(cluster.namesrv, group="sender") as producer:
        futures = [
            producer.send_nowait(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd", queue=next(queues))
            for number in range(start, start + count)
        ]
        for future in futures:
            future.result(timeout=60)


def read_batch(cluster: LocalCluster, **options: str) -> list[dict[str, Any]]:
    reader = batch_reader({"nameServer": cluster.namesrv, **options}, SCHEMA)
    return rows_of(batch for partition in reader.partitions() for batch in reader.read(partition))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def bodies(rows: list[dict[str, Any]]) -> Counter[int]:
    return Counter(int(row["body"]) for row in rows)


def stream(cluster: LocalCluster, **options: str) -> StreamReader:
    return stream_reader({"nameServer": cluster.namesrv, "longPollMs": "0", **options}, SCHEMA)


def text(value: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from Spark."""
    back: dict[str, Any] = json.loads(json.dumps(value))
    return back


def read_stream(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> Counter[int]:
    partitions = reader.partitions(text(start), text(end))
    return bodies(rows_of(batch for one in partitions for batch in reader.read(one)))


def test_a_batch_is_every_message_once_however_it_is_cut(cluster: LocalCluster) -> None:
    cluster.create_topic("whole", 2)
    send(cluster, "whole", 500)
    expected = Counter(range(500))
    for options in ({}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "17"}):
        rows = read_batch(cluster, topic="whole", **options)
        assert bodies(rows) == expected
    assert {row["broker"] for row in rows} == {"broker-a", "broker-b"}
    odd = read_batch(cluster, topic="whole", tags="odd || other")
    assert bodies(odd) == Counter(range(1, 500, 2))
    some = read_batch(cluster, assign='{"whole":{"broker-a":[1]}}')
    assert {(row["broker"], row["queue_id"]) for row in some} == {("broker-a", 1)}
    assert bodies(read_batch(cluster, topicPattern="who.*")) == expected
    offsets = {"whole": {"broker-a": {"0": 3}}}
    fewer = read_batch(cluster, topic="whole", startingOffsets=json.dumps(offsets))
    assert sum(bodies(fewer).values()) == 497
    assert min(row["queue_offset"] for row in fewer if (row["broker"], row["queue_id"]) == ("broker-a", 0)) == 3


def test_a_topic_that_was_just_deleted_is_not_an_empty_one(cluster: LocalCluster) -> None:
    """Routes show it a moment longer than brokers have it."""
    cluster.create_topic("brief", 1)
    send(cluster, "brief", 10)
    asked = Cluster(Endpoint((cluster.namesrv,)))
    queues = asked.queues(Wanted(("brief",)))
    failures: dict[str, AerobeeError] = {}
    assert len(asked.bounds(queues, unreachable=failures.__setitem__)) == 2 and not failures
    begins = asked.begins(queues)
    converse(cluster.namesrv, lambda admin: delete_topic(admin, "brief"))
    assert asked.bounds(queues, unreachable=failures.__setitem__) == {}
    assert set(failures) == {"broker-a", "broker-b"}
    assert "does not have topic brief any more" in failures["broker-a"].message
    # The same where it was deleted between the two questions.
    failures.clear()
    assert asked.end_offsets(begins, failures.__setitem__) == {} and len(failures) == 2
    # A stream that has planned messages of it judges what is lost.
    assert {one.end for one in asked.bounds(queues).values()} == {0}


def test_bodies_that_producers_compressed_travel_compressed(cluster: LocalCluster) -> None:
    cluster.create_topic("compressed", 1)
    body = b'{"id": 1, "amount": 12.5}' * 4000
    with Producer(cluster.namesrv, group="sender") as producer:
        sent = producer.send("compressed", body)
    asked = Cluster(Endpoint((cluster.namesrv,)))
    queue = MessageQueue("compressed", sent.queue.broker_name, 0)
    asked.queues(Wanted(("compressed",)))
    settings = pulling.PullSettings(Endpoint((cluster.namesrv,)), Filter(), True, ("body",))
    planned = pulling.PlannedRange(QueueRange(queue, 0, 1), asked.require_address(queue))
    (chunk,) = pulling.RangePull(settings, planned).chunks()
    assert isinstance(chunk, pulling.RecordChunk) and len(chunk.data) < len(body) // 50
    (row,) = read_batch(cluster, topic="compressed")
    assert row["body"] == body


def test_a_broker_that_knows_no_bulk_pull_is_pulled_as_consumers_pull(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("plain", 1)
    send(cluster, "plain", 300)
    monkeypatch.setattr(pulling.PrivateRequestCode, "BULK_PULL", 90099)
    monkeypatch.setattr(pulling, "_PLAIN_ONLY", set())
    assert bodies(read_batch(cluster, topic="plain")) == Counter(range(300))
    assert len(pulling._PLAIN_ONLY) == 2, "tried once, then remembered"
    assert bodies(read_batch(cluster, topic="plain", tags="even")) == Counter(range(0, 300, 2))


def test_what_is_not_there_is_said(cluster: LocalCluster) -> None:
    cluster.create_topic("orders", 1)
    with pytest.raises(NoSuchTopicError, match=r"topic 'ordres' does not exist.*did you mean 'orders'"):
        read_batch(cluster, topic="ordres")
    with pytest.raises(NoSuchTopicError, match="no topic matches"):
        read_batch(cluster, topicPattern="nothing.*")
    with pytest.raises(NoSuchTopicError, match="has no queue 7"):
        read_batch(cluster, assign='{"orders":[7]}')
    # Spark asks for the columns at load(): a topic with a wrong name is an error there.
    there = {"nameserver": cluster.namesrv}
    with pytest.raises(NoSuchTopicError, match=r"topic 'ordres' does not exist.*did you mean 'orders'"):
        DefaultSource({**there, "topic": "orders,ordres"}).schema()
    assert DefaultSource({**there, "topic": "orders"}).schema() == DEFAULT_SCHEMA
    cluster.kill(0)
    assert DefaultSource({**there, "path": "orders"}).schema() == DEFAULT_SCHEMA
    assert DefaultSource({"nameserver": "127.0.0.1:1", "topic": "ordres"}).schema() == DEFAULT_SCHEMA
    # A name server that was just started knows nothing: nobody can say that a topic does not exist.
    cluster.kill(1)
    cluster.restart_namesrv(0)
    assert DefaultSource({**there, "topic": "orders"}).schema() == DEFAULT_SCHEMA
    cluster.restart(0)
    cluster.restart(1)
    with pytest.raises(SubscriptionError, match="parse"):
        send(cluster, "orders", 1)
        read_batch(cluster, topic="orders", sql92="a > 1")
    settings = source_settings({"nameServer": "127.0.0.1:1", "topic": "t"}, {}, streaming=False)
    with pytest.raises(TransportError, match=r"no name server answers \(127.0.0.1:1: could not connect"):
        plan(Cluster(settings.endpoint), settings, Pushed())


def test_a_stream_goes_on_where_it_stood_and_new_queues_join(cluster: LocalCluster) -> None:
    cluster.create_topic("growing", 1)
    send(cluster, "growing", 50)
    reader = stream(cluster, topic="growing", startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(text(start), ReadMaxRows(30))
    assert first["start"] == start["offsets"]
    seen = read_stream(reader, start, first)
    assert sum(seen.values()) == 30
    second = reader.latestOffset(text(first), ALL)
    assert "start" not in second
    seen += read_stream(reader, first, second)
    assert seen == Counter(range(50))
    assert reader.latestOffset(text(second), ALL) == second, "no news is the very same"
    cluster.create_topic("growing", 3)
    send(cluster, "growing", 50, 50)
    again = stream(cluster, topic="growing")
    third = again.latestOffset(text(second), ALL)
    seen += read_stream(again, second, third)
    assert seen == Counter(range(100))
    assert {int(queue) for queues in third["offsets"]["growing"].values() for queue in queues} == {0, 1, 2}


def test_a_first_batch_run_again_begins_where_it_began(cluster: LocalCluster) -> None:
    cluster.create_topic("again", 1)
    send(cluster, "again", 5)
    reader = stream(cluster, topic="again")
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert reader.latestOffset(text(start), ALL) == start
    send(cluster, "again", 5, 5)
    end = reader.latestOffset(text(start), ALL)
    restarted = stream(cluster, topic="again")
    other = restarted.initialOffset()
    assert other != start, "latest has moved"
    assert read_stream(restarted, other, end) == Counter(range(5, 10))


def test_available_now_ends_at_what_was_there(cluster: LocalCluster) -> None:
    cluster.create_topic("now", 2)
    send(cluster, "now", 40)
    reader = stream(cluster, topic="now", startingOffsets="earliest", maxOffsetsPerTrigger="15")
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset()
    send(cluster, "now", 40, 40)
    seen: Counter[int] = Counter()
    sizes = []
    while (end := reader.latestOffset(text(at), reader.getDefaultReadLimit())) != at:
        got = read_stream(reader, at, end)
        sizes.append(sum(got.values()))
        seen += got
        at = end
    assert (sizes, seen) == ([15, 15, 10], Counter(range(40)))


def test_limits_by_bytes_and_a_least_number(cluster: LocalCluster) -> None:
    cluster.create_topic("limits", 1)
    send(cluster, "limits", 100)
    reader = stream(
        cluster, topic="limits", startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h"
    )
    start = reader.initialOffset()
    some = reader.latestOffset(text(start), ReadMaxBytes(5000))
    assert 5 <= sum(read_stream(reader, start, some).values()) <= 50
    rest = reader.latestOffset(text(some), ALL)
    send(cluster, "limits", 20, 100)
    assert reader.latestOffset(text(rest), ALL) == rest, "too few, and an hour has not passed"
    send(cluster, "limits", 40, 120)
    assert sum(read_stream(reader, rest, reader.latestOffset(text(rest), ALL)).values()) == 60


def test_a_stream_waits_for_a_message_and_is_woken(cluster: LocalCluster) -> None:
    cluster.create_topic("waiting", 1)
    reader = stream(cluster, topic="waiting", longPollMs="60000")
    start = reader.initialOffset()
    send(cluster, "waiting", 1)
    end = reader.latestOffset(text(start), ALL)
    assert end != start
    sender = threading.Timer(0.5, send, (cluster, "waiting", 1, 1))
    sender.start()
    later = reader.latestOffset(text(end), ALL)
    sender.join()
    assert read_stream(reader, end, later) == Counter([1])


def test_progress_is_mirrored_as_a_group_and_taken_up(cluster: LocalCluster) -> None:
    cluster.create_topic("mirrored", 1)
    send(cluster, "mirrored", 30)
    reader = stream(cluster, topic="mirrored", startingOffsets="earliest", group="spark-mirror")
    start = reader.initialOffset()
    end = reader.latestOffset(text(start), ReadMaxRows(20))
    reader.latestOffset(text(end), ALL)
    asked = Cluster(Endpoint((cluster.namesrv,)))
    queues = asked.queues(
        source_settings({"nameServer": cluster.namesrv, "topic": "mirrored"}, {}, streaming=True).wanted
    )
    saved = asked.committed("spark-mirror", queues)
    assert saved == {
        MessageQueue("mirrored", broker, int(queue)): offset
        for broker, offsets in end["offsets"]["mirrored"].items()
        for queue, offset in offsets.items()
    }
    rest = read_batch(cluster, topic="mirrored", group="spark-mirror", startingOffsets="committed")
    assert len(rest) == 10


def test_offsets_of_a_group_beyond_the_end_are_lost_data(cluster: LocalCluster) -> None:
    """The topic was created again since the group committed. A batch from there on would have no rows."""
    cluster.create_topic("shorter", 1)
    send(cluster, "shorter", 12)
    asked = Cluster(Endpoint((cluster.namesrv,)))
    queues = asked.queues(Wanted(("shorter",)))
    asked.commit("spark-shorter", {queues[0]: 1000, queues[1]: 4})
    given = {"topic": "shorter", "group": "spark-shorter", "startingOffsets": "committed"}
    words = "ends at 6, before 1000, which group spark-shorter has committed"
    with pytest.raises(DataLossError, match=words):
        read_batch(cluster, **given)
    with pytest.raises(DataLossError, match=words):
        stream(cluster, **given).initialOffset()
    assert len(read_batch(cluster, failOnDataLoss="false", **given)) == 6 + 2


def test_a_group_with_consumers_is_refused(cluster: LocalCluster) -> None:
    cluster.create_topic("taken", 1)
    send(cluster, "taken", 1)
    with LitePullConsumer(cluster.namesrv, group="users", consume_from="first") as consumer:
        consumer.subscribe("taken")
        assert consumer.poll(timeout=60), "who has got a message is known to the broker"
        with pytest.raises(GroupInUseError, match="users has 1 live consumers"):
            stream(cluster, topic="taken", group="users").initialOffset()


def test_a_topic_made_anew_is_data_loss(tmp_path: Path) -> None:
    with LocalCluster(1, data=tmp_path / "anew") as own:
        own.create_topic("lost", 1)
        send(own, "lost", 10)
        reader = stream(own, topic="lost", startingOffsets="earliest")
        start = reader.initialOffset()
        end = reader.latestOffset(text(start), ALL)
        later = text(end)
        later["offsets"]["lost"]["broker-a"]["0"] = 20
        with pytest.raises(DataLossError, match=r"ends at 10: messages up to 19 are gone.*failOnDataLoss=false"):
            reader.partitions(text(end), later)
        with pytest.raises(DataLossError, match="ends at 10, before 20"):
            reader.latestOffset(later, ALL)
        easy = stream(own, topic="lost", failOnDataLoss="false")
        anew = easy.latestOffset(later, ALL)
        assert anew["offsets"]["lost"]["broker-a"]["0"] == 0
        assert read_stream(easy, later, anew) == Counter()
        assert read_stream(easy, anew, easy.latestOffset(text(anew), ALL)) == Counter(range(10))


def test_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with LocalCluster(2, data=tmp_path / "away") as own:
        own.create_topic("steady", 1)
        send(own, "steady", 20)
        reader = stream(own, topic="steady", startingOffsets="earliest")
        start = reader.initialOffset()
        end = reader.latestOffset(text(start), ALL)
        own.kill(0)
        assert reader.latestOffset(text(end), ALL) == end, "its queues keep their numbers"
        own.restart(0)
        assert read_stream(reader, start, end) == Counter(range(20))


def test_tags_are_compared_after_their_hash(cluster: LocalCluster) -> None:
    """`Aa` and `BB` have the same hash in Java, and brokers compare hashes only."""
    cluster.create_topic("hashed", 1)
    with Producer(cluster.namesrv, group="sender") as producer:
        for number, tag in enumerate(("Aa", "BB", "Aa", "C", None)):
            producer.send("hashed", b"%d" % number, tags=tag)
    assert bodies(read_batch(cluster, topic="hashed", tags="Aa")) == Counter([0, 2])
    assert bodies(read_batch(cluster, topic="hashed", tags=" BB || C")) == Counter([1, 3])
    assert bodies(read_batch(cluster, topic="hashed")) == Counter(range(5))
    reader = batch_reader({"nameServer": cluster.namesrv, "topic": "hashed", "tags": "BB"}, spark_schema(["body"]))
    found = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert [batch.to_pydict() for batch in found] == [{"body": [b"1"]}]


def test_two_queries_with_one_group_are_noticed(cluster: LocalCluster) -> None:
    cluster.create_topic("shared", 1)
    readers = [stream(cluster, topic="shared", startingOffsets="earliest", group="both") for _ in range(2)]
    send(cluster, "shared", 10)
    # They start together and stand at different places.
    ends = [
        text(reader.latestOffset(text(reader.initialOffset()), ReadMaxRows(4 + 3 * n)))
        for n, reader in enumerate(readers)
    ]
    with pytest.raises(
        GroupInUseError, match=r"the offset of group both for queue 0 of shared on broker-. was changed"
    ):
        for _ in range(4):
            for number, reader in enumerate(readers):
                send(cluster, "shared", 2)
                ends[number] = text(reader.latestOffset(ends[number], ReadMaxRows(2)))


PLACES = spark_schema(["queue_offset", "topic", "broker", "queue_id"])


def places(cluster: LocalCluster, **options: str) -> Counter[tuple[str, ...]]:
    """The rows of a read that needs no record of Aerobee's broker."""
    reader = batch_reader({"nameServer": cluster.namesrv, **options}, PLACES)
    rows = rows_of(batch for partition in reader.partitions() for batch in reader.read(partition))
    return Counter(tuple(str(row[name]) for name in PLACES.names) for row in rows)


def test_rows_without_records_are_those_of_the_records(cluster: LocalCluster) -> None:
    cluster.create_topic("placed", 3)
    send(cluster, "placed", 500)
    for options in (
        {},
        {"tags": "odd"},
        {"minPartitions": "7"},
        {"endingOffsets": json.dumps({"placed": {"broker-a": {"0": 5, "1": 0}}})},
        {"startingTimestamp": "1"},
    ):
        whole = Counter(
            tuple(str(row[name]) for name in PLACES.names) for row in read_batch(cluster, topic="placed", **options)
        )
        assert places(cluster, topic="placed", **options) == whole and whole, options
    assert sum(places(cluster, topic="placed").values()) == 500


def test_a_count_of_a_topic_that_is_deleted_or_created_again_is_an_error(cluster: LocalCluster) -> None:
    cluster.create_topic("counted", 1)
    send(cluster, "counted", 40)
    reader = batch_reader({"nameServer": cluster.namesrv, "topic": "counted"}, PLACES)
    planned = reader.partitions()
    converse(cluster.namesrv, lambda admin: delete_topic(admin, "counted"))
    with pytest.raises(DataLossError, match="is gone"):
        rows_of(batch for partition in planned for batch in reader.read(partition))
    cluster.create_topic("counted", 1)
    send(cluster, "counted", 100)
    with pytest.raises(DataLossError, match="is gone"):
        rows_of(batch for partition in planned for batch in reader.read(partition))
    assert sum(places(cluster, topic="counted").values()) == 100


def test_progress_tells_the_rows_and_the_bytes_of_a_batch(cluster: LocalCluster) -> None:
    cluster.create_topic("told", 2)
    send(cluster, "told", 60)
    reader = stream(cluster, topic="told", startingOffsets="earliest")
    start = text(reader.initialOffset())
    end = text(reader.latestOffset(start, ReadMaxRows(40)))
    partitions = reader.partitions(start, end)
    sizes = 0
    for partition in partitions:
        assert isinstance(partition, pulling.RangesPartition)
        for one in partition.ranges:
            found = pulling.PullSettings(Endpoint((cluster.namesrv,)), pulling.Filter(), True, ())
            sizes += sum(
                len(chunk.data)
                for chunk in pulling.RangePull(found, one).chunks()
                if isinstance(chunk, pulling.RecordChunk)
            )
    report = reader.reportLatestOffset()
    assert report is not None and report["batch"] == {"rows": 40, "bytes": sizes} and report["lag"] == 60
    assert text(reader.latestOffset(end, ALL)) != end
    idle = text(reader.latestOffset(end, ALL))
    assert reader.latestOffset(idle, ALL) == idle
    assert (reader.reportLatestOffset() or {})["batch"] == {"rows": 0, "bytes": 0}
