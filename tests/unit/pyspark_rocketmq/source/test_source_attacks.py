"""What a day throws at the source: the largest messages, nothing at all, odd texts, changes in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType

from aerobee.admin.topics import delete_topic
from aerobee.errors import AerobeeError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA, spark_schema
from pyspark_rocketmq.formats.stored import register
from pyspark_rocketmq.jobs.cluster import converse
from pyspark_rocketmq.options import Endpoint, OptionError
from pyspark_rocketmq.source.batch import batch_reader
from pyspark_rocketmq.source.planning import QueueRange
from pyspark_rocketmq.source.pulling import DataLossError, PlannedRange, PullSettings, RangePull
from pyspark_rocketmq.source.settings import Filter
from pyspark_rocketmq.source.stream import StreamReader, stream_reader
from pyspark_rocketmq.source.typed import full_schema

LARGEST = (4 << 20) - 1024
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, data=tmp_path_factory.mktemp("attacked")) as running:
        yield running


def send(cluster: LocalCluster, topic: str, *bodies: bytes, **more: Any) -> None:
    with Producer(cluster.namesrv, group="sender") as producer:
        for body in bodies:
            producer.send(topic, body, **more)


def rows(
    cluster: LocalCluster, topic: str, schema: StructType = DEFAULT_SCHEMA, **options: str
) -> list[dict[str, Any]]:
    reader = batch_reader({"nameServer": cluster.namesrv, "topic": topic, **options}, schema)
    return [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]


def stream(cluster: LocalCluster, topic: str, schema: StructType = DEFAULT_SCHEMA, **options: str) -> StreamReader:
    given = {"nameServer": cluster.namesrv, "topic": topic, "longPollMs": "0", "startingOffsets": "earliest"}
    return stream_reader({**given, **options}, schema)


def text(value: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(value))
    return back


def test_the_largest_messages_are_rows(cluster: LocalCluster) -> None:
    cluster.create_topic("huge", 1)
    bodies = [bytes([number]) * LARGEST for number in range(3)]
    send(cluster, "huge", bodies[0], b"small", bodies[1], bodies[2], keys="k" * 200)
    found = rows(cluster, "huge")
    assert [row["body"] for row in found] == [bodies[0], b"small", bodies[1], bodies[2]]
    assert len(rows(cluster, "huge", spark_schema(["keys"]))) == 4
    assert len(rows(cluster, "huge", spark_schema(["queue_offset"]))) == 4
    # A limit below one message still goes on, a message at a time.
    reader = stream(cluster, "huge")
    at, batches = text(reader.initialOffset()), 0
    while (end := text(reader.latestOffset(at, ReadMaxBytes(1000)))) != at:
        at, batches = end, batches + 1
    assert batches == 4


def test_nothing_is_no_error_and_no_row(cluster: LocalCluster) -> None:
    cluster.create_topic("empty", 3)
    for schema in (DEFAULT_SCHEMA, spark_schema(["queue_offset"])):
        assert rows(cluster, "empty", schema) == []
        reader = stream(cluster, "empty", schema)
        start = text(reader.initialOffset())
        assert text(reader.latestOffset(start, ALL)) == start
        assert list(reader.partitions(start, start)) == []
        assert (reader.reportLatestOffset() or {})["batch"] == {"rows": 0, "bytes": 0}


def test_any_text_comes_back_as_it_was_sent(cluster: LocalCluster) -> None:
    cluster.create_topic("texts", 1)
    odd = "größe 日本 \U0001f41d \u202e'`\"; drop table x --"
    send(cluster, "texts", odd.encode(), tags="größe", keys="日本", properties={"colour röd": odd})
    send(cluster, "texts", b"\xff\xfe", tags="other")
    first, second = rows(cluster, "texts")
    assert (first["tags"], first["keys"], dict(first["properties"])) == ("größe", "日本", {"colour röd": odd})
    assert (first["body"], second["body"]) == (odd.encode(), b"\xff\xfe")
    assert [row["tags"] for row in rows(cluster, "texts", tags="größe")] == ["größe"]


@pytest.mark.parametrize(
    "options",
    [
        {"maxOffsetsPerTrigger": "9" * 40},
        {"maxOffsetsPerTrigger": "-1"},
        {"minPartitions": "0"},
        {"longPollMs": "1e3"},
        {"startingOffsets": '{"texts":{"broker-a":{"0":99999999999999999999}}}'},
        {"startingOffsets": '{"texts":{"broker-a":{"0":-3}}}'},
        {"startingOffsets": '{"texts":' * 2000},
        {"columns": "body,queue_ofset"},
        {"columns": ","},
        {"topic": "../etc"},
        {"topic": "größe"},
        {"topic": "a" * 300},
        {"assign": '{"texts":[999999999999]}'},
        {"topicPattern": "("},
    ],
)
def test_wrong_options_are_one_error(cluster: LocalCluster, options: dict[str, str]) -> None:
    given = {"topic": "texts", **options}
    if "assign" in options or "topicPattern" in options:
        del given["topic"]
    with pytest.raises(AerobeeError) as told:
        reader = stream_reader({"nameServer": cluster.namesrv, **given}, DEFAULT_SCHEMA)
        reader.initialOffset()
    assert "\n" not in told.value.message and len(told.value.message) < 10_000


def test_a_topic_that_goes_in_the_middle_of_a_stream_is_an_error(cluster: LocalCluster) -> None:
    cluster.create_topic("leaves", 1)
    send(cluster, "leaves", b"1", b"2")
    reader = stream(cluster, "leaves", spark_schema(["queue_offset"]), retryTimeoutMs="0")
    start = text(reader.initialOffset())
    end = text(reader.latestOffset(start, ALL))
    (partition,) = reader.partitions(start, end)
    converse(cluster.namesrv, lambda admin: delete_topic(admin, "leaves"))
    with pytest.raises(DataLossError):
        list(reader.read(partition))
    with pytest.raises(DataLossError):
        reader.partitions(start, end)


def test_a_schema_that_changes_does_not_change_a_running_query(cluster: LocalCluster) -> None:
    cluster.create_topic("evolving", 1)
    register(cluster.namesrv, "evolving", format="json", schema="n bigint")
    options = {"nameServer": cluster.namesrv, "topic": "evolving", "format": "registered"}
    schema = full_schema(options)
    reader = stream(cluster, "evolving", schema, format="registered")
    start = text(reader.initialOffset())
    send(cluster, "evolving", b'{"n": 1}')
    register(cluster.namesrv, "evolving", format="json", schema="n string, more double")
    send(cluster, "evolving", b'{"n": "two", "more": 2.5}')
    end = text(reader.latestOffset(start, ALL))
    found = [row for one in reader.partitions(start, end) for batch in reader.read(one) for row in batch.to_pylist()]
    assert [(row["n"], row["_corrupt"] is None) for row in found] == [(1, True), (None, False)], "it says so"
    after = full_schema(options)
    assert [one.name for one in after.fields[-3:]] == ["n", "more", "_corrupt"]
    assert [row["more"] for row in rows(cluster, "evolving", after, format="registered")] == [None, 2.5]


def test_a_broker_that_counts_wrongly_is_not_believed() -> None:
    queue_range = QueueRange(MessageQueue("T", "b", 0), 10, 50)
    pull = RangePull(
        PullSettings(Endpoint(("127.0.0.1:1",)), Filter(), True, ("queue_offset",)),
        PlannedRange(queue_range, "127.0.0.1:1"),
    )

    def told(**ext: str) -> Command:
        return Command(code=ResponseCode.SUCCESS, ext=ext)

    good = pull._counted(told(firstOffset="10", count="5"), 10, 15)
    assert (good.first, good.count) == (10, 5)
    for ext, following in (
        ({"firstOffset": "10", "count": "5"}, 16),
        ({"firstOffset": "9", "count": "6"}, 15),
        ({"firstOffset": "10", "count": "-5"}, 15),
        ({"firstOffset": "10", "count": "x"}, 15),
        ({"count": "5"}, 15),
        ({"firstOffset": "10", "count": "9" * 5000}, 15),
    ):
        with pytest.raises(AerobeeError, match="counts"):
            pull._counted(told(**ext), 10, following)


@pytest.mark.parametrize(
    ("code", "ext", "remark", "words"),
    [
        (ResponseCode.SUCCESS, {"damaged": "2"}, "FOUND", "has 2 damaged messages between 10 and 20"),
        # All of an answer is damaged: it has no records, and looks as if a filter took none.
        (ResponseCode.PULL_RETRY_IMMEDIATELY, {"damaged": "10"}, "NO_MATCHED_MESSAGE", "has 10 damaged messages"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, {}, "MESSAGE_WAS_REMOVING", "has no messages from 10 to 19 any more"),
        (ResponseCode.PULL_OFFSET_MOVED, {}, "OFFSET_TOO_SMALL", "begins at 20: messages from 10 on were deleted"),
        (
            ResponseCode.PULL_NOT_FOUND,
            {},
            "OFFSET_FOUND_NULL",
            "has no file that tells where its messages 10 to 19 are",
        ),
    ],
)
def test_an_answer_without_messages_that_should_be_there_is_an_error(
    code: int, ext: dict[str, str], remark: str, words: str
) -> None:
    def judged(*, fail: bool) -> int | None:
        settings = PullSettings(Endpoint(("127.0.0.1:1",)), Filter(), fail, ("body",))
        pull = RangePull(settings, PlannedRange(QueueRange(MessageQueue("T", "b", 0), 10, 50), "127.0.0.1:1"))
        return pull._judge(Command(code=code, ext={"nextBeginOffset": "20", **ext}, remark=remark), 10)

    with pytest.raises(DataLossError, match=f"queue 0 of topic T on b {words}"):
        judged(fail=True)
    assert judged(fail=False) == 20


def test_an_option_for_another_use_says_so() -> None:
    with pytest.raises(OptionError, match="writing"):
        stream_reader({"nameServer": "127.0.0.1:1", "topic": "T", "deliveryGuarantee": "exactly-once"}, DEFAULT_SCHEMA)
