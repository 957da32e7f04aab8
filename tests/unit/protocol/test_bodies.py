"""Bodies: declared fields, absent ones at their default, faults named."""

import dataclasses
import importlib
import pkgutil
import zlib
from typing import Any

import pytest

import aerobee.protocol.bodies as package
from aerobee.broker.pop.strings import runs_in
from aerobee.errors import RemoteProtocolError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import DialectError, loads_object
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.bodies.cluster import BrokerMemberGroup, KVTable
from aerobee.protocol.bodies.groups import GroupList
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from aerobee.protocol.bodies.lock import LockBatchResponseBody
from aerobee.protocol.bodies.offsets import (
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    ResetOffsetBody,
)
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.bodies.statictopic import TopicQueueMappingInfo
from aerobee.protocol.bodies.topics import TopicConfigAndMappingSerializeWrapper, TopicConfigSerializeWrapper


def all_bodies() -> list[Any]:
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Body) and value is not Body:
                found.add(value)
    return sorted(found, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", all_bodies(), ids=lambda cls: cls.__name__)
def test_defaults_survive_and_keys_are_sorted(cls: type[Body]) -> None:
    body = cls()
    assert cls.decode(body.encode()) == body
    assert cls.decode(b"") == body
    names = list(body.to_json())
    assert names == sorted(names)


@pytest.mark.parametrize("cls", all_bodies(), ids=lambda cls: cls.__name__)
def test_a_field_of_the_wrong_kind_is_named(cls: Any) -> None:
    for item in dataclasses.fields(cls):
        name = item.metadata.get("wire") or "".join(
            word if i == 0 else word.capitalize() for i, word in enumerate(item.name.split("_"))
        )
        with pytest.raises(RemoteProtocolError, match=name):
            cls.from_json({name: {"x": 1} if str(item.type).startswith("tuple") else [[]]})


def test_heartbeat_as_apache_writes_it() -> None:
    # Recorded from RemotingSerializable.encode.
    subscription = SubscriptionData("t", "a||b", ("a",), (97,), 5)
    consumer = ConsumerData("cg", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", (subscription,))
    beat = HeartbeatData("cid", (ProducerData("pg"),), (consumer,))
    assert beat.encode() == (
        b'{"clientID":"cid","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"cg","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG",'
        b'"subString":"a||b","subVersion":5,"tagsSet":["a"],"topic":"t"}],"unitMode":false}],'
        b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"pg"}],"withoutSub":false}'
    )
    assert HeartbeatData.decode(beat.encode()) == beat


def test_tables_keyed_by_queue_and_by_number() -> None:
    queue = MessageQueue("t", "b", 3)
    stats = ConsumeStats({queue: OffsetWrapper(5, 2)})
    assert stats.encode() == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:'
        b'{"brokerOffset":5,"consumerOffset":2,"lastTimestamp":0,"pullOffset":0}}}'
    )
    assert ConsumeStats.decode(stats.encode()) == stats and stats.diff_total == 3
    assert ResetOffsetBody.decode(ResetOffsetBody({queue: 5}).encode()).offset_table == {queue: 5}
    assert BrokerMemberGroup.decode(b'{"brokerAddrs":{"0":"a"}}').broker_addrs == {0: "a"}


def test_names_that_are_not_plain_camel_case() -> None:
    locked = LockBatchResponseBody((MessageQueue("t", "b", 0),))
    assert b'"lockOKMQSet":[' in locked.encode()
    assert LockBatchResponseBody.decode(locked.encode()) == locked
    assert KVTable({"a": "b"}).encode() == b'{"table":{"a":"b"}}'
    assert GroupList.decode(b'{"groupList":["a",null]}').group_list == ("a",)


def test_a_time_span_says_its_times_in_words_too() -> None:
    span = QueueTimeSpan(MessageQueue("t", "b", 0), 0, 1500)
    data = span.to_json()
    assert data["maxTimeStampStr"] == "1970-01-01#00:00:01:500"
    assert list(data) == sorted(data) and QueueTimeSpan.from_json(data) == span


def test_acknowledged_offsets_are_bits() -> None:
    ack = BatchAck(start_offset=100, bits=bits_of(100, [100, 103, 116]))
    assert ack.bits == "CQAB" and runs_in(ack.set_bits(), 100) == [(100, 1), (103, 1), (116, 1)]
    assert BatchAck.decode(ack.encode()) == ack
    assert BatchAck(bits=bits_of(0, [])).set_bits() == b""
    with pytest.raises(DialectError):
        BatchAck(bits="!").set_bits()


@pytest.mark.parametrize(
    "text",
    [
        b'{"brokerName":"b","acks":[{"c":"g","t":"t","r":"1","so":7,"q":1,"rq":2,"pt":3,"it":4,"b":"Cw=="}]}',
        b'{"acks":[{"so":true,"q":"7","c":null},null,{"so":1,"so":2,"x":[[{}]]}],"more":{}}',
        b'{"acks":null}',
        b"{}",
        b'{"acks":[{"so":-9223372036854775808}]}',
    ],
)
def test_many_acknowledgements_are_read_the_same_in_both_ways(text: bytes) -> None:
    """What is not in the usual form is read as any body is."""
    assert BatchAckMessageRequestBody.decode(text) == BatchAckMessageRequestBody.from_json(loads_object(text))


@pytest.mark.parametrize(
    "text",
    [
        b"[]", b"null", b"1", b"{", b'{"acks":[{"so":1.5}]}', b'{"acks":[{"so":1.0}]}', b'{"acks":[{"so":"x"}]}',
        b'{"acks":[{"so":9223372036854775808}]}', b'{"acks":[{"so":%s}]}' % (b"9" * 5_000), b'{"acks":[{"c":[7]}]}',
        b'{"acks":[{"c":"\\ud800"}]}', b'{"acks":[{"c":"\xff"}]}', b'{"acks":%s}' % (b"[" * 5_000 + b"]" * 5_000),
    ],
)  # fmt: skip
def test_acknowledgements_that_cannot_be_read_are_refused(text: bytes) -> None:
    with pytest.raises(DialectError):
        BatchAckMessageRequestBody.decode(text)


TOPICS = {
    "tt": TopicConfig("tt", attributes={"+message.type": "DELAY"}),
    "uu": TopicConfig("uu", 4, 4, 2, order=False),
}
REGISTER = RegisterBrokerBody(
    TopicConfigAndMappingSerializeWrapper(
        TOPICS, DataVersion(3, 5, 0), {"tt": TopicQueueMappingInfo("tt", total_queues=4, curr_id_map={0: 1})}
    ),
    ("f1",),
)


def test_register_body_survives_both_forms() -> None:
    assert RegisterBrokerBody.decode(REGISTER.encode()) == REGISTER
    plain = RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(TOPICS))
    assert plain.encode() == Body.encode(plain) and RegisterBrokerBody.decode(plain.encode()) == plain
    assert RegisterBrokerBody.decode_compressed(REGISTER.encode_compressed(), 513) == REGISTER
    old = RegisterBrokerBody.decode_compressed(REGISTER.encode_compressed(), 400)
    assert old.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}


def test_a_register_body_that_lies_is_refused() -> None:
    plain = zlib.decompress(REGISTER.encode_compressed())
    for bad in (
        b"",
        b"junk",
        zlib.compress(plain[:-5]),
        zlib.compress(b"\x7f\xff\xff\xff"),
        zlib.compress(b"\xff" * 8),
    ):
        with pytest.raises(RemoteProtocolError):
            RegisterBrokerBody.decode_compressed(bad, 513)


def test_a_register_body_that_swells_is_refused() -> None:
    swollen = zlib.compress(bytes(65 << 20), 1)
    with pytest.raises(RemoteProtocolError, match="inflates beyond"):
        RegisterBrokerBody.decode_compressed(swollen, 513)


def test_the_topic_table_takes_the_fast_writer_and_looks_the_same() -> None:
    wrapper = TopicConfigSerializeWrapper(TOPICS, DataVersion(1, 2, 3))
    assert wrapper.encode() == Body.encode(wrapper)
    assert TopicConfigSerializeWrapper.decode(wrapper.encode()) == wrapper
