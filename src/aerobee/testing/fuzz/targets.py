"""The targets of fuzzing: every reader of bytes from a client, a file, the log or a peer, with inputs that it accepts.

A target returns, or raises one of the exceptions that it declares. Anything else is a fault.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aerobee.admin.pops import read_in_flight
from aerobee.broker.admin.livesettings import settings_in
from aerobee.broker.batches.records import BatchEntry, Kind, decode_plan, entry_draft, read_entry
from aerobee.broker.delay.levels import time_up
from aerobee.broker.delay.timers.checkpoint import TimerCheckpoint
from aerobee.broker.delay.timers.copies import delivered, rolled
from aerobee.broker.delay.timers.entries import TimerEntry, TimerRules, decode_entries, encode_entries, entry_of
from aerobee.broker.delay.timers.handles import decode_handle
from aerobee.broker.delay.timers.ledger import TimerProgress
from aerobee.broker.groupstate.entries import DECODERS
from aerobee.broker.groupstate.records import StateKind, StateRecord, read_state, state_draft
from aerobee.broker.membership.subscriptions import parse_subscription
from aerobee.broker.pop.entries import Key as PopKey
from aerobee.broker.pop.entries import Writer as PopWriter
from aerobee.broker.pop.entries import read_entries
from aerobee.broker.pop.orders import read_info
from aerobee.broker.pop.snapshot import decode_picture, encode_picture
from aerobee.broker.pop.strings import parse_handle, runs_in
from aerobee.broker.pop.table import PopTable
from aerobee.broker.topics.attributes import parse_attributes
from aerobee.broker.transactions.halves import decode_op, half_of
from aerobee.config.properties import decode_text, parse_properties
from aerobee.errors import AerobeeError, CorruptLogError, ProtocolError, RemoteProtocolError
from aerobee.hot.h2 import frames
from aerobee.hot.h2.hpack import HpackDecoder, literal
from aerobee.hot.h2.huffman import decode_huffman, encode_huffman
from aerobee.hot.log.batch import decode_batch, encode_batch
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import (
    VERIFY_NONE,
    VERIFY_RECORD,
    VERIFY_SEALED,
    Record,
    decode_record,
    decode_records,
    encode_records,
    records_size,
)
from aerobee.hot.log.scan import scan_columns, scan_records
from aerobee.hot.log.units import decode_units
from aerobee.hot.wire.frame import scan
from aerobee.hot.wire.pull import scan_json_pull
from aerobee.hot.wire.send import scan_send_properties
from aerobee.model.dialect import DialectError, loads
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.message import from_record
from aerobee.model.producermark import parse_mark
from aerobee.model.quota import parse_quotas
from aerobee.model.route import TopicRouteData
from aerobee.model.sql92.parser import parse as parse_sql
from aerobee.model.topic import TopicConfig
from aerobee.net.http import Gets, HttpRefusedError
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from aerobee.protocol.bodies.lock import LockBatchRequestBody
from aerobee.protocol.bodies.pop import BatchAckMessageRequestBody
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, decode_command, encode_command, request
from aerobee.protocol.connection import Connection
from aerobee.protocol.greeting import Greeting
from aerobee.protocol.grpc import GrpcConnection, prefixed
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.registry import REQUEST_HEADERS
from aerobee.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from aerobee.protocol.pulling import read_pull
from aerobee.protocol.sending import decode_send
from aerobee.protocol.v2.calls import PbSendMessageRequest
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import PbMessage, PbResource, PbSystemProperties
from aerobee.replication.classic.frames import ClassicWords, LearnerWords, MasterWords, Reports, encode_head
from aerobee.replication.classic.frames import encode_report as ha_report
from aerobee.replication.classic.incoming import IncomingRecords
from aerobee.runtime.seams import Disk
from aerobee.store.checkpoint import Checkpoint, decode_checkpoint
from aerobee.store.indexfile import decode_header as decode_index_header
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import ConsumerFilterTable
from aerobee.store.metadata.table import MetadataTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.store.queuetable import QueueTable, decode_table
from aerobee.store.segment import scan as scan_segment
from aerobee.store.setaside import SetAside, SetAsideReport, decode_report, encode_report
from aerobee.store.statefile import SENSELESS, seal, unseal
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.fuzz.accesstargets import READERS
from aerobee.testing.recordcases import BytesLog, record_cases
from aerobee.testing.storekit import draft

_LEVELS_MS = [1000, 5000, 10_000]
_RULES = TimerRules(1000, 3_600_000)


@dataclass(frozen=True, slots=True)
class Target:
    """A reader with its sample inputs and the exceptions that it may raise."""

    name: str
    seeds: Sequence[bytes]
    read: Callable[[bytes], object]
    declared: tuple[type[Exception], ...] = ()


def targets() -> list[Target]:
    """Return every target."""
    return [*_wire(), *_access(), *_http2(), *_texts(), *_pop(), *_log(), *_files(), *_replication(), *_monitoring()]


# -- signatures, users and policies


def _access() -> list[Target]:
    return [Target(name, seeds, read, declared) for name, seeds, read, declared in READERS]


# -- what a connection of gRPC brings


def _http2() -> list[Target]:
    block = b"\x83\x86" + literal(b":path", b"/s/Call") + literal(b"content-type", b"application/grpc")
    indexed = b"\x3f\xe1\x1f\x40\x01\x61\x81\x07\xbe"
    head = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
    split = frames.frame(frames.HEADERS, 0, 1, block[:9]) + frames.frame(
        frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]
    )
    rest = frames.frame(frames.DATA, frames.END_STREAM, 1, prefixed(b"message"))
    odd = b"".join(
        (
            frames.frame(frames.PING, 0, 0, bytes(8)),
            frames.frame(frames.WINDOW_UPDATE, 0, 1, frames.word(9)),
            frames.frame(frames.RST_STREAM, 0, 1, frames.word(8)),
            frames.frame(frames.PRIORITY, 0, 3, bytes(5)),
            frames.frame(frames.GOAWAY, 0, 0, bytes(8)),
        )
    )
    begin = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x09")

    properties = PbSystemProperties(tag="T", keys=["k"], message_id="01", queue_offset=-1)
    sent = PbSendMessageRequest([PbMessage(PbResource("", "orders"), {"k": "v"}, properties, b"body")])

    def connection(data: bytes) -> None:
        # Most changes of the first frame only end the connection: the others begin behind it.
        for start in (b"", begin):
            machine = GrpcConnection()
            for event in machine.receive(start + data, 1.0):
                machine.answer(event.call, b"answer")
            for piece in (data[:5], data[5:]):
                machine.receive(piece, 2.0)
            machine.http.drain()
            machine.http.output()

    return [
        Target("huffman text", [encode_huffman(b"www.example.com"), b""],
               lambda data: decode_huffman(data, 0, len(data)), (RemoteProtocolError,)),
        Target("hpack block", [block, indexed, indexed + block],
               lambda data: HpackDecoder(16_384).decode(data), (RemoteProtocolError,)),
        Target("protobuf", [encode(sent)], lambda data: encode(decode(PbSendMessageRequest, data)),
               (RemoteProtocolError,)),
        Target("grpc connection", [begin + head + rest, head + rest, head + odd, split + rest + odd], connection),
    ]  # fmt: skip


# -- what a connection brings


def _frames() -> list[bytes]:
    """Return one frame of each request, in both codecs where the code fits."""
    send = SendMessageRequestHeaderV2(
        producer_group="shop", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
        sys_flag=0, born_timestamp=1_700_000_000_000, flag=0, properties="TAGS\x01PAID\x02UNIQ_KEY\x017F0000\x02",
        reconsume_times=0, unit_mode=False, batch=False,
    )  # fmt: skip
    old = SendMessageRequestHeader(
        producer_group="shop", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
        sys_flag=0, born_timestamp=1, flag=0, properties="KEYS\x0142\x02", reconsume_times=0,
    )  # fmt: skip
    pull = PullMessageRequestHeader(
        consumer_group="billing", topic="orders", queue_id=0, queue_offset=7, max_msg_nums=32, sys_flag=6,
        commit_offset=3, suspend_timeout_millis=15_000, subscription="PAID || OPEN", sub_version=1,
        expression_type="TAG",
    )  # fmt: skip
    frames = []
    for codec in (0, 1):
        for code, header in (
            (RequestCode.SEND_MESSAGE_V2, send),
            (RequestCode.SEND_MESSAGE, old),
            (RequestCode.PULL_MESSAGE, pull),
        ):
            frames.append(encode_command(request(code, header, b"body", opaque=7, codec=codec)))
        frames.append(encode_command(Command(RequestCode.HEART_BEAT, 9, 0, {}, b'{"clientID":"c"}', codec=codec)))
    return frames


def _read_frames(data: bytes) -> None:
    frames, _, _ = scan(data, 0)
    for frame in frames:
        try:
            decode_command(frame)
        except ProtocolError:
            continue


def _read_send(data: bytes) -> None:
    for frame in scan(data, 0)[0]:
        try:
            decode_send(frame)
        except ProtocolError:
            continue


def _read_pull(data: bytes) -> None:
    for frame in scan(data, 0)[0]:
        try:
            if scan_json_pull(frame) is None:
                read_pull(frame)
        except ProtocolError:
            continue


def _read_in_chunks(data: bytes) -> None:
    connection = Connection()
    third = len(data) // 3
    for chunk in (data[:third], data[third : 2 * third], data[2 * third :]):
        connection.receive_data(chunk)


def _read_greeting(data: bytes) -> None:
    greeting = Greeting()
    half = len(data) // 2
    if greeting.receive_data(data[:half]) is None:
        greeting.receive_data(data[half:])


def _read_headers(data: bytes) -> None:
    """Give the same fields to every request's header."""
    ext = {}
    for pair in data.decode("utf-8", "replace").split(";"):
        name, _, value = pair.partition("=")
        ext[name] = value
    headers = list(REQUEST_HEADERS.values())
    for cls in (headers[len(data) % len(headers)], headers[len(data) * 7 % len(headers)]):
        try:
            decode_header(cls, ext)
        except ProtocolError:
            continue


def _wire() -> list[Target]:
    heartbeat = HeartbeatData(
        "c@1", (ProducerData("shop"),),
        (ConsumerData("billing", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET",
                      (SubscriptionData("orders", "PAID || OPEN", ("PAID", "OPEN"), (1, 2), 1),)),),
    )  # fmt: skip
    frames = _frames()
    v1 = b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 2000\r\n" + frames[0]
    v2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(range(12)) + frames[0]
    fields = b"topic=orders;queueId=1;consumerGroup=billing;offset=12;group=g;timestamp=1;maxMsgNums=32;key=k;a=1;b=t"
    batch = encode_batch([(0, b"one", b"TAGS\x01a\x02"), (1, b"two", b"")])
    return [
        Target("frames", frames, _read_frames),
        Target("frames in chunks", frames, _read_in_chunks, (RemoteProtocolError,)),
        Target("sends", frames, _read_send),
        Target("pulls", frames, _read_pull),
        Target("greeting", [v1, v2, frames[0], b"\x16\x03\x01"], _read_greeting, (RemoteProtocolError,)),
        Target("headers", [fields], _read_headers),
        Target("heartbeat", [heartbeat.encode()], HeartbeatData.decode, (DialectError,)),
        Target("lock body", [b'{"clientId":"c","consumerGroup":"g","mqSet":'
                             b'[{"brokerName":"a","queueId":0,"topic":"t"}]}'],
               LockBatchRequestBody.decode, (DialectError,)),
        Target("batch of sends", [batch], lambda data: decode_batch(data, 10_000), (AerobeeError,)),
        Target("plan of a sink", [b'{"id":"p","groups":{"broker-a":{"attempt":3}}}'], decode_plan,
               (ValueError, AerobeeError)),
        Target("route", [b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"a","cluster":"c"}],'
                         b'"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,'
                         b'"topicSysFlag":0,"writeQueueNums":4}]}'],
               lambda data: TopicRouteData.from_json(_object(data)), (DialectError,)),
    ]  # fmt: skip


def _object(data: bytes) -> dict[str, object]:
    value = loads(data)
    if not isinstance(value, dict):
        raise DialectError("not an object")
    return value


# -- texts


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def _texts() -> list[Target]:
    properties = b"TAGS\x01PAID\x02KEYS\x01a b\x02UNIQ_KEY\x017F00\x02WAIT\x01true\x02DELAY\x013\x02user\x01value\x02"
    sql = [
        b"a > 1 AND b IN ('x', 'y') OR c IS NOT NULL", b"price BETWEEN 1.5 AND 2e3 AND NOT (d = TRUE)",
        b"name CONTAINS 'x' AND k NOT IN ('1') AND -5 <= z",
    ]  # fmt: skip
    json_seeds = [
        b'{"a":[1,2.5,-3e4,"x\\u0041",null,true,{"b":{}}],"c":""}', b'{1:10,"brokerAddrs":{0:"h:1"}}',
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"o":1}}}', b'[{"a":1},[[]]]',
    ]  # fmt: skip
    conf = [b"# c\nbrokerName = a\\\n b\nkey:value\n\\u0041=1\n", b"a=b\r\n!x\n"]
    return [
        Target("properties", [properties], decode_properties),
        Target("properties of a send", [properties], scan_send_properties),
        Target("JSON", json_seeds, loads, (DialectError,)),
        Target("SQL92", sql, _text(parse_sql), (AerobeeError,)),
        Target("subscription", [b"PAID || OPEN", b"*", b"a||b||c"], _text(_subscription), (AerobeeError,)),
        Target("attributes", [b"+message.type=FIFO,-x", b"+a=b"], _text(parse_attributes), (AerobeeError,)),
        Target("topic line", [b"orders 4 4 6 SINGLE_TAG", b'a 1 1 6 MULTI_TAG {"+a":"b"}'],
               _text(TopicConfig.from_text), (AerobeeError, ValueError)),
        Target("offset id", [b"7F00000100002A9F0000000000000123"], _text(decode_offset_message_id), (AerobeeError,)),
        Target("producer mark", [b"00112233aabbccdd:17"], _text(parse_mark)),
        Target("recall handle", [b"djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgN0YwMA=="], _text(decode_handle)),
        Target("conf file", conf, lambda data: parse_properties(decode_text(data)), (AerobeeError,)),
    ]  # fmt: skip


def _subscription(text: str) -> object:
    return parse_subscription("orders", text)


# -- the log


def _pop() -> list[Target]:
    key = PopKey("orders", "billing", 3)
    writer = PopWriter()
    writer.take(key, 1_000, 61_000, 5, 40, range(8, 40))
    writer.take(key, 1_001, 61_000, 40, 44, (40, 43))
    writer.ack(key, 1_000, 9, 1)
    writer.change(key, 1_000, 10, 70_000, suspend=True)
    writer.done(key, (13,), 2_000)
    writer.reset(key, 7, 3_000)
    writer.order(key, b'{"c":5,"o":{"a":"x","cm":1,"i":8000,"l":1,"o":[5,1],"popTime":9}}', 3_000)
    writer.forget(topic="orders", now_ms=4_000)
    table = PopTable()
    window = table.window(key, 3)
    table.take(window, 3, 9, (3, 5, 8), 1_000, 2_000)
    table.ack(window, 12, 1_000)
    window.spread()
    table.take(window, 9, 12, range(9, 12), 1_500, 2_000)
    picture = b"".join(encode_picture(table, 17))
    acks = b'{"acks":[{"b":"Bg==","c":"G","it":6000,"pt":1,"q":0,"r":"1","rq":0,"so":0,"t":"T"}],"brokerName":"b"}'
    answer = Command(0, 1, 1, body=b'{"queues":[{"topic":"T","group":"G","queueId":0,"messages":[[1,2,3]]}]}')
    return [
        Target("POP journal", [writer.body()], lambda data: list(read_entries(data)), (ValueError,)),
        Target("POP picture", [picture], decode_picture, (ValueError, AerobeeError)),
        Target("POP handle", [b"0 1794799288586 15000 2 0 broker-a 1 0 383"], _text(parse_handle), (AerobeeError,)),
        Target("batch acknowledgement", [acks], _read_acks, (DialectError,)),
        Target("order info", [b'{"a":"x","cm":1,"i":8,"l":1,"o":[5,1],"oc":{5:1},"ot":{6:9},"popTime":9}'], _read_order,
               (ValueError, DialectError)),
        Target("what is in flight", [answer.body], lambda data: read_in_flight(replace(answer, body=data), "b"),
               (AerobeeError,)),
    ]  # fmt: skip


def _read_acks(data: bytes) -> object:
    return [runs_in(one.set_bits(), one.start_offset) for one in BatchAckMessageRequestBody.decode(data).acks]


def _read_order(data: bytes) -> object:
    return read_info(loads(data)).offsets()


def _records() -> list[bytes]:
    return [
        encode_records(drafts, 0, 1_700_000_000_000, with_crc)
        for with_crc in (False, True)
        for name, drafts in record_cases().items()
        if name != "large"
    ]


def _state_bodies() -> list[bytes]:
    entries: dict[str, dict[str, Any]] = {
        "topics": {"orders": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}},
        "groups": {"billing": {"retryMaxTimes": 3}},
        "offsets": {"orders@billing": {"0": 17}},
        "locks": {"billing@orders@0@broker-a": ["client", 6000]},
        "filters": {"orders@billing": ["a > 1", "SQL92", 1, 2, 3]},
        "progress": {"delays": {"1": 3}, "timers": TimerProgress(5, 6, {7: 8}).to_json()},
        "numbers": {"orders@1": 99},
    }
    said = [StateRecord(StateKind.CHANGE, entries), StateRecord(StateKind.DELETE, topics=("orders",))]
    return [state_draft(one, bytes(8), 1).body for one in said]


def _read_state(body: bytes) -> None:
    said = read_state(_record(state_draft(StateRecord(StateKind.CHANGE), bytes(8), 1).properties, body))
    for name, found in said.entries.items():
        for key, value in found.items() if name in DECODERS else ():
            with contextlib.suppress(*SENSELESS):
                DECODERS[name](key, value)


def _record(properties: bytes, body: bytes = b"body") -> Record:
    host = bytes(8)
    return Record(0, 0, 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, body, b"orders", properties)


def _read_messages(data: bytes) -> None:
    for record in decode_records(data, VERIFY_NONE):
        from_record(record, "broker-a")


def _read_segment(data: bytes) -> None:
    for _ in scan_segment(BytesLog(data), 0, len(data), delay_levels_ms=_LEVELS_MS):
        pass


def _log() -> list[Target]:
    records = _records()
    entry = BatchEntry(Kind.ROWS, "query", 3, "attempt", 1, 2, "orders", 0, 1 << 62)
    batch = entry_draft(entry, b"rows", 0, bytes(8), bytes(8)).properties
    timed = b"TIMER_OUT_MS\x011700000000000\x02TIMER_DELAY_SEC\x0130\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
    timers = encode_entries([TimerEntry(n, n, n, n, 100, 0) for n in range(4)])
    return [
        Target("record", records, lambda data: decode_record(data, 0, VERIFY_RECORD), (CorruptLogError,)),
        Target("records as messages", records, _read_messages, (AerobeeError,)),
        Target("scan of records", records, lambda data: scan_records(data, 0, VERIFY_SEALED, 0, _LEVELS_MS)),
        Target("scan of columns", records, lambda data: scan_columns(data, 0, VERIFY_NONE)),
        Target("scan of a segment", [one + records[0] for one in records], _read_segment),
        Target("queue units", [bytes(range(20)) * 3], decode_units),
        Target(
            "timed message",
            [timed],
            lambda data: entry_of(5, 100, 200, 1_700_000_000_000, data, _RULES),
            (AerobeeError,),
        ),
        Target("delivery of a timed message", [timed], lambda data: delivered(_record(data), -1, 1), (AerobeeError,)),
        Target("timed message once more", [timed], lambda data: rolled(_record(data), -1, 1)),
        Target("delivery of a delayed message", [timed], lambda data: time_up(_record(data), -1), (AerobeeError,)),
        Target("half message", [timed], lambda data: half_of(_record(data)), (AerobeeError,)),
        Target("timer journal", [timers], decode_entries),
        Target("op message", [b"1,2,3,", b"17"], decode_op, (AerobeeError,)),
        Target("batch record", [batch], lambda data: read_entry(_record(data))),
        Target("record of the group state", _state_bodies(), _read_state, (AerobeeError,)),
    ]


def _monitoring() -> list[Target]:
    """Return what asks the port for monitoring, and what sets quotas."""
    get = b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip;q=0.5\r\nConnection: close\r\n\r\n"
    return [
        Target("a request for metrics", [get, get + get[:20], b"GET / HTTP/1.0\r\n\r\n"], _get, (HttpRefusedError,)),
        Target(
            "quotas", [b"user:alice bytes=1000 messages=5; topic:* messages=1"],
            lambda data: parse_quotas(data.decode("utf-8", "replace")), (AerobeeError,),
        ),
    ]  # fmt: skip


def _get(data: bytes) -> None:
    gets = Gets()
    gets.receive(data)
    while gets.next() is not None:
        pass


# -- files


def _files() -> list[Target]:
    table = QueueTable(position=100, last=(0, 100, 5), queues={("orders", 0): (0, 0, 1)}).encode()
    progress = TimerProgress(rescan_from=0).encode()
    asides = encode_report(SetAsideReport((SetAside("timers", "no place", "T", 0, 1, 2, 3),), {"timers": 1}))
    disk = RecordingDisk()
    return [
        Target("checkpoint", [Checkpoint().encode(), bytes(range(48))], decode_checkpoint),
        Target("index header", [bytes(40), bytes(range(40))], lambda data: decode_index_header(data.ljust(40, b"\0"))),
        Target("queue table", [table], decode_table, _STATE_ERRORS),
        Target("records set aside", [asides], decode_report, (ValueError,)),
        Target("timer progress", [progress], TimerProgress.decode, _STATE_ERRORS),
        Target("seal", [seal(b'{"a":1}'), b"{}"], unseal, (ValueError,)),
        Target("settings kept", [b'{"settings":{"brokerPermission":"4"}}'], settings_in, _STATE_ERRORS),
        *(_table(cls, disk, seeds) for cls, seeds in _TABLES),
    ]


_TABLES: tuple[tuple[Callable[[Disk, str], MetadataTable], list[object]], ...] = (
    (TopicTable, [{"dataVersion": {"counter": 1}, "topicConfigTable": {
        "orders": {"order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG",
                   "topicName": "orders", "topicSysFlag": 0, "writeQueueNums": 4}}}]),
    (GroupTable, [{"forbiddenTable": {"g": {"orders": 1}}, "subscriptionGroupTable": {
        "g": {"groupName": "g", "retryMaxTimes": 16, "consumeEnable": True}}}]),
    (ConsumerOffsetTable, [{"offsetTable": {"orders@g": {"0": 12, "1": 3}}}]),
    (DelayOffsetTable, [{"offsetTable": {"1": 12}, "rescanFrom": 5}]),
    (ConsumerFilterTable, [{"filterDataByTopic": {"orders": {"topic": "orders", "groupFilterData": {
        "g": {"consumerGroup": "g", "expression": "a > 1", "expressionType": "SQL92", "topic": "orders"}}}}}]),
)  # fmt: skip


def _table(cls: Callable[[Disk, str], MetadataTable], disk: Disk, seeds: list[object]) -> Target:
    def read(data: bytes) -> None:
        cls(disk, "/store").decode(_object(data))

    name = getattr(cls, "file_name", "state file")
    return Target(name, [json.dumps(seed).encode() for seed in seeds], read, _STATE_ERRORS)


# -- what masters and slaves say


def _replication() -> list[Target]:
    drafts = [draft(b"body")]
    records_size(drafts, True, 1024)
    record = encode_records(drafts, 0, 1_700_000_000_000, True, True)
    classic = encode_head(0, len(record)) + record + encode_head(len(record), 0)
    greeting = struct.pack(">iiqiiq", 1, 12, len(record), 1, 1, 0)
    learner = greeting + struct.pack(">iiqiqq", 2, len(record), 0, 1, 0, 0) + record
    return [
        Target("reports of a slave", [ha_report(5) * 3, bytes(11)], lambda data: Reports().feed(data)),
        Target("a classic master", [classic], lambda data: _follow(ClassicWords(), data), (AerobeeError,)),
        Target("a master with a controller", [learner], lambda data: _follow(LearnerWords(1), data), (AerobeeError,)),
        Target("timer checkpoint", [TimerCheckpoint(1, 2).encode()], TimerCheckpoint.decode, (AerobeeError,)),
    ]


def _follow(words: MasterWords, data: bytes) -> None:
    incoming = IncomingRecords(0, 1 << 20)
    for transfer in words.feed(data):
        incoming.feed(transfer.offset, transfer.data)


# The exceptions by which `StateFile.load` tells that content makes no sense.
_STATE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, AerobeeError)
