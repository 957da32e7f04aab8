"""Planning, pulling and waiting against brokers that take nothing but TLS, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from aerobee.errors import TransportError
from aerobee.sync import Producer
from aerobee.testing.certificates import Certificate, make_certificate
from aerobee.testing.cluster import LocalCluster
from pyspark_rocketmq.columns.schema import spark_schema
from pyspark_rocketmq.source.batch import batch_reader
from pyspark_rocketmq.source.stream import stream_reader

SCHEMA = spark_schema(["queue_offset", "body"])
COUNT = 500


@pytest.fixture(scope="module")
def cluster(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {**certificate.settings(), "tls.server.mode": "enforcing", "tls.enable": "true"}
    with LocalCluster(1, data=tmp_path_factory.mktemp("tls"), settings=settings) as running:
        running.create_topic("orders", 1)
        yield running


def send(cluster: LocalCluster, certificate: Certificate, count: int) -> None:
    with Producer(cluster.namesrv, tls=certificate.client_context()) as producer:
        for future in [producer.send_nowait("orders", b"%d" % number * 1000) for number in range(count)]:
            future.result(timeout=60)


def test_a_batch_is_read_and_a_stream_is_woken_by_the_next_message(
    cluster: LocalCluster, certificate: Certificate
) -> None:
    send(cluster, certificate, COUNT)
    options = {"nameServer": cluster.namesrv, "topic": "orders", "tlsCa": str(certificate.cert)}
    reader = batch_reader(options, SCHEMA)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["body"] for row in rows] == [b"%d" % number * 1000 for number in range(COUNT)]

    stream = stream_reader({**options, "longPollMs": "60000"}, SCHEMA)
    start = stream.initialOffset()
    send(cluster, certificate, 1)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end["offsets"]["orders"]["broker-a"]["0"] == COUNT + 1
    # The watching connection is made now: its tickets alone must not be taken for an answer.
    sender = threading.Timer(0.5, send, (cluster, certificate, 1))
    sender.start()
    later = stream.latestOffset(end, ReadAllAvailable())
    sender.join()
    assert later["offsets"]["orders"]["broker-a"]["0"] == COUNT + 2


def test_what_is_wrong_is_said(cluster: LocalCluster, certificate: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other")
    options = {"nameServer": cluster.namesrv, "topic": "orders"}
    with pytest.raises(TransportError, match=r"not trusted.*tls-ca names the file"):
        batch_reader({**options, "tlsCa": str(other.cert)}, SCHEMA).partitions()
    with pytest.raises(TransportError, match="Spark option tlsCa"):
        batch_reader(options, SCHEMA).partitions()
