"""Bodies and config files in Apache's dialect: read, written again, the same bytes."""

import zlib
from pathlib import Path
from typing import Any

import pytest

from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import dumps, loads
from aerobee.model.fields import int_key
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.queue import MessageQueue
from aerobee.model.route import BrokerData, TopicRouteData
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.bodies.cluster import ClusterInfo, KVTable
from aerobee.protocol.bodies.groups import (
    ConsumerConnection,
    ConsumerList,
    GroupList,
    SubscriptionGroupWrapper,
)
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.bodies.offsets import ConsumeStats, TopicStatsTable
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.bodies.topics import TopicConfigSerializeWrapper, TopicList
from aerobee.protocol.codes import VERSION
from aerobee.runtime.disk import InlineDisk
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.table import MetadataTable
from aerobee.store.metadata.topics import TopicTable

DATA = Path(__file__).parent / "data"
BODIES = sorted((DATA / "bodies").glob("*.json"))
CONFIGS = sorted((DATA / "config").glob("*.json"))


TYPED: dict[str, type[Body]] = {
    "cluster_info": ClusterInfo,
    "consume_stats": ConsumeStats,
    "consumer_connection": ConsumerConnection,
    "consumer_list": ConsumerList,
    "group_list": GroupList,
    "heartbeat": HeartbeatData,
    "kv_table": KVTable,
    "lock_batch": LockBatchRequestBody,
    "lock_batch_response": LockBatchResponseBody,
    "register_broker": RegisterBrokerBody,
    "subscription_group": SubscriptionGroupWrapper,
    "topic_config": TopicConfigSerializeWrapper,
    "topic_list": TopicList,
    "topic_stats": TopicStatsTable,
}


def body(name: str) -> Any:
    return loads((DATA / "bodies" / f"{name}.json").read_bytes())


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_body_round_trip(path: Path) -> None:
    content = path.read_bytes()
    assert dumps(loads(content)) == content


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_file_round_trip(path: Path) -> None:
    content = path.read_bytes()
    assert dumps(loads(content), pretty=True) == content


@pytest.mark.parametrize("name", TYPED)
def test_typed_body_round_trip(name: str) -> None:
    """Every field is known, has Apache's name, order and type, and nothing is added."""
    content = (DATA / "bodies" / f"{name}.json").read_bytes()
    assert loads(TYPED[name].decode(content).encode()) == loads(content)
    assert TYPED[name].decode(content).encode() == content


@pytest.mark.parametrize(
    "kind", [TopicTable, GroupTable, ConsumerOffsetTable, DelayOffsetTable], ids=lambda kind: kind.__name__
)
def test_metadata_table_takes_up_apaches_file(kind: type[MetadataTable], tmp_path: Path) -> None:
    """Loaded and written by the store's own tables: nothing lost, nothing renamed, the same bytes."""
    (tmp_path / "config").mkdir()
    content = (DATA / "config" / kind.file_name).read_bytes()
    (tmp_path / "config" / kind.file_name).write_bytes(content)
    table = kind(InlineDisk(), str(tmp_path))
    assert table.load()
    assert loads(table.to_bytes()) == loads(content)
    assert table.to_bytes() == content


def test_register_broker_compressed() -> None:
    """The deflated form holds the same topics; what we write, another inflates to the same blocks."""
    lines = dict(line.split() for line in (DATA / "bodies.hex").read_text().splitlines())
    data = bytes.fromhex(lines["register_broker_compressed"])
    read = RegisterBrokerBody.decode_compressed(data, VERSION)
    plain = RegisterBrokerBody.decode((DATA / "bodies" / "register_broker.json").read_bytes())
    ours, theirs = read.topic_config_serialize_wrapper, plain.topic_config_serialize_wrapper
    assert ours.topic_config_table.keys() == theirs.topic_config_table.keys()
    assert ours.data_version == theirs.data_version
    assert read.filter_server_list == plain.filter_server_list == ("10.0.0.9:1",)
    assert zlib.decompress(read.encode_compressed()) == zlib.decompress(data)


def test_route() -> None:
    route = TopicRouteData.from_json(body("route"))
    assert route.broker_datas[0].address() == "10.0.0.1:10911"
    assert dict(route.broker_datas[0].broker_addrs) == {
        0: "10.0.0.1:10911",
        1: "10.0.0.2:10911",
        4294967297: "[2001:db8::1]:10911",
    }
    assert loads(dumps(route.to_json())) == body("route")


def test_cluster_info_broker() -> None:
    given = body("cluster_info")["brokerAddrTable"]["broker-a"]
    assert BrokerData.from_json(given).to_json() == given


def test_topic_configs() -> None:
    wrapper = body("topic_config")
    for name, given in wrapper["topicConfigTable"].items():
        config = TopicConfig.from_json(given)
        assert config.topic_name == name
        assert config.to_json() == given
    assert DataVersion.from_json(wrapper["dataVersion"]).to_json() == wrapper["dataVersion"]


@pytest.mark.parametrize("table", ["subscription_group", "subscriptionGroup"])
def test_subscription_groups(table: str) -> None:
    folder = "bodies" if table in {path.stem for path in BODIES} else "config"
    groups = loads((DATA / folder / f"{table}.json").read_bytes())["subscriptionGroupTable"]
    assert groups
    for given in groups.values():
        assert SubscriptionGroupConfig.from_json(given).to_json() == given


def test_queues_as_keys() -> None:
    stats = body("topic_stats")["offsetTable"]
    queues = {MessageQueue.from_key(key): value for key, value in stats.items()}
    assert {queue.queue_id: value["maxOffset"] for queue, value in queues.items()} == {0: 100, 1: 101}
    written = dumps({"offsetTable": {queue.to_key(): value for queue, value in queues.items()}})
    assert written == dumps({"offsetTable": stats})


def test_integer_keys_are_read_quoted_too() -> None:
    table = loads(b'{"offsetTable":{"1":10,2:20}}')["offsetTable"]
    assert {int_key(key): value for key, value in table.items()} == {1: 10, 2: 20}
