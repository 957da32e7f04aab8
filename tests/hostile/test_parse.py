"""Names, numbers and sizes that any client may send: what is taken is saved and read back equal; what is not is refused
in words, and nothing of it keeps a server from starting again.

Raw frames over sockets, and the files as they lie in a directory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aerobee.errors import StoreError
from aerobee.model.dialect import loads
from aerobee.protocol.codes import RequestCode
from aerobee.store.statefile import seal, unseal
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.processes import ServerProcess

DIGITS = "7" * 5000
NAMES = [
    "plain",
    "a/b",
    "..",
    ".",
    "a\0b",
    "a\nb",
    "x" * 4000,
    "\ud800",
    "a@b",
    " ",
    "zürich",
    "a'b\"c\\d",
    "{1:2}",
    "%RETRY%a/b",
    "%RETRY%g+t",
    "\U0001f41d",
    "\u202egpj",
]
TABLES = {
    "topics": RequestCode.GET_ALL_TOPIC_CONFIG,
    "groups": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "offsets": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "modes": RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    "delays": RequestCode.GET_ALL_DELAY_OFFSET,
}


class Wire:
    """One connection that says what it is told to, in JSON headers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._opaque = 0
        self._connect()

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)

    def ask(
        self, code: int, ext: Mapping[str, Any] | None = None, body: bytes | str = b""
    ) -> tuple[int, dict[str, Any]]:
        """The answer's code, and its remark, ext fields and body. A frame that is none (half a pair of escapes is no
        JSON) ends the connection, which counts as refused."""
        try:
            return self._ask(code, ext or {}, body.encode() if isinstance(body, str) else body)
        except ConnectionError:
            assert any("\ud800" in str(value) for value in (ext or {}).values()), (code, ext)
            self.close()
            self._connect()
            return 1, {"remark": "closed"}

    def _ask(self, code: int, ext: Mapping[str, Any], content: bytes) -> tuple[int, dict[str, Any]]:
        self._opaque += 1
        header = {"code": code, "flag": 0, "language": "JAVA", "opaque": self._opaque, "version": 477}
        data = json.dumps({**header, "extFields": dict(ext)}).encode()
        self._socket.sendall(struct.pack(">II", 4 + len(data) + len(content), len(data)) + data + content)
        while True:
            (size,) = struct.unpack(">I", self._read(4))
            frame = self._read(size)
            (length,) = struct.unpack(">I", frame[:4])
            answer = json.loads(frame[4 : 4 + (length & 0xFFFFFF)])
            if answer["opaque"] == self._opaque and answer["flag"] & 1:
                found = {"remark": answer.get("remark"), **answer.get("extFields", {})}
                return answer["code"], {**found, "body": frame[4 + (length & 0xFFFFFF) :]}

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the connection was closed")
            data += more
        return data

    def tables(self) -> dict[str, Any]:
        found = {}
        for name, code in TABLES.items():
            answer, fields = self.ask(code)
            assert answer == 0, (name, fields)
            found[name] = loads(fields["body"])
        return found

    def rejected(self) -> int:
        _, fields = self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(loads(fields["body"])["table"]["stateEntriesRejected"])

    def close(self) -> None:
        self._socket.close()


def heartbeat(group: str, topics: list[str], expression: str = "a > 5", version: object = 1) -> str:
    subscriptions = [
        {"topic": topic, "subString": expression, "expressionType": "SQL92", "subVersion": version} for topic in topics
    ]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(1, data=tmp_path, settings={"enablePropertyFilter": "true"}) as running:
        yield running


def config_of(tmp_path: Path) -> Path:
    (found,) = {path.parent for path in tmp_path.rglob("durableMark")}
    return found


def restarted(cluster: LocalCluster) -> Wire:
    cluster.restart(0)
    return Wire(cluster.broker_address(0))


def test_a_filter_of_a_mistyped_topic_does_not_refuse_the_next_start(cluster: LocalCluster, tmp_path: Path) -> None:
    wire = Wire(cluster.broker_address(0))
    assert wire.ask(RequestCode.HEART_BEAT, body=heartbeat("g", ["a/b", "good"]))[0] == 0
    wire.close()
    wire = restarted(cluster)
    saved = loads(unseal((config_of(tmp_path) / "consumerFilter.json").read_bytes()))["filterDataByTopic"]
    assert list(saved) == ["good"]
    assert wire.rejected() == 0
    wire.close()


def test_a_directory_that_holds_bad_entries_starts_and_shows_them(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.restart(0)
    cluster.kill(0)
    config = config_of(tmp_path)
    good = {"groupFilterData": {"g": {"expression": "a > 5", "expressionType": "SQL92", "bornTime": 1}}, "topic": "t"}
    bad = {"groupFilterData": {"g": {"expression": "a > > 5", "expressionType": "SQL92"}}, "topic": "u"}
    filters = {"filterDataByTopic": {"a/b": good, "t": good, "u": bad, "v": 7}}
    # As this broker wrote it, with its checksum, and as Apache does.
    (config / "consumerFilter.json").write_bytes(seal(json.dumps(filters).encode()))
    (config / "consumerOffset.json").write_text('{"offsetTable":{"t@g":{0:5,1:"x",2:' + DIGITS[:30] + '},"u@g":7}}')
    topics = loads(unseal((config / "topics.json").read_bytes()))
    topics["topicConfigTable"].update({"../x": {}, "huge": {"readQueueNums": 10**9}, "fine": {"readQueueNums": 3}})
    (config / "topics.json").write_bytes(seal(json.dumps(topics).encode()))
    wire = restarted(cluster)
    assert wire.rejected() == 3 + 3 + 2
    found = wire.tables()
    assert found["offsets"]["offsetTable"] == {"t@g": {0: 5}}
    assert found["topics"]["topicConfigTable"]["fine"]["readQueueNums"] == 3
    assert "huge" not in found["topics"]["topicConfigTable"]
    wire.close()
    lines = [json.loads(line) for line in (config / "consumerFilter.json.rejected").read_text().splitlines()]
    assert {line["key"] for line in lines} == {"filterDataByTopic/a/b", "filterDataByTopic/v", "u/g"}
    assert all(line["reason"] and line["time"] for line in lines)
    assert next(line["entry"] for line in lines if line["key"] == "filterDataByTopic/a/b") == good
    # They were moved, so the next start finds none; what lies beside the files is still told.
    wire = restarted(cluster)
    assert wire.rejected() == 8
    assert wire.tables()["offsets"]["offsetTable"] == {"t@g": {0: 5}}
    wire.close()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"topicConfigTable":7}', seal(b'{"topicConfigTable":{}}')[:-1] + b"\t\t"]
)
def test_an_unreadable_file_and_backup_refuse_the_start(cluster: LocalCluster, tmp_path: Path, content: bytes) -> None:
    cluster.kill(0)
    config = config_of(tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_bytes(content)
    with pytest.raises(StoreError, match=r"topics\.json"):
        cluster.restart(0)
    assert (config / "topics.json").read_bytes() == content


def requests_about(name: str, number: object) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Everything that puts a name or a number into a file of a broker."""
    plain = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": False}
    made = {**plain, "defaultTopic": "TBW102", "topicSysFlag": 0}
    yield RequestCode.UPDATE_AND_CREATE_TOPIC, {**made, "topic": name}, ""
    for field in ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag", "topicFilterType"):
        yield RequestCode.UPDATE_AND_CREATE_TOPIC, {**made, "topic": "n" + field, field: number}, ""
        listed = [{**plain, "topicName": "l" + field, field: number}]
        yield RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, json.dumps({"topicConfigList": listed})
    yield RequestCode.UPDATE_AND_CREATE_TOPIC, {**made, "topic": "at", "attributes": f"+message.type={name}"}, ""
    yield (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {**made, "topic": "au", "attributes": f"+lite.topic.expiration={number}"},
        "",
    )
    fixed = {"topic": name, "expressionType": name, "expression": name, "version": number}
    policies = {"type": name, "customizedRetryPolicy": {"next": [1, number]}, "exponentialRetryPolicy": {"max": number}}
    for field, value in {
        "groupName": name,
        "retryQueueNums": number,
        "retryMaxTimes": number,
        "brokerId": number,
        "groupSysFlag": number,
        "consumeTimeoutMinute": number,
        "groupRetryPolicy": policies,
        "subscriptionDataSet": [fixed],
        "attributes": {"+lite.bind.topic": name, "+priority.factor": str(number)},
    }.items():
        group = {"groupName": "g" + field, field: value}
        yield RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group)
    for topic, group in ((name, "plain"), ("plain", name)):
        both = {"topic": topic, "group": group, "consumerGroup": group, "destGroup": group, "srcGroup": "plain"}
        yield RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {**both, "readable": "false"}, ""
        yield RequestCode.UPDATE_CONSUMER_OFFSET, {**both, "queueId": 0, "commitOffset": 7}, ""
        yield RequestCode.CLONE_GROUP_OFFSET, {**both, "offline": "true"}, ""
        yield RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**both, "timestamp": -1, "isForce": "true"}, ""
        yield RequestCode.HEART_BEAT, {}, heartbeat(group, [topic])
        mode = {"topic": topic, "consumerGroup": group, "mode": "PULL", "popShareQueueNum": number}
        yield RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode)
    both = {"topic": "plain", "consumerGroup": "plain", "group": "plain"}
    yield RequestCode.UPDATE_CONSUMER_OFFSET, {**both, "queueId": number, "commitOffset": 7}, ""
    yield RequestCode.UPDATE_CONSUMER_OFFSET, {**both, "queueId": 1, "commitOffset": number}, ""
    for field in ("queueId", "offset", "timestamp"):
        yield RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**both, "timestamp": -1, "isForce": "true", field: number}, ""
    yield RequestCode.HEART_BEAT, {}, heartbeat("plain", ["plain"], f"a > {name}", number)
    yield RequestCode.HEART_BEAT, {}, heartbeat("plain", ["plain"], f"a > {number}", 3)


def test_what_requests_put_in_files_is_read_back_equal(cluster: LocalCluster, tmp_path: Path) -> None:
    wire = Wire(cluster.broker_address(0))
    plain: list[tuple[int, dict[str, Any], str]] = [*requests_about("plain", 4)]
    numbers = [0, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), True, "4", "x", 1.5]
    raw = [f"<{DIGITS}>", "<1e999>", "<-0>", f"<{DIGITS[:4000]}>", "<NaN>"]
    taken = 0
    for code, ext, body in itertools.chain(
        plain,
        *(requests_about(name, 4) for name in NAMES),
        *(requests_about("plain", number) for number in [*numbers, *raw]),
        plain,
    ):
        # A number that json.dumps would not write.
        text = body
        for word in raw:
            text = text.replace(f'"{word}"', word[1:-1])
        ext = {key: value[1:-1] if value in raw else value for key, value in ext.items()}
        answer, fields = wire.ask(code, ext, text)
        assert answer != -1, (code, ext, body)
        assert "Error" not in (fields["remark"] or ""), (code, fields["remark"])
        taken += answer == 0
    assert taken > 100
    before = wire.tables()
    assert before["offsets"]["offsetTable"]["plain@plain"].keys() == {0, 1, 2, 3}
    filters = filters_of(cluster, wire, tmp_path)
    wire = Wire(cluster.broker_address(0))
    after = wire.tables()
    assert wire.rejected() == 0
    for name in TABLES:
        assert after[name] == before[name], name
    assert filters_of(cluster, wire, tmp_path) == filters
    assert filters.keys() == {"plain", "%RETRY%g+t"}


def filters_of(cluster: LocalCluster, wire: Wire, tmp_path: Path) -> dict[str, dict[str, str]]:
    """What the broker saves when it stops; it is started again."""
    wire.close()
    cluster.restart(0)
    saved = loads(unseal((config_of(tmp_path) / "consumerFilter.json").read_bytes()))["filterDataByTopic"]
    return {
        topic: {group: data["expression"] for group, data in one["groupFilterData"].items()}
        for topic, one in saved.items()
    }


def test_counts_of_what_a_client_may_add_are_bounded(cluster: LocalCluster, tmp_path: Path) -> None:
    wire = Wire(cluster.broker_address(0))
    assert wire.ask(RequestCode.HEART_BEAT, body=heartbeat("g", [f"t{n}" for n in range(1500)]))[0] == 0
    settings = {"groupName": "g", "groupRetryPolicy": {"customizedRetryPolicy": {"next": [1] * 100_000}}}
    code, fields = wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(settings))
    assert code == 29 and "bytes" in fields["remark"]
    assert len(filters_of(cluster, wire, tmp_path)) == 1000


def test_the_name_servers_table_keeps_any_text_within_its_bounds(tmp_path: Path) -> None:
    loop = asyncio.Runner()
    path = tmp_path / "kvConfig.json"
    server = ServerProcess("namesrv", {"kvConfigPath": str(path)}, tmp_path / "log")
    loop.run(server.start())
    wire = Wire(server.address)
    kept = {}
    for name in NAMES:
        for row in ((name, "k", "v"), ("n", name, "v"), ("n", "k" + str(len(kept)), name)):
            ext = dict(zip(("namespace", "key", "value"), row, strict=True))
            if wire.ask(RequestCode.PUT_KV_CONFIG, ext)[0] == 0:
                kept[row[:2]] = row[2]
    assert wire.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v" * 70_000})[0] == 29
    assert ("a/b", "k") in kept and ("n", "a\nb") in kept and ("n", "x" * 4000) not in kept
    assert values_of(wire, kept) == kept
    wire.close()
    loop.run(server.kill())
    # One more entry, of a kind that a value cannot have, and a namespace of such a kind.
    data = json.loads(path.read_bytes())
    data["configTable"]["n"]["bad"] = [1]
    data["configTable"]["m"] = 7
    path.write_text(json.dumps(data))
    loop.run(server.start())
    wire = Wire(server.address)
    assert values_of(wire, kept) == kept
    wire.close()
    assert loop.run(server.stop()) == 0
    loop.close()
    lines = [json.loads(line) for line in Path(f"{path}.rejected").read_text().splitlines()]
    assert {line["key"]: line["entry"] for line in lines} == {"n/bad": [1], "m": 7}
    assert "set aside" in server.log_text()


def values_of(wire: Wire, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    found = {}
    for namespace, key in keys:
        code, fields = wire.ask(RequestCode.GET_KV_CONFIG, {"namespace": namespace, "key": key})
        assert code == 0, (namespace, key)
        found[namespace, key] = fields["value"]
    return found


@pytest.mark.parametrize("field", ["queueId", "commitOffset", "topic", "consumerGroup"])
def test_a_header_number_of_any_length_is_refused_and_the_connection_stays(cluster: LocalCluster, field: str) -> None:
    wire = Wire(cluster.broker_address(0))
    ext = {"topic": "t", "consumerGroup": "g", "queueId": "0", "commitOffset": "0", field: DIGITS}
    code, fields = wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    assert code not in (0, -1) and "Traceback" not in fields["remark"]
    assert wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO)[0] == 0
    wire.close()
