"""Every violation of what a send must obey, by every way a send can come: one answer, and nothing stored.

The ways: the first and the second version of the request, a batch of one, one-way; a JSON and a binary header; with and
without a property that the broker acts upon, which leads away from the short way through the broker.
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.hot.log.batch import encode_batch
from aerobee.protocol.codes import BINARY, JSON, RequestCode, ResponseCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.connection import Connection
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.offset import GetMaxOffsetRequestHeader
from aerobee.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.testing.cluster import LocalCluster

BODY_MAX = 65_536
ILLEGAL, FORBIDDEN, WRONG = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER
PROTECTED = (
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer",
    "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "rmq_sys_AEROBEE_BATCH", "rmq_sys_AEROBEE_STATE",
    "rmq_sys_REVIVE_LOG_LocalCluster",
)  # fmt: skip


class Wire:
    """One connection to a broker, byte for byte."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._machine = Connection()
        self._opaques = itertools.count(1)

    def close(self) -> None:
        self._socket.close()

    def call(self, command: Command) -> Command:
        """The answer; to a one-way request the answer to what is asked after it, which must be the only one."""
        command.opaque = next(self._opaques)
        last = command.opaque
        frames = encode_command(command)
        if command.is_oneway:
            behind = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="gate", queue_id=0), opaque=0)
            last = behind.opaque = next(self._opaques)
            frames += encode_command(behind)
        self._socket.sendall(frames)
        answers: list[Command] = []
        while not answers:
            answers = self._machine.receive_data(self._socket.recv(1 << 16))
        assert [answer.opaque for answer in answers] == [last]
        return answers[0]

    def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return self.call(request(code, header, body, opaque=0))

    def log_end(self) -> int:
        table = json.loads(self.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        return int(table["commitLogMaxOffset"])

    def make_topic(self, topic: str, *, perm: int = 6, queues: int = 4, attributes: str = "") -> None:
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes=attributes or None,
        )  # fmt: skip
        answer = self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert answer.code == 0, answer.remark


@dataclass(frozen=True)
class Sent:
    """A message, as any way can carry it."""

    topic: str = "gate"
    queue_id: int = 0
    sys_flag: int = 0
    body: bytes = b"body"
    properties: dict[str, str] = field(default_factory=lambda: {"UNIQ_KEY": "K" * 32})
    # Appended as it is.
    tail: str = ""


@dataclass(frozen=True)
class Way:
    """How it is carried."""

    code: int
    codec: int
    oneway: bool = False
    slow: bool = False
    batch: bool = False

    def __str__(self) -> str:
        kind = "batch" if self.batch else "V1" if self.code == RequestCode.SEND_MESSAGE else "V2"
        return f"{kind} {'JSON' if self.codec == JSON else 'binary'}{' long' * self.slow}{' one-way' * self.oneway}"

    def carry(self, sent: Sent) -> Command:
        properties = dict(sent.properties)
        if self.slow:
            properties["REPLY_TO_CLIENT"] = "c"
        block = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()) + sent.tail
        body = sent.body
        if self.batch:
            # Its length is a short: a longer one cannot be said.
            body, block = encode_batch([(0, body, block.encode()[:32_767])]), "UNIQ_KEY\x01B\x02"
        form = SendMessageRequestHeader if self.code == RequestCode.SEND_MESSAGE else SendMessageRequestHeaderV2
        header = form(
            producer_group="P", topic=sent.topic, default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=sent.queue_id, sys_flag=sent.sys_flag, born_timestamp=1, flag=0, properties=block,
            batch=self.batch,
        )  # fmt: skip
        return request(self.code, header, body, opaque=0, oneway=self.oneway, codec=self.codec)


WAYS = [
    Way(code, codec, oneway, slow, batch)
    for code, batch in (
        (RequestCode.SEND_MESSAGE, False),
        (RequestCode.SEND_MESSAGE_V2, False),
        (RequestCode.SEND_BATCH_MESSAGE, True),
        (RequestCode.SEND_MESSAGE, True),
    )
    for codec in (JSON, BINARY)
    for oneway in (False, True)
    for slow in (False, True)
]


def with_properties(sent: Sent, **properties: str) -> Sent:
    return replace(sent, properties={**sent.properties, **properties})


# What is done to a message, and the answer. Where several are done, the first of this order is answered.
VIOLATIONS = {
    **{f"topic {topic}": (lambda sent, topic=topic: replace(sent, topic=topic), FORBIDDEN) for topic in PROTECTED},
    **{
        f"topic {topic[:10]!r}": (lambda sent, topic=topic: replace(sent, topic=topic), WRONG)
        for topic in ("a/b", "..", "a\0b", "a\nb", " ", "\u20ac", "a+b", "t" * 128, "t" * 4_000, "%RETRY%" + "g" * 249)
    },
    **{
        f"sysFlag {flag:#x}": (lambda sent, flag=flag: replace(sent, sys_flag=flag), ILLEGAL)
        for flag in (0x40, 0x80, 0xC0, 0x4, 0xC, 0x3C1, 0xC | 0x80)
    },
    "no body": (lambda sent: replace(sent, body=b""), ILLEGAL),
    "large body": (lambda sent: replace(sent, body=b"x" * (BODY_MAX + 1)), ILLEGAL),
    "long properties": (lambda sent: with_properties(sent, large="v" * 32_700), ILLEGAL),
    "properties that leave the broker no room": (lambda sent: with_properties(sent, large="v" * 31_900), ILLEGAL),
    "many properties": (
        lambda sent: replace(sent, properties={**sent.properties, **{f"p{i:05}": "v" for i in range(3_600)}}),
        ILLEGAL,
    ),
    "a long unique key": (lambda sent: with_properties(sent, UNIQ_KEY="k" * 16_000), ILLEGAL),
    "INNER_NUM": (lambda sent: with_properties(sent, INNER_NUM="5"), ILLEGAL),
    "lite topic": (lambda sent: with_properties(sent, __LITE_TOPIC="x"), ResponseCode.SYSTEM_ERROR),
    "no right to write": (lambda sent: replace(sent, topic="gate-closed"), FORBIDDEN),
    "queue 4": (lambda sent: replace(sent, queue_id=4), WRONG),
    "queue 2^31-1": (lambda sent: replace(sent, queue_id=2**31 - 1), WRONG),
}


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with LocalCluster(settings={"maxMessageSize": str(BODY_MAX), "brokerFastFailureEnable": "false"}) as cluster:
        wire = Wire(cluster.broker_address(0))
        wire.make_topic("gate")
        wire.make_topic("gate-closed", perm=4)
        yield wire
        wire.close()


def refused(wire: Wire, sent: Sent, expected: int | None = None) -> int:
    """Send by every way; the one code that all of them answer."""
    before = wire.log_end()
    codes = {str(way): wire.call(way.carry(sent)).code for way in WAYS if not way.oneway}
    assert len(set(codes.values())) == 1, codes
    for way in WAYS:
        if way.oneway:
            wire.call(way.carry(sent))
    assert wire.log_end() == before, "something was stored"
    code = codes.popitem()[1]
    assert code != 0
    assert expected is None or code == expected
    return code


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_refused_alike_by_every_way_and_nothing_is_stored(wire: Wire, name: str) -> None:
    change, code = VIOLATIONS[name]
    refused(wire, change(Sent()), code)


benign = st.builds(
    Sent,
    queue_id=st.sampled_from([-1, 0, 3]),
    sys_flag=st.sampled_from([0, 1, 2, 8, 0x301, 0x10000]),
    body=st.binary(min_size=1, max_size=20),
    properties=st.fixed_dictionaries(
        {},
        optional={
            "UNIQ_KEY": st.just("K" * 32), "TAGS": st.just("t"), "KEYS": st.sampled_from(["k", "k l", " "]),
            "WAIT": st.sampled_from(["true", "false"]), "user": st.text("aé", max_size=40), "CLUSTER": st.just("x"),
            "__CRC32#": st.just("1"), "POP_CK": st.just("1"), "MSG_TYPE": st.just("x"),
        },
    ),
    tail=st.sampled_from(["", "x", "x\x01", "\x02\x02", "TAGS\x01a\x02TAGS\x01b"]),
)  # fmt: skip


@settings(max_examples=120)
@given(benign, st.lists(st.sampled_from(sorted(VIOLATIONS)), min_size=1, max_size=3, unique=True))
def test_any_mixture_of_violations_is_refused_alike_by_every_way(wire: Wire, sent: Sent, names: list[str]) -> None:
    for name in names:
        sent = VIOLATIONS[name][0](sent)
    if "no key" in names and sent.properties.get("KEYS", "").strip() and len(names) == 1:
        return  # it has one
    refused(wire, sent)


@settings(max_examples=60)
@given(benign)
def test_what_violates_nothing_is_taken_by_every_way(wire: Wire, sent: Sent) -> None:
    codes = {str(way): wire.call(way.carry(sent)).code for way in WAYS}
    assert set(codes.values()) == {0}, codes


def test_a_batch_is_taken_whole_or_not_at_all(wire: Wire) -> None:
    way = Way(RequestCode.SEND_BATCH_MESSAGE, JSON, batch=True)
    good = (0, b"x", b"UNIQ_KEY\x01K\x02")
    before = wire.log_end()
    for body in (
        encode_batch([good, (0, b"", good[2])]),
        encode_batch([good, (0, b"x", b"INNER_NUM\x015\x02")]),
        encode_batch([good, (0, b"x", b"large\x01" + b"v" * 31_900)]),
        encode_batch([good, (0, b"x", b"large\x01" + b"\xff" * 11_000)]),
        encode_batch([(0, b"x", b"")] * 10_001)[:BODY_MAX],
        b"\0" * 21,
    ):
        command = way.carry(Sent())
        command.body = body
        assert wire.call(command).code == ILLEGAL
    assert wire.log_end() == before


def test_a_refused_send_makes_no_topic(wire: Wire) -> None:
    for change in (
        lambda sent: replace(sent, sys_flag=0xC0),
        lambda sent: replace(sent, body=b""),
        lambda sent: replace(sent, queue_id=9),
        lambda sent: with_properties(sent, large="v" * 32_000),
    ):
        refused(wire, change(Sent(topic="gate-unborn")))
    table = json.loads(wire.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    assert "gate-unborn" not in table


def test_a_broker_without_the_right_to_write_refuses_every_send(wire: Wire) -> None:
    assert wire.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4").code == 0
    try:
        refused(wire, Sent(), FORBIDDEN)
    finally:
        assert wire.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6").code == 0
    assert wire.call(WAYS[0].carry(Sent())).code == 0
