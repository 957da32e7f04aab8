"""The short way of gRPC sends and acknowledgements asks the broker what the long way asks, or leaves the call to it."""

from __future__ import annotations

import random

import pytest

from aerobee.errors import AerobeeError
from aerobee.hot.log.host import encode_host
from aerobee.hot.log.layout import COMPRESSED
from aerobee.hot.log.record import Record
from aerobee.hot.wire.frame import scan_frames
from aerobee.hot.wire.grpcmessage import received
from aerobee.hot.wire.grpcsend import (
    AckForm,
    SendForm,
    ack_answer,
    queue_offset_of,
    scan_grpc_ack,
    scan_grpc_send,
    send_answer,
)
from aerobee.hot.wire.protobuf import varint
from aerobee.model.compression import CompressionType, compress
from aerobee.model.sysproperties import RESERVED
from aerobee.protocol.codes import BINARY, LANGUAGE, LANGUAGE_CODES, VERSION, RequestCode
from aerobee.protocol.command import Command, decode_command, encode_command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pop import AckMessageRequestHeader
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.calls import PbAckMessageEntry, PbAckMessageRequest, PbSendMessageRequest
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import PbDigest, PbDuration, PbMessage, PbResource, PbSystemProperties, PbTimestamp
from aerobee.proxy.delivered import Deliveries, Receipt, parse_handle, pb_message
from aerobee.proxy.rules import check_message, type_of
from aerobee.proxy.sending import send_header
from aerobee.proxy.status import OK

NOW_MS = 1_795_000_000_123
NAMES = frozenset(name.encode() for name in RESERVED)
# Texts at the edges of every rule.
TEXTS = (
    "a", "TagA", "", " ", " a", "a ", "a|b", "a\x01", "a\x7f", "a\x80", "ü", "名", "x" * 63, "x" * 64, "UNIQ_KEY",
    "TRAN_MSG", "__AEROBEE_X", "__RMQ.TRANSIENT.a", "__own", "_own", "KEYS", "a b", "\n", "y" * 400, "DELAY",
)  # fmt: skip
ROUNDS = 6_000


def some(pick: random.Random, ordinary: float = 0.75) -> str:
    return f"text-{pick.randrange(50)}" if pick.random() < ordinary else pick.choice(TEXTS)


def a_message(pick: random.Random) -> PbMessage:
    def perhaps(chance: float) -> str | None:
        return some(pick) if pick.random() < chance else None

    def rarely() -> bool:
        return pick.random() < 0.02

    system = PbSystemProperties(
        tag=perhaps(0.5),
        keys=[some(pick, 0.95) for _ in range(pick.choice((0, 0, 1, 2, 40)))],
        message_id=some(pick, 0.9),
        body_digest=PbDigest(pick.randrange(4), some(pick, 0.95)) if pick.random() < 0.4 else None,
        body_encoding=pick.choice((0, 1, 1, 2, 3)),
        message_type=pick.choice((0, 1, 1, 1, 2, 4, 5)),
        born_timestamp=pick.choice(
            (None, PbTimestamp(1_790_000_000, 5_000_000), PbTimestamp(0, 0), PbTimestamp(-5, 1), PbTimestamp(1, -7))
        ),
        born_host=some(pick, 0.95) if pick.random() < 0.7 else "",
        message_group=perhaps(0.2),
        trace_context=perhaps(0.1),
        queue_id=pick.choice((0, 0, 3, -1)),
    )
    if rarely():
        system.delivery_timestamp = PbTimestamp(pick.choice((1_795_000_100, 99_999_999_999)))
    if rarely():
        system.priority = 3
    if rarely():
        system.lite_topic = some(pick)
    if rarely():
        system.orphaned_transaction_recovery_duration = PbDuration(pick.choice((5, 4000)))
    user = {some(pick, 0.9): some(pick, 0.9) for _ in range(pick.choice((0, 1, 2, 3, 127, 128, 129)))}
    if pick.random() < 0.5:
        user = {f"n{number}": "v" * pick.choice((1, 1, 1, 130)) for number in range(pick.choice((0, 1, 128, 129)))}
    body = pick.choice((b"", b"x", b"x" * 300, b"x" * 300, b"x" * 300))
    if pick.random() < 0.002:
        body = bytes((4 << 20) + pick.choice((0, 1)))
    return PbMessage(PbResource(some(pick, 0.95) if rarely() else "", "orders"), user, system, body)


def mutated(data: bytes, pick: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(pick.choice((1, 1, 2, 5))):
        at = pick.randrange(len(changed)) if changed else 0
        kind = pick.randrange(4)
        if kind == 0 and changed:
            changed[at] = pick.randrange(256)
        elif kind == 1:
            changed[at:at] = bytes((pick.randrange(256),))
        elif kind == 2:
            del changed[at : at + pick.choice((1, 3))]
        else:
            changed += changed[at : at + 20]
    return bytes(changed)


def same_send(data: bytes) -> bool:
    """Tell whether the short way takes the call; if so, fail unless the long way asks the same of the broker."""
    send = scan_grpc_send(data, NAMES)
    if send is None:
        return False
    asked = decode(PbSendMessageRequest, data)
    assert len(asked.messages) == 1
    message = asked.messages[0]
    system = check_message(message, NOW_MS)
    assert message.topic is not None and message.topic.name == send.topic.decode()
    assert type_of(system) == (enums.FIFO if send.group else enums.NORMAL)
    assert (system.message_group or "") == send.group.decode()
    frame = SendForm(send.topic, 3, RequestCode.SEND_MESSAGE_V2, LANGUAGE_CODES[LANGUAGE], VERSION).frame(
        send, 77, NOW_MS
    )
    frames, end = scan_frames(frame)
    assert len(frames) == 1 and end == len(frame)
    command = decode_command(frames[0])
    assert (command.code, command.opaque, command.flag) == (RequestCode.SEND_MESSAGE_V2, 77, 0)
    assert command.body == message.body
    found = decode_header(SendMessageRequestHeaderV2, command)
    assert found == send_header(message.topic.name, 3, message, system, NOW_MS)
    return True


def test_sends_are_those_of_the_long_way() -> None:
    pick = random.Random(20)
    taken = refused = 0
    for _ in range(ROUNDS):
        message = a_message(pick)
        data = encode(PbSendMessageRequest([message]))
        if same_send(data):
            taken += 1
        try:
            check_message(message, NOW_MS)
        except AerobeeError:
            refused += 1
    assert taken > ROUNDS / 20 and refused > ROUNDS / 20, (taken, refused)


def test_sends_that_are_damaged_take_the_long_way_or_mean_the_same() -> None:
    pick = random.Random(21)
    taken = 0
    plain = PbSystemProperties(tag="A", keys=["k"], message_id="id-1", born_timestamp=PbTimestamp(5), born_host="h")
    base = [
        encode(PbSendMessageRequest([PbMessage(PbResource("", "orders"), {"n": "v"}, plain, b"body")])),
        *(encode(PbSendMessageRequest([a_message(pick)])) for _ in range(20)),
    ]
    for _ in range(ROUNDS):
        taken += same_send(mutated(pick.choice(base), pick))
    assert taken > 50


@pytest.mark.parametrize("field", [b"\x28", b"\x30"])
@pytest.mark.parametrize("value", [2, 4])
def test_numbers_too_large_for_an_enum_mean_the_same(field: bytes, value: int) -> None:
    """Of such a number the lower half counts: gzip, and a transaction."""
    system = b"\x1a\x02id" + field + varint((1 << 32) + value)
    message = b"\x0a\x08\x12\x06orders" + b"\x1a" + varint(len(system)) + system + b"\x22\x01x"
    is_transaction = (field, value) == (b"\x30", 4)
    assert same_send(b"\x0a" + varint(len(message)) + message) is not is_transaction


def test_several_messages_and_none_take_the_long_way() -> None:
    one = PbMessage(PbResource("", "orders"), {}, PbSystemProperties(message_id="1"), b"x")
    assert same_send(encode(PbSendMessageRequest([one])))
    assert scan_grpc_send(encode(PbSendMessageRequest([one, one])), NAMES) is None
    assert scan_grpc_send(encode(PbSendMessageRequest([])), NAMES) is None


def an_ack(pick: random.Random) -> PbAckMessageRequest:
    parts = [
        str(pick.choice((0, 5, 1 << 40))), str(NOW_MS), str(pick.choice((30_000, -1))), str(pick.choice((0, 999))),
        pick.choice(("0", "1", "2", "3", "00")), pick.choice(("broker-a", "b", 'a"b', "a\\b", "ü")),
        str(pick.choice((0, 7, -1, 1 << 40))), str(pick.choice((0, 12345, "x", ""))), str(pick.choice((9, -1))),
        "1256", "y",
    ]  # fmt: skip
    handle = " ".join(parts[: pick.choice((7, 8, 9, 9, 9, 10, 11))])
    entries = [PbAckMessageEntry(some(pick, 0.9), handle) for _ in range(pick.choice((0, 1, 1, 1, 1, 2)))]
    if entries and pick.random() < 0.03:
        entries[0].lite_topic = "lite"
    return PbAckMessageRequest(PbResource("", "g"), PbResource("", "orders"), entries)


def same_ack(data: bytes) -> bool:
    """As `same_send`."""
    ack = scan_grpc_ack(data)
    if ack is None:
        return False
    asked = decode(PbAckMessageRequest, data)
    assert asked.group is not None and asked.topic is not None and len(asked.entries) == 1
    entry = asked.entries[0]
    receipt = parse_handle(entry.receipt_handle)
    assert (ack.group.decode(), ack.topic.decode()) == (asked.group.name, asked.topic.name)
    assert ack.pop_ms + ack.hidden_ms == receipt.ends_ms
    assert (ack.broker.decode(), str(ack.kind), ack.queue_id, ack.offset) == (
        receipt.broker, receipt.kind, receipt.queue_id, receipt.offset
    )  # fmt: skip
    form = AckForm(ack.group, ack.topic, RequestCode.ACK_MESSAGE, LANGUAGE, VERSION)
    frames, _ = scan_frames(form.frame(ack.extra, ack.queue_id, ack.offset, 5))
    header = decode_header(AckMessageRequestHeader, decode_command(frames[0]))
    assert header == AckMessageRequestHeader(
        consumer_group=asked.group.name, topic=asked.topic.name, queue_id=receipt.queue_id,
        extra_info=receipt.extra_info(), offset=receipt.offset,
    )  # fmt: skip
    told = decode(calls.PbAckMessageResponse, ack_answer(encode(OK), ack))
    assert told == calls.PbAckMessageResponse(
        OK, [calls.PbAckMessageResultEntry(entry.message_id, entry.receipt_handle, OK)]
    )
    return True


def test_acknowledgements_are_those_of_the_long_way() -> None:
    pick = random.Random(22)
    taken = 0
    for _ in range(ROUNDS):
        data = encode(an_ack(pick))
        taken += same_ack(data)
        same_ack(mutated(data, pick))
    assert taken > ROUNDS / 100


@pytest.mark.parametrize("offset", [0, 1, 999, 1000, 123_456_789_012, (1 << 53)])
def test_answers_are_those_of_the_long_way(offset: int) -> None:
    ext = {"msgId": "7F", "queueId": "3", "queueOffset": str(offset), "transactionId": "id", "TRACE_ON": "true"}
    frames, _ = scan_frames(encode_command(Command(0, 9, 1, ext, codec=BINARY)))
    assert queue_offset_of(frames[0]) == offset
    field = b"\x0a" + bytes((len(encode(OK)),)) + encode(OK)
    entry = calls.PbSendResultEntry(OK, "an-id", "", offset)
    assert send_answer(field, b"an-id", offset) == encode(calls.PbSendMessageResponse(OK, [entry]))
    # An answer that cannot be read so is decoded as a whole.
    frames, _ = scan_frames(encode_command(Command(0, 9, 1, {**ext, "queueOffset": "-3"}, codec=BINARY)))
    assert queue_offset_of(frames[0]) == -1
    frames, _ = scan_frames(encode_command(Command(0, 9, 1, ext)))
    assert queue_offset_of(frames[0]) == -1


# -- messages that are delivered


def a_record(pick: random.Random) -> Record:
    pairs: list[tuple[str, str]] = []
    for name in (
        "UNIQ_KEY",
        "TAGS",
        "KEYS",
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "__BORNHOST",
        "PGROUP",
        "CLUSTER",
        "WAIT",
    ):
        if pick.random() < 0.5:
            pairs.append((name, pick.choice(("a", "a b  c", " x ", "ü", "name\x01more", ""))))
    for _ in range(pick.choice((0, 1, 2))):
        pairs.append((some(pick, 0.9), some(pick, 0.9)))
    if pick.random() < 0.15:
        name = pick.choice(sorted(RESERVED))
        pairs.append((name, pick.choice(("true", "3", "1795000000000", "x"))))
    pick.shuffle(pairs)
    block = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    if pick.random() < 0.1:
        block = mutated(block, pick)
    if block and pick.random() < 0.1:
        block = block[:-1]
    sys_flag = COMPRESSED if pick.random() < 0.1 else 0
    body = pick.choice((b"", b"x" * 100, bytes(range(256))))
    if sys_flag:
        body = compress(body or b"x", CompressionType.ZLIB, 5)
    host = encode_host(pick.choice(("127.0.0.1:80", "[::1]:8080")))
    return Record(
        100, 0, pick.choice((0, 1, 7)), 0, pick.choice((0, 5, 1 << 40)), 77, sys_flag,
        pick.choice((0, 1, NOW_MS, NOW_MS - NOW_MS % 1000, -1)), host, NOW_MS, host, pick.choice((0, 3)), 0, body,
        b"orders", block,
    )  # fmt: skip


def test_deliveries_are_those_of_the_tables() -> None:
    pick = random.Random(23)
    receipt = Receipt(1, NOW_MS, 30_000, 2, "0", "broker-a", 3, 9, 1234)
    reserved = frozenset(name.encode() for name in RESERVED)
    short = 0
    for _ in range(ROUNDS):
        record = a_record(pick)
        made = Deliveries("orders", "group", NOW_MS).message(record, receipt.text().encode())
        message = pb_message(record, "orders", "group", receipt.text(), NOW_MS)
        assert made == encode(calls.PbReceiveMessageResponse(message=message)), record.properties
        if not record.sys_flag:
            short += received(record, b"", b"", b"", b"", b"", reserved) is not None
    assert ROUNDS / 4 < short < ROUNDS * 0.99, short
