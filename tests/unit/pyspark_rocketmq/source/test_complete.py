"""A read is complete or an error: broker groups that are away are known to name servers, brokers and checkpoints."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from aerobee.client.blocking import BlockingClient, Call
from aerobee.client.core import ClientConfig
from aerobee.errors import TransportError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.headers.declarations import ForgetGroupRequestHeader
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.waiting import wait_until
from pyspark_rocketmq.columns.schema import spark_schema
from pyspark_rocketmq.source.batch import batch_reader
from pyspark_rocketmq.source.missing import MissingBrokerError
from pyspark_rocketmq.source.stream import StreamReader, stream_reader

SCHEMA = spark_schema(["topic", "broker", "queue_id", "queue_offset", "body"])
ALL = ReadAllAvailable()
AWAY = "a part of topic {} is on broker group broker-b, which"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(2, data=tmp_path) as running:
        yield running


def fill(cluster: LocalCluster, topic: str = "orders", count: int = 20) -> None:
    """Send `count` messages to each of two queues on each of two broker groups."""
    cluster.create_topic(topic, 2)
    with Producer(cluster.namesrv, group="filler") as producer:
        for broker in ("broker-a", "broker-b"):
            for number in range(count):
                for queue in range(2):
                    producer.send(topic, b"%d" % number, queue=MessageQueue(topic, broker, queue))


def count(cluster: LocalCluster, **options: str) -> int:
    return sum(batch.num_rows for batch in batches(cluster, **options))


def batches(cluster: LocalCluster, **options: str) -> Iterator[Any]:
    given = {"nameServer": cluster.namesrv, "topic": "orders", "retryTimeoutMs": "300", **options}
    if "topicPattern" in given or "assign" in given:
        del given["topic"]
    reader = batch_reader(given, SCHEMA)
    for partition in reader.partitions():
        yield from reader.read(partition)


def stream(cluster: LocalCluster, **options: str) -> StreamReader:
    given = {"nameServer": cluster.namesrv, "topic": "orders", "retryTimeoutMs": "300", "longPollMs": "0"}
    return stream_reader({**given, "startingOffsets": "earliest", **options}, SCHEMA)


def text(value: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(value))
    return back


def register(cluster: LocalCluster) -> None:
    """Let every broker register now. They do so every 10 seconds, which is too long for a test."""
    for node in list(cluster._nodes.values()):
        cluster._run(node.registrar.register_now())


def known_by_broker_a(cluster: LocalCluster) -> dict[str, Any]:
    """Return what broker-a has on disk of broker-b, as soon as it has anything."""
    register(cluster)
    path = Path(str(cluster._data)) / "broker-a" / "config" / "brokerGroups.json"
    wait_until(lambda: path.exists() and "orders" in path.read_text())
    [found] = json.loads(path.read_text().rstrip())["groups"]
    assert found["brokerName"] == "broker-b"
    topics: dict[str, Any] = found["topics"]
    return topics


def forget(cluster: LocalCluster, group: str) -> tuple[int, str | None]:
    client = BlockingClient(ClientConfig(namesrv=(cluster.namesrv,)))
    answer = client.ask_name_server(Call(PrivateRequestCode.FORGET_GROUP, ForgetGroupRequestHeader(broker_name=group)))
    return answer.code, answer.remark


def test_a_batch_without_a_broker_is_an_error_that_names_it(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster)
    assert count(cluster) == 80
    cluster.kill(1)
    wait_until(lambda: not is_routed(cluster, "broker-b"))
    for options in (
        {},
        {"failOnDataLoss": "false"},
        {"topicPattern": "ord.*"},
        {"assign": '{"orders":{"broker-b":[0]}}'},
    ):
        with pytest.raises(MissingBrokerError, match=AWAY.format("orders")) as raised:
            count(cluster, **options)
        assert "onMissingBroker=skip" in str(raised.value) and "aerobee cluster forget broker-b" in str(raised.value)
    # What is on the group is not asked for.
    assert count(cluster, assign='{"orders":{"broker-a":[0]}}') == 20
    with caplog.at_level(logging.WARNING, "pyspark_rocketmq"):
        assert count(cluster, onMissingBroker="skip") == 40
    assert "onMissingBroker=skip: " + AWAY.format("orders") in caplog.text
    # A read waits for a broker that comes back in time.
    back = threading.Timer(0.5, lambda: cluster.restart(1))
    back.start()
    assert count(cluster, retryTimeoutMs="60000") == 80
    back.join()


def is_routed(cluster: LocalCluster, group: str) -> bool:
    return group in BlockingClient(ClientConfig(namesrv=(cluster.namesrv,))).registered()


def test_a_topic_whose_brokers_are_all_away_is_not_said_to_be_missing(cluster: LocalCluster) -> None:
    fill(cluster)
    cluster.kill(0)
    cluster.kill(1)
    wait_until(lambda: not is_routed(cluster, "broker-a") and not is_routed(cluster, "broker-b"))
    with pytest.raises(MissingBrokerError, match=r"orders is on broker group broker-a, which is away.*1 more part"):
        count(cluster)
    with pytest.raises(MissingBrokerError):
        count(cluster, topicPattern="orders")


def test_brokers_tell_a_name_server_that_was_restarted(cluster: LocalCluster) -> None:
    fill(cluster)
    assert known_by_broker_a(cluster) == {**known_by_broker_a(cluster), "orders": 2}
    cluster.kill(1)
    cluster.restart_namesrv(0)
    register(cluster)
    with pytest.raises(MissingBrokerError, match=AWAY.format("orders")):
        count(cluster)
    # The broker that knows may be restarted as well.
    cluster.kill(0)
    cluster.restart_namesrv(0)
    cluster.restart(0)
    with pytest.raises(MissingBrokerError, match=AWAY.format("orders")):
        count(cluster)
    cluster.restart(1)
    assert count(cluster) == 80


def test_a_group_that_is_gone_for_good_is_forgotten_on_purpose(cluster: LocalCluster) -> None:
    fill(cluster)
    known_by_broker_a(cluster)
    assert forget(cluster, "broker-b") == (
        ResponseCode.NO_PERMISSION, "broker group broker-b is running: stop its brokers first"
    )  # fmt: skip
    assert forget(cluster, "broker-z")[0] == ResponseCode.QUERY_NOT_FOUND
    cluster.kill(1)
    wait_until(lambda: not is_routed(cluster, "broker-b"))
    assert forget(cluster, "broker-b") == (ResponseCode.SUCCESS, None)
    assert count(cluster) == 40
    reader = stream(cluster)
    start = {"v": 1, "offsets": {"orders": {"broker-b": {"0": 3}}}}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(text(start), ALL)["offsets"]["orders"]["broker-b"] == {"0": 3}
    # Brokers learn it, so that a name server that was restarted does not ask for the group again.
    path = Path(str(cluster._data)) / "broker-a" / "config" / "brokerGroups.json"
    register(cluster)
    wait_until(lambda: '"forgotten":true' in path.read_text())
    cluster.restart_namesrv(0)
    register(cluster)
    assert count(cluster) == 40
    # A group that comes back nevertheless is read, and missed when it leaves again.
    cluster.restart(1)
    assert count(cluster) == 80
    cluster.kill(1)
    wait_until(lambda: not is_routed(cluster, "broker-b"))
    with pytest.raises(MissingBrokerError):
        count(cluster)


def test_a_stream_does_not_start_without_a_broker(cluster: LocalCluster) -> None:
    fill(cluster)
    whole = stream(cluster)
    end = whole.latestOffset(text(whole.initialOffset()), ReadMaxRows(8))
    cluster.kill(1)
    wait_until(lambda: not is_routed(cluster, "broker-b"))
    # Where the query runs already, the queues of the broker wait and the others go on.
    more = whole.latestOffset(text(end), ALL)["offsets"]["orders"]
    assert more["broker-a"] == {"0": 20, "1": 20} and more["broker-b"] == end["offsets"]["orders"]["broker-b"]
    with pytest.raises(MissingBrokerError, match=AWAY.format("orders")):
        stream(cluster).initialOffset()
    with pytest.raises(MissingBrokerError, match=AWAY.format("orders")):
        stream(cluster).latestOffset(text(end), ALL)
    with pytest.raises(MissingBrokerError, match=AWAY.format("orders")):
        stream(cluster).prepareForTriggerAvailableNow()
    # The batch that was planned before the query stopped.
    for options in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(MissingBrokerError):
            stream(cluster, **options).partitions(text(end), text({"v": 1, "offsets": {"orders": {
                "broker-a": {"0": 20, "1": 20}, "broker-b": {"0": 20, "1": 20}}}}))  # fmt: skip
    reader = stream(cluster, onMissingBroker="skip")
    reader.prepareForTriggerAvailableNow()
    found = reader.latestOffset(text(end), ALL)["offsets"]["orders"]
    assert found["broker-a"] == {"0": 20, "1": 20} and found["broker-b"] == end["offsets"]["orders"]["broker-b"]


def test_a_run_of_available_now_fails_where_a_broker_goes_in_the_middle(cluster: LocalCluster) -> None:
    fill(cluster)
    reader = stream(cluster)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(text(reader.initialOffset()), ReadMaxRows(8))
    cluster.kill(1)
    with pytest.raises(MissingBrokerError, match=AWAY.format("orders")):
        while True:
            following = reader.latestOffset(text(end), ReadMaxRows(8))
            assert following != end, "the run ended without broker-b"
            end = following


def test_a_checkpoint_knows_a_group_that_no_name_server_knows(cluster: LocalCluster) -> None:
    """Apache's name server forgets who left."""
    fill(cluster)
    start = {"v": 1, "offsets": {"orders": {"broker-a": {"0": 3}, "broker-y": {"0": 5}}}}
    with pytest.raises(MissingBrokerError, match="broker-y, which is not registered with the name servers any more"):
        stream(cluster).latestOffset(text(start), ALL)
    skipped = stream(cluster, onMissingBroker="skip").latestOffset(text(start), ALL)
    assert skipped["offsets"]["orders"]["broker-y"] == {"0": 5}


def test_a_query_with_a_checkpoint_waits_for_a_name_server_that_is_away(cluster: LocalCluster) -> None:
    fill(cluster)
    before = stream(cluster)
    end = before.latestOffset(text(before.initialOffset()), ReadMaxRows(8))
    host, _, port = cluster.namesrv_address(0).rpartition(":")
    cluster.stop_namesrv(0)
    patient = stream(cluster, retryTimeoutMs="60000")
    # Without a checkpoint, the address may be wrong: that is told at once.
    with pytest.raises(TransportError, match="no name server answers"):
        patient.initialOffset()
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(patient.latestOffset(text(end), ALL)))
    with socket.create_server((host, int(port))) as silent:
        waiting.start()
        for _ in range(4):  # two connections for each question: it is asked again
            silent.settimeout(60)
            silent.accept()[0].close()
    cluster.restart_namesrv(0)
    register(cluster)
    waiting.join(60)
    assert found and found[0]["offsets"]["orders"]["broker-b"] == {"0": 20, "1": 20}
