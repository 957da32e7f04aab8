"""The name server as clients, brokers and operators see it: frames in, frames out, bytes as Apache's."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.config.setting import settings_of
from aerobee.errors import ProtocolError
from aerobee.model.dialect import run_slices
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.handlers import NameServer
from aerobee.net.turns import Sliced
from aerobee.protocol.codes import BINARY, JSON, RequestCode, ResponseCode
from aerobee.protocol.command import Command, decode_frame, encode_command, request
from aerobee.protocol.headers.base import Header, InvalidHeaderError
from aerobee.protocol.headers.cluster import GetBrokerMemberGroupRequestHeader
from aerobee.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from aerobee.protocol.headers.route import (
    AddWritePermOfBrokerRequestHeader,
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from aerobee.protocol.headers.topic import GetTopicsByClusterRequestHeader
from aerobee.runtime.disk import InlineDisk
from aerobee.testing.clock import VirtualClock

# Written by Apache 5.5.0's classes (RegisterBrokerBody.encode, TopicRouteData.encode, ...).
REGISTER_BODY = (
    b'{"filterServerList":["f1:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":9,"stateVersion":2,'
    b'"timestamp":5},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1794741272922},'
    b'"topicConfigTable":{"T":{"attributes":{"message.type":"DELAY"},"order":false,"perm":6,"readQueueNums":4,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},'
    b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"T":{"bname":"broker-a","currIdMap":{0:1,2:3},'
    b'"dirty":false,"epoch":77,"scope":"__global__","topic":"T","totalQueues":8}}}}'
)
REGISTER_BODY_COMPRESSED = bytes.fromhex(
    "78da2d4e4d4bc340145c6ffe8c65aeae62ea47ebbb152ca55005310822b26cb6af359864c3eecba184fc77b7c5c3c030cc9752ca8cf0"
    "61e88423e8c9208913fee098ead081660652b79cc5b6073d4c4aa98b8cab52dfeb857ed4ef9bd7f57665cbe55a8fc8bee40e7c23c79e"
    "41785e6d979f38452ebfb02fa8c0f77f5c46549d6b4fa62a865f8ed70e067e8871b37b717968bca5c2cce86e32d8d5518ea0bd6b121b"
    "701ffc0f683ecf477d38cf587b6842e51a6b738784bef6592ccf5c5cf336f0c009b498fe002dc643e5"
)
CLUSTER_INFO = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
    b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
)
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{'
    b'"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}'
)
ROUTE_STANDARD = ROUTE.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')
FULL_ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"z<1>(\xe4\xb8\xad)\\"\\\\/"}],'
    b'"filterServerTable":{"10.0.0.1:10911":["f1:1"]},"orderTopicConf":"broker-a:4;broker-b:4","queueDatas":[{'
    b'"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}],'
    b'"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{0:1,2:3},"dirty":false,"epoch":77,'
    b'"scope":"__global__","topic":"T","totalQueues":8}}}'
)
FULL_ROUTE_STANDARD = FULL_ROUTE
for bare, quoted in ((b"{0:", b'{"0":'), (b",1:", b',"1":'), (b",2:", b',"2":')):
    FULL_ROUTE_STANDARD = FULL_ROUTE_STANDARD.replace(bare, quoted)

VERSION_4_9_3 = 399
VERSION_4_9_4 = 401


class Connection:
    def __init__(self, number: int) -> None:
        self.id = number
        self.remote_address = f"10.0.0.9:{number}"
        self.closed = False

    def close(self) -> None:
        self.closed = True


class World:
    """A name server and those who talk to it."""

    def __init__(self, config: NamesrvConfig | None = None) -> None:
        self.clock = VirtualClock()
        self.told: list[tuple[str, Command]] = []
        self.server = NameServer(
            config or NamesrvConfig(),
            clock=self.clock,
            disk=InlineDisk(),
            send_oneway=lambda address, command: self.told.append((address, command)),
        )
        self.server.open()
        self.handlers = self.server.handlers()

    def ask(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        connection: Connection | None = None,
        version: int = VERSION_4_9_4,
        codec: int = JSON,
        ext: dict[str, str] | None = None,
    ) -> Command:
        """Both ways through the frames a peer would see."""
        sent = request(code, header, body, opaque=7, codec=codec, ext=ext)
        sent.version = version
        answer = self.handlers[code](connection or Connection(1), decode_frame(encode_command(sent)))
        if isinstance(answer, Sliced):
            answer = run_slices(answer.slices)
        assert answer is not None
        answer = decode_frame(encode_command(answer))
        assert answer.is_response and answer.opaque == 7 and answer.codec == codec
        return answer

    def register(
        self,
        broker_id: int = 0,
        *,
        addr: str = "10.0.0.1:10911",
        name: str = "broker-a",
        body: bytes = b"",
        connection: Connection | None = None,
        timeout_ms: int | None = None,
        acting: bool | None = False,
        ext: dict[str, str] | None = None,
        **header: int | bool,
    ) -> Command:
        fields = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_addr=addr,
            cluster_name="DefaultCluster",
            ha_server_addr=addr.replace("10911", "10912"),
            broker_id=broker_id,
            heartbeat_timeout_millis=timeout_ms,
            enable_acting_master=acting,
            **header,  # type: ignore[arg-type]
        )
        body = body or registration("T:4:8", "U:1:1")
        return self.ask(RequestCode.REGISTER_BROKER, fields, body, connection=connection, ext=ext)

    def route(self, topic: str = "T", *, version: int = VERSION_4_9_4, ext: dict[str, str] | None = None) -> Command:
        header = GetRouteInfoRequestHeader(topic=topic)
        return self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version, ext=ext)

    def topics(self) -> list[str]:
        answer = self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        found: list[str] = json.loads(answer.body)["topicList"]
        return found


def registration(*topics: str, counter: int = 1) -> bytes:
    table = {}
    for word in topics:
        name, read, write = word.split(":")
        table[name] = {"topicName": name, "readQueueNums": int(read), "writeQueueNums": int(write), "perm": 6}
    version = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


@pytest.fixture
def world() -> World:
    return World()


def two_brokers(world: World) -> None:
    world.register(0)
    world.register(1, addr="10.0.0.2:10911")


# -- routes


@pytest.mark.parametrize(("version", "body"), [(VERSION_4_9_3, ROUTE), (VERSION_4_9_4, ROUTE_STANDARD)])
def test_a_route_in_the_bytes_each_client_reads(world: World, version: int, body: bytes) -> None:
    two_brokers(world)
    assert world.route(version=version).body == body
    assert world.route(version=version).body == body


def test_an_old_client_may_ask_for_standard_json(world: World) -> None:
    two_brokers(world)
    header = GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=True)
    answer = world.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=VERSION_4_9_3)
    assert answer.body == ROUTE_STANDARD


@pytest.mark.parametrize(("version", "body"), [(VERSION_4_9_3, FULL_ROUTE), (VERSION_4_9_4, FULL_ROUTE_STANDARD)])
@pytest.mark.parametrize("compressed", [False, True])
def test_everything_a_route_can_hold(version: int, body: bytes, compressed: bool) -> None:
    world = World(NamesrvConfig(order_message_enable=True))
    order = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4;broker-b:4")
    world.ask(RequestCode.PUT_KV_CONFIG, order)
    zone = {"__ZONE_NAME": 'z<1>(中)"\\/'}
    # One topic alone is taken from a known broker only.
    world.register(0, acting=True, ext=zone, body=registration("U:1:1", "V:1:1"))
    world.register(1, addr="10.0.0.2:10911", acting=True, ext=zone)
    sent = REGISTER_BODY_COMPRESSED if compressed else REGISTER_BODY
    fields = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr="10.0.0.1:10911",
        cluster_name="DefaultCluster",
        ha_server_addr="10.0.0.1:10912",
        broker_id=0,
        enable_acting_master=True,
        compressed=compressed,
        body_crc32=zlib.crc32(sent) & 0x7FFFFFFF,
    )
    # A broker of 5.0 or later also sends static-topic mappings when it compresses.
    assert world.ask(RequestCode.REGISTER_BROKER, fields, sent, ext=zone, version=513).code == 0
    assert world.route(version=version).body == body


def test_an_unknown_topic(world: World) -> None:
    answer = world.route("nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST and answer.body == b""
    assert answer.remark is not None
    assert answer.remark.startswith("No topic route info in name server for the topic: nowhere\nSee https://")


def test_a_route_answer_follows_every_change(world: World) -> None:
    two_brokers(world)
    before = world.route().body
    wiped = world.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequestHeader(broker_name="broker-a"))
    assert wiped.ext == {"wipeTopicCount": "2"}
    assert world.route().body == before.replace(b'"perm":6', b'"perm":4')
    added = world.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader(broker_name="broker-a"))
    assert added.ext == {"addTopicCount": "2"}
    assert world.route().body == before
    set_config(world, "orderMessageEnable=true")
    order = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
    world.ask(RequestCode.PUT_KV_CONFIG, order)
    assert json.loads(world.route().body)["orderTopicConf"] == "broker-a:4"
    world.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic="T"))
    assert world.route().code == ResponseCode.TOPIC_NOT_EXIST


def test_a_client_that_stays_in_its_zone(world: World) -> None:
    world.register(0, ext={"__ZONE_NAME": "east"})
    world.register(0, name="broker-b", addr="10.0.0.3:10911", ext={"__ZONE_NAME": "west"})
    both = json.loads(world.route().body)
    assert [b["brokerName"] for b in both["brokerDatas"]] == ["broker-a", "broker-b"]
    near = json.loads(world.route(ext={"__ZONE_MODE": "true", "__ZONE_NAME": "WEST"}).body)
    assert [b["brokerName"] for b in near["brokerDatas"]] == ["broker-b"]
    assert [q["brokerName"] for q in near["queueDatas"]] == ["broker-b"]
    for ext in ({"__ZONE_MODE": "false", "__ZONE_NAME": "west"}, {"__ZONE_MODE": "true", "__ZONE_NAME": " "}):
        assert json.loads(world.route(ext=ext).body) == both


def test_not_ready_until_brokers_had_time() -> None:
    world = World(NamesrvConfig(need_wait_for_service=True))
    world.register(0)
    world.clock.advance(44.9)
    refused = world.route()
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    world.clock.advance(0.2)
    assert world.route().code == ResponseCode.SUCCESS


# -- brokers


def test_a_slave_learns_its_master(world: World) -> None:
    assert world.register(0).ext == {}
    slave = world.register(1, addr="10.0.0.2:10911")
    assert slave.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


def test_a_registration_brings_back_the_order_of_topics(world: World) -> None:
    assert world.register(0).body == b""
    world.ask(
        RequestCode.PUT_KV_CONFIG,
        PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"),
    )
    assert world.register(0).body == b'{"table":{"T":"broker-a:4"}}'
    set_config(world, "returnOrderTopicConfigToBroker=false")
    assert world.register(0).body == b""


def test_a_damaged_registration_changes_nothing(world: World) -> None:
    answer = world.register(0, body_crc32=12345)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    answer = world.register(0, body=registration("T:4:8"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    assert world.topics() == []


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b'{"topicConfigSerializeWrapper":7}'])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_that_cannot_be_read_is_refused(world: World, body: bytes, compressed: bool) -> None:
    with pytest.raises(ProtocolError):
        world.register(0, body=body, compressed=compressed)
    assert world.topics() == []


def test_a_missing_field_is_named(world: World) -> None:
    with pytest.raises(InvalidHeaderError, match="topic"):
        world.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)


def test_goodbye_and_broken_connections(world: World) -> None:
    first, second = Connection(5), Connection(6)
    world.register(0, connection=first)
    world.register(0, name="broker-b", addr="10.0.0.3:10911", connection=second, body=registration("V:1:1", "W:1:1"))
    world.server.channel_closed(Connection(77))
    gone = UnRegisterBrokerRequestHeader(
        broker_name="broker-b", broker_addr="10.0.0.3:10911", cluster_name="DefaultCluster", broker_id=0
    )
    assert world.ask(RequestCode.UNREGISTER_BROKER, gone).code == 0
    assert world.topics() == ["T", "U"]
    world.server.channel_opened(first)
    world.server.channel_closed(first)
    world.server.channel_closed(second)
    assert world.topics() == []


def test_silence_costs_a_broker_its_place(world: World) -> None:
    connection = Connection(5)
    world.register(0, connection=connection)
    world.clock.advance(119)
    world.server.tick()
    assert world.topics() == ["T", "U"] and not connection.closed
    beat = BrokerHeartbeatRequestHeader(
        cluster_name="DefaultCluster", broker_addr="10.0.0.1:10911", broker_name="broker-a"
    )
    assert world.ask(RequestCode.BROKER_HEARTBEAT, beat).code == 0
    world.clock.advance(119)
    world.server.tick()
    assert not connection.closed
    world.clock.advance(2)
    # The scan is due every 5 s.
    world.server.tick()
    assert not connection.closed
    world.clock.advance(3)
    world.server.tick()
    assert world.topics() == [] and connection.closed


def test_brokers_of_one_connection_go_together(world: World) -> None:
    connection = Connection(5)
    world.register(0, connection=connection, timeout_ms=10_000)
    world.register(0, name="broker-b", addr="10.0.0.3:10911", connection=connection)
    world.clock.advance(11)
    world.server.tick()
    assert connection.closed
    world.server.channel_closed(connection)
    assert world.topics() == []


def test_a_data_version_query_is_a_heartbeat(world: World) -> None:
    header = QueryDataVersionRequestHeader(
        broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="DefaultCluster", broker_id=0
    )
    same = b'{"counter":1,"stateVersion":0,"timestamp":5}'

    def query(body: bytes) -> Command:
        return world.ask(RequestCode.QUERY_DATA_VERSION, header, body)

    unknown = query(same)
    assert unknown.ext == {"changed": "true"} and unknown.body == b""
    world.register(0)
    world.clock.advance(100)
    equal = query(same)
    assert equal.ext == {"changed": "false"} and equal.body == same
    world.clock.advance(100)
    world.server.tick()
    assert world.topics() == ["T", "U"]
    assert query(same.replace(b"5", b"6")).ext == {"changed": "true"}
    assert query(b"").ext == {"changed": "true"}


def test_members_are_told_of_a_new_smallest_id() -> None:
    world = World(NamesrvConfig(notify_min_broker_id_changed=True))
    world.register(0, acting=True)
    world.register(1, addr="10.0.0.2:10911", acting=True)
    assert world.told == []
    gone = UnRegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="DefaultCluster", broker_id=0
    )
    world.ask(RequestCode.UNREGISTER_BROKER, gone)
    ((address, command),) = world.told
    assert address == "10.0.0.2:10911" and command.is_oneway
    assert command.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    assert command.ext == {
        "minBrokerId": "1",
        "minBrokerAddr": "10.0.0.2:10911",
        "offlineBrokerAddr": "10.0.0.1:10911",
    }


def test_group_members_and_cluster_info_in_apaches_bytes(world: World) -> None:
    two_brokers(world)
    header = GetBrokerMemberGroupRequestHeader(cluster_name="DefaultCluster", broker_name="broker-a")
    assert world.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header, codec=BINARY).body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
    )
    assert world.ask(RequestCode.GET_BROKER_CLUSTER_INFO, codec=BINARY).body == CLUSTER_INFO


# -- topics


def test_topic_lists(world: World) -> None:
    world.register(0)
    system = world.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert system.body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
    by_cluster = GetTopicsByClusterRequestHeader(cluster="DefaultCluster")
    assert world.ask(RequestCode.GET_TOPICS_BY_CLUSTER, by_cluster).body == b'{"topicList":["T","U"]}'
    for code in (
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        assert world.ask(code).body == b'{"topicList":[]}'


def test_system_topics_of_an_empty_table(world: World) -> None:
    assert world.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body == b'{"topicList":[]}'


def test_lists_can_be_switched_off(world: World) -> None:
    set_config(world, "enableAllTopicList=false\nenableTopicList=false")
    for code in (
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        answer = world.ask(code)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_a_topic_registered_by_itself(world: World) -> None:
    world.register(0)
    queue = b'{"brokerName":"broker-a","perm":6,"readQueueNums":3,"writeQueueNums":3,"topicSysFlag":0}'
    header = RegisterTopicRequestHeader(topic="N")
    assert world.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, b"").code == 0
    assert world.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, b'{"queueDatas":[]}').code == 0
    stranger = b'{"queueDatas":[' + queue.replace(b"broker-a", b"nobody") + b"]}"
    assert world.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, stranger).code == 0
    assert world.topics() == ["T", "U"]
    assert world.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, b'{"queueDatas":[' + queue + b"]}").code == 0
    assert json.loads(world.route("N").body)["queueDatas"][0]["readQueueNums"] == 3


# -- operators


def test_key_values(world: World) -> None:
    put = PutKVConfigRequestHeader(namespace="n", key="k", value="v")
    get = GetKVConfigRequestHeader(namespace="n", key="k")
    both = GetKVListByNamespaceRequestHeader(namespace="n")
    missing = world.ask(RequestCode.GET_KV_CONFIG, get)
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.remark == "No config item, Namespace: n Key: k"
    missing = world.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, both)
    assert (missing.code, missing.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n")
    assert world.ask(RequestCode.PUT_KV_CONFIG, put).code == 0
    assert world.ask(RequestCode.GET_KV_CONFIG, get, codec=BINARY).ext == {"value": "v"}
    assert world.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, both).body == b'{"table":{"k":"v"}}'
    assert world.ask(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="n", key="k")).code == 0
    assert world.ask(RequestCode.GET_KV_CONFIG, get).code == ResponseCode.QUERY_NOT_FOUND
    assert world.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, both).body == b'{"table":{}}'


def set_config(world: World, text: str) -> Command:
    return world.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())


def config_lines(world: World) -> list[str]:
    return world.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode().splitlines()


def test_settings_can_be_read_and_switched(world: World) -> None:
    before = config_lines(world)
    assert before == sorted(before) and "listenPort=9876" in before and "enableTopicList=true" in before
    assert set_config(world, "enableTopicList=false\nwaitSecondsForService=3").code == 0
    after = config_lines(world)
    assert "enableTopicList=false" in after and "waitSecondsForService=3" in after
    assert world.ask(RequestCode.UPDATE_NAMESRV_CONFIG).code == 0


@pytest.mark.parametrize(
    "text",
    [
        "kvConfigPath=/tmp/x",
        "configStorePath=/tmp/x",
        "rocketmqHome=/tmp/x",
        "configBlackList=none",
        "listenPort=1",
        "enableTopicList=false\nkvConfigPath=/tmp/x",
    ],
)
def test_paths_and_addresses_are_never_taken_from_the_wire(world: World, text: str) -> None:
    """CVE-2023-37582: writing a file of the caller's choice by way of the configuration."""
    before = config_lines(world)
    answer = set_config(world, text)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (answer.remark or "").startswith("Can not update config in black list.")
    assert config_lines(world) == before


@pytest.mark.parametrize("text", ["enableTopicList=perhaps", "waitSecondsForService=-1", "noSuchKey=1"])
def test_a_bad_value_is_refused_in_words(world: World, text: str) -> None:
    before = config_lines(world)
    answer = set_config(world, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER and answer.remark
    assert config_lines(world) == before


def test_the_allow_list_holds_switches_and_numbers_only() -> None:
    kinds = {one.kind for one in settings_of(NamesrvConfig) if one.reloadable}
    assert kinds == {bool, int}


def test_changed_settings_are_kept_where_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    world = World(NamesrvConfig(config_store_path=str(path)))
    set_config(world, "supportActingMaster=true")
    assert "supportActingMaster=true\n" in path.read_text()


def test_every_code_of_apaches_name_server_is_served(world: World) -> None:
    # RocketMQ: DefaultRequestProcessor.processRequest, NamesrvController.registerProcessor
    codes = {
        100,
        101,
        102,
        103,
        104,
        105,
        106,
        205,
        206,
        216,
        217,
        219,
        224,
        304,
        311,
        312,
        313,
        318,
        319,
        322,
        327,
    }
    private = {90010, 90011, 90012}
    assert set(world.handlers) == codes | {901, 904} | private


def test_handlers_fit_the_servers_table(world: World) -> None:
    handler: Callable[[Connection, Command], Command | None] = world.handlers[RequestCode.GET_NAMESRV_CONFIG]
    assert handler(Connection(1), request(RequestCode.GET_NAMESRV_CONFIG, opaque=1)) is not None
