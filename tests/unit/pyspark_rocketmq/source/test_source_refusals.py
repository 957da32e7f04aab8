"""What a server may answer a source with: refusals, damage, nonsense, silence. One error each, no hang."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from aerobee.errors import AerobeeError, RemoteProtocolError, RequestTimeoutError
from aerobee.errors.codes import NoPermissionError
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, encode_command, response
from aerobee.protocol.connection import Connection
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.secrets import secret_for
from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source.batch import batch_reader
from pyspark_rocketmq.source.pulling import DataLossError

Answer = Callable[[Command], bytes]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Return a server that gives every request this answer."""
    server = socket.create_server(("127.0.0.1", 0))

    peers: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                break
            peers.append(peer)
            machine = Connection()
            try:
                while data := peer.recv(65536):
                    for command in machine.receive_data(data):
                        peer.sendall(answer(command))
            except OSError:
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for peer in peers:
            with suppress(OSError):  # the client may have left
                peer.shutdown(socket.SHUT_RDWR)
        thread.join(30)
        for peer in peers:
            peer.close()


def plan(address: str, **options: str) -> None:
    reader = batch_reader({"nameServer": address, "topic": "t", "requestTimeoutMs": "500", **options}, DEFAULT_SCHEMA)
    reader.partitions()


def test_wrong_credentials_are_one_error_without_the_secret() -> None:
    seen: list[dict[str, str]] = []

    def refuse(command: Command) -> bytes:
        seen.append(command.ext)
        return encode_command(response(command, ResponseCode.NO_PERMISSION, remark="check signature failed"))

    with answering(refuse) as address, pytest.raises(NoPermissionError, match="check signature failed") as caught:
        plan(address, accessKey="who", secretKey=secret_for("who"))
    assert seen[0]["AccessKey"] == "who" and seen[0]["Signature"]
    assert secret_for("who") not in str(caught.value) + repr(seen)


def test_something_that_is_not_rocketmq_and_something_that_says_nothing() -> None:
    with answering(lambda command: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        with pytest.raises(RemoteProtocolError, match="not RocketMQ's protocol"):
            plan(address)
    with answering(lambda command: b"") as address, pytest.raises(AerobeeError, match=r"no answer within 0.5 s"):
        plan(address)
    assert issubclass(RequestTimeoutError, TimeoutError)


def test_a_damaged_record_is_data_loss(tmp_path: Path) -> None:
    with LocalCluster(1, data=tmp_path) as cluster:
        cluster.create_topic("damaged", 1)
        with Producer(cluster.namesrv, group="sender") as producer:
            for number in range(20):
                producer.send("damaged", b"body-%02d" % number)
        log = next((tmp_path / cluster.broker_name(0) / "commitlog").iterdir())
        data = log.read_bytes()[: 1 << 20]
        at = data.index(b"body-07")
        with log.open("r+b") as file:
            # The magic code of that record, 84 bytes before its body.
            file.seek(at - 84)
            file.write(b"\0\0\0\0")
        options = {"nameServer": cluster.namesrv, "topic": "damaged"}
        reader = batch_reader(options, DEFAULT_SCHEMA)
        (partition,) = reader.partitions()
        with pytest.raises(DataLossError, match="has 1 damaged messages between 0 and 20"):
            list(reader.read(partition))
        easy = batch_reader({**options, "failOnDataLoss": "false"}, DEFAULT_SCHEMA)
        rows = [row for batch in easy.read(partition) for row in batch.column("body").to_pylist()]
        assert rows == [b"body-%02d" % number for number in range(20) if number != 7]


def test_a_schema_that_is_not_ours(tmp_path: Path) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    with pytest.raises(AerobeeError, match="no column 'bodi': did you mean 'body'"):
        batch_reader({"nameServer": "h:1", "topic": "t"}, StructType([StructField("bodi", StringType())]))
    with pytest.raises(OptionError, match="no topic"):
        batch_reader({"nameServer": "h:1"}, DEFAULT_SCHEMA)
