"""gRPC under clients that lie or want too much, on a running `aerobee up`: what they cost, and who else is served."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from aerobee import sync
from aerobee.hot.h2 import frames
from aerobee.hot.h2.hpack import literal
from aerobee.hot.log.layout import COMPRESSED
from aerobee.model.compression import CompressionType
from aerobee.model.numbers import parse_int
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, decode_frame, encode_command, request
from aerobee.protocol.grpc import UNAVAILABLE, prefixed
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import PbBroker, PbDuration, PbMessageQueue, PbTimestamp
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.clients import CONNECTION_CLIENTS_MAX, EXPIRED_S, QUIET_S, GrpcClients
from aerobee.proxy.status import OK
from aerobee.runtime.net import RealNet
from aerobee.testing.commands import Up
from aerobee.testing.grpckit import SERVICE, GrpcPeer, consumer_settings, message, producer_settings, topic_named
from aerobee.testing.hostile.attacker import Line

_numbers = itertools.count(1)
MIB = 1 << 20


@pytest.fixture
def topic(running: Up) -> str:
    name = f"attacked-{next(_numbers)}"
    with sync.Admin(running.namesrv) as admin:
        admin.topics.create(name, queues=1)
    return name


def code_of(answer: calls.PbSendMessageResponse) -> int:
    assert answer.status is not None
    return int(answer.status.code)


def stored(running: Up, topic: str, body: bytes, sys_flag: int) -> None:
    """Store a body as a client of the remoting protocol may send it."""

    async def main() -> int:
        client = RemotingClient()
        header = SendMessageRequestHeaderV2(
            producer_group="g", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
            sys_flag=sys_flag, born_timestamp=1, flag=0, properties=f"UNIQ_KEY\x01{next(_numbers):032X}\x02",
            reconsume_times=0, unit_mode=False, batch=False,
        )  # fmt: skip
        try:
            while True:
                sent = request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=client.next_opaque())
                answer = await client.call(running.ready["broker"], sent, 20)
                # A busy machine may be too slow for a moment.
                if answer.code != ResponseCode.SYSTEM_BUSY:
                    return answer.code
        finally:
            await client.close()

    assert asyncio.run(main()) == 0


def test_a_body_that_cannot_be_unfolded_holds_up_no_other(running: Up, peer: GrpcPeer, topic: str) -> None:
    """Not what its flag says, broken off, of a kind that nobody knows, and a bomb: each is told as it is stored."""
    bomb = zlib.compress(bytes(64 * MIB), 9)
    bodies = {b"no zlib": CompressionType.ZLIB.flag, zlib.compress(b"x" * 999)[:-9]: CompressionType.ZLIB.flag,
              b"no lz4": CompressionType.LZ4.flag, b"unknown": COMPRESSED | 7 << 8, bomb: COMPRESSED}  # fmt: skip
    for body, flag in bodies.items():
        stored(running, topic, body, flag)
    assert code_of(peer.send(message(topic, b"behind them", f"id-{next(_numbers)}"))) == Code.OK
    with GrpcPeer(running.ready["grpc"], "reader") as reader:
        found = {one.body: one for one in reader.messages(topic, "unfolded")}
    assert set(found) == {*bodies, b"behind them"}
    for one in found.values():
        assert one.system_properties is not None and one.system_properties.body_encoding == enums.IDENTITY
    queue = PbMessageQueue(topic_named(topic), 0, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    pulled = peer.stream(calls.PbPullMessageRequest(topic_named("pulls"), queue, 0, 32), calls.PbPullMessageResponse)
    assert len([one for one in pulled if one.message is not None]) == 6


def test_an_answer_does_not_grow_beyond_its_bound(running: Up, peer: GrpcPeer, topic: str) -> None:
    """Eight messages of 3 KB become 24 MB. What is too much for one answer comes with the next one."""
    for number in range(8):
        stored(running, topic, zlib.compress(bytes([number]) * (3 * MIB)), COMPRESSED)
    first = peer.messages(topic, "folded")
    assert len(first) == 6
    rest: list[int] = []
    while len(rest) < 2:
        rest += [one.body[0] for one in peer.messages(topic, "folded")]
    assert {one.body[0] for one in first} | set(rest) == set(range(8))
    queue = PbMessageQueue(topic_named(topic), 0, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    pulled = peer.stream(calls.PbPullMessageRequest(topic_named("pulls"), queue, 0, 32), calls.PbPullMessageResponse)
    assert [one.message.body[0] for one in pulled if one.message is not None] == [0, 1, 2, 3, 4, 5]
    assert pulled[-1].next_offset == 6


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"message_id": "a\x02DELAY\x013"}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "a\x01b"}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "x" * 256}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "x" * 255}, Code.OK),
        ({"trace_context": "a\x02DELAY\x013"}, Code.BAD_REQUEST),
        ({"born_host": "a\x02DELAY\x013"}, Code.BAD_REQUEST),
        ({"trace_context": "x" * 16_385}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"born_host": "x" * 16_385}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"trace_context": "x" * 16_300}, Code.OK),
    ],
)
def test_no_system_property_smuggles_others_in(peer: GrpcPeer, topic: str, system: dict[str, str], code: int) -> None:
    assert code_of(peer.send(message(topic, b"first", "makes the route known"))) == Code.OK
    for _ in range(2):
        made = message(topic, b"x", system.get("message_id", "id"))
        assert made.system_properties is not None
        made.system_properties.trace_context = system.get("trace_context")
        made.system_properties.born_host = system.get("born_host", "")
        assert code_of(peer.send(made)) == code


def asked(running: Up, ext: dict[str, str]) -> Command:
    """Ask a consumer for its stack, as an administrator does."""
    host, _, port = running.ready["broker"].rpartition(":")
    with socket.create_connection((host, parse_int(port)), timeout=20) as line:
        line.sendall(encode_command(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, 5, 0, ext)))
        with line.makefile("rb") as stream:
            size = stream.read(4)
            return decode_frame(size + stream.read(int.from_bytes(size, "big")))


def test_the_end_of_an_older_telemetry_stream_does_not_end_the_newer(running: Up, peer: GrpcPeer, topic: str) -> None:
    """A client whose network was cut opens another stream, and only then the server notices the end of the first."""
    group, client_id = f"{topic}-twice", dict(peer.metadata)["x-mq-client-id"]
    older, newer = peer.telemetry(), peer.telemetry()
    for stream in (older, newer):
        stream.settle(consumer_settings(group, [topic]))
    older.close()
    # Its end is seen: a call that came later is answered.
    assert code_of(peer.send(message(topic, b"x", "later"))) == Code.OK
    ext = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "true"}
    with ThreadPoolExecutor(1) as pool:
        info = pool.submit(asked, running, ext)
        command = newer.next().print_thread_stack_trace_command
        assert command is not None
        trace = calls.PbThreadStackTrace(command.nonce, "by the newer stream")
        newer.put(calls.PbTelemetryCommand(status=OK, thread_stack_trace=trace))
        assert b"by the newer stream" in info.result(20).body
    newer.close()


def test_commands_of_a_telemetry_stream_do_not_pile_up(running: Up, topic: str) -> None:
    host, _, port = running.ready["grpc"].rpartition(":")
    block = b"\x83\x86" + literal(b":path", SERVICE.encode() + b"Telemetry")
    block += literal(b"content-type", b"application/grpc") + literal(b"x-mq-client-id", b"floods")
    told = prefixed(encode(calls.PbTelemetryCommand(settings=producer_settings(topic))))
    data = (told * (60_000 // len(told)))[:60_000]
    pieces = [data[at : at + 16_000] for at in range(0, len(data), 16_000)]
    with socket.create_connection((host, parse_int(port)), timeout=20) as line:
        line.sendall(
            frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0) + frames.frame(frames.HEADERS, 4, 1, block)
            + b"".join(frames.frame(frames.DATA, 0, 1, piece) for piece in pieces)
        )  # fmt: skip
        found = b""
        while b"grpc-status" not in found:
            more = line.recv(65_536)
            assert more, "the connection ended, the stream should have"
            found += more
    assert found[found.index(b"grpc-status") + 11 :][1:2] == b"8", "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_what_nobody_read_comes_back(running: Up, peer: GrpcPeer, topic: str, how: str) -> None:
    """A client opens no window, so messages are sent to it and never arrive. When it goes, the next one has them."""
    group = f"{topic}-slow"
    assert peer.messages(topic, group) == []
    assert code_of(peer.send(message(topic, b"unread", f"id-{next(_numbers)}"))) == Code.OK
    host, _, port = running.ready["grpc"].rpartition(":")
    block = b"\x83\x86" + literal(b":path", SERVICE.encode() + b"ReceiveMessage")
    block += literal(b"content-type", b"application/grpc") + literal(b"x-mq-client-id", b"reads nothing")
    place = PbMessageQueue(topic_named(topic), -1, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    asked = calls.PbReceiveMessageRequest(
        group=topic_named(group), message_queue=place, batch_size=1, invisible_duration=PbDuration(600)
    )
    with socket.create_connection((host, parse_int(port)), timeout=20) as line:
        line.sendall(
            frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00")
            + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
            + frames.frame(frames.DATA, frames.END_STREAM, 1, prefixed(encode(asked)))
        )  # fmt: skip
        found = b""
        # The head of the answer shows that the message was taken.
        while b"application/grpc" not in found:
            more = line.recv(65_536)
            assert more
            found += more
        if how == "reset":
            line.sendall(frames.frame(frames.RST_STREAM, 0, 1, frames.word(8)))
            assert [one.body for one in peer.messages(topic, group)] == [b"unread"]
    if how == "cut":
        assert [one.body for one in peer.messages(topic, group)] == [b"unread"]


def test_what_was_read_does_not_come_back_with_the_end_of_a_connection(running: Up, peer: GrpcPeer, topic: str) -> None:
    group = f"{topic}-quick"
    assert code_of(peer.send(message(topic, b"read", f"id-{next(_numbers)}"))) == Code.OK
    with GrpcPeer(running.ready["grpc"], "reader") as reader:
        assert [one.body for one in reader.messages(topic, group)] == [b"read"]
    assert peer.messages(topic, group) == []


def test_a_client_without_a_stream_is_gone_sooner() -> None:
    """One that was killed sends nothing, and its stream has ended. What it held comes back when it is gone."""
    now_s = 0.0

    async def main() -> None:
        nonlocal now_s
        clients = GrpcClients(ClusterBackend(list, lambda: now_s, lambda peer: RealNet()), lambda: now_s)
        killed, lives = (clients.of(name, ("127.0.0.1", 1), "JAVA") for name in ("killed", "lives"))
        lives.tell = lambda command: None
        now_s = QUIET_S
        assert clients.expired() == []
        now_s = QUIET_S + 1
        assert clients.expired() == [killed]
        now_s = EXPIRED_S + 1
        assert clients.expired() == [lives]

    asyncio.run(main())


def test_times_and_texts_beyond_all_bounds_are_refused(peer: GrpcPeer, topic: str) -> None:
    queue = PbMessageQueue(topic_named(topic), 0, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    late = calls.PbQueryOffsetRequest(queue, 2, PbTimestamp((1 << 63) - 1, 0))
    answer = peer.call(late, calls.PbQueryOffsetResponse)
    assert answer.status is not None and answer.status.code == Code.BAD_REQUEST
    (refused, *_) = peer.receive(topic, "long", attempt_id="x" * 257)
    assert refused.status is not None and refused.status.code == Code.BAD_REQUEST
    with pytest.raises(grpc.RpcError) as raised:
        peer.channel.unary_unary(SERVICE + "SendMessage")(bytes(5 * MIB), timeout=20, metadata=peer.metadata)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_an_offset_from_nowhere_does_not_hurt_the_broker(peer: GrpcPeer, topic: str) -> None:
    """A consumer that has received sets its offset to the largest number there is, and receives again."""
    group = f"{topic}-far"
    assert code_of(peer.send(message(topic, b"before", f"id-{next(_numbers)}"))) == Code.OK
    assert [one.body for one in peer.messages(topic, group)] == [b"before"]
    queue = PbMessageQueue(topic_named(topic), 0, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    for offset in (1 << 33, (1 << 63) - 1):
        update = calls.PbUpdateOffsetRequest(topic_named(group), queue, offset)
        answer = peer.call(update, calls.PbUpdateOffsetResponse)
        assert answer.status is not None and answer.status.code == Code.OK
        assert peer.messages(topic, group) == []
    assert code_of(peer.send(message(topic, b"after", f"id-{next(_numbers)}"))) == Code.OK
    assert [one.body for one in peer.messages(topic, group)] == [b"after"]


def test_a_call_that_needs_no_client_remembers_none(running: Up, peer: GrpcPeer, topic: str) -> None:
    """More made-up ids than a connection may have: each heartbeat is refused, and a client that sends has its place."""
    beat = peer.channel.unary_unary(SERVICE + "Heartbeat", request_serializer=encode)
    asked = calls.PbHeartbeatRequest()
    answers = [
        beat.future(asked, timeout=60, metadata=(("x-mq-client-id", f"made-up-{number}"),))
        for number in range(CONNECTION_CLIENTS_MAX + 1)
    ]
    for answer in answers:
        status = decode(calls.PbHeartbeatResponse, answer.result()).status
        assert status is not None and status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    assert code_of(peer.send(message(topic, b"as ever", f"id-{next(_numbers)}"))) == Code.OK


def test_one_address_does_not_hold_the_calls_of_everybody(running: Up, topic: str) -> None:
    """Fifty connections with all the calls that each may have are what a server holds of everybody. A client that comes
    from elsewhere is served meanwhile, and so is one behind the same address."""
    elsewhere, count = "127.0.0.2", 52
    named = {
        b":method": b"POST", b":scheme": b"http", b":path": SERVICE.encode() + b"ReceiveMessage", b":authority": b"a",
        b"content-type": b"application/grpc", b"te": b"trailers", b"x-mq-client-id": b"attacker@1",
    }  # fmt: skip
    block = b"".join(literal(name, value) for name, value in named.items())
    begin = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)

    def asked(group: str) -> bytes:
        place = PbMessageQueue(topic_named(topic), -1, enums.READ, PbBroker("broker-a", 0, None), [])
        return prefixed(
            encode(
                calls.PbReceiveMessageRequest(
                    group=topic_named(group), message_queue=place, batch_size=1, invisible_duration=PbDuration(30),
                    long_polling_timeout=PbDuration(20),
                )
            )
        )  # fmt: skip

    def receives(group: str, numbers: range) -> bytes:
        data = asked(group)
        return b"".join(
            frames.frame(frames.HEADERS, frames.END_HEADERS, number, block)
            + frames.frame(frames.DATA, frames.END_STREAM, number, data)
            for number in numbers
        )

    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(Line(running.ready["grpc"], elsewhere)) for _ in range(count)]
        for number, line in enumerate(lines):
            line.write(begin)
            for first in range(1, 2_000, 100):
                line.write(receives(f"held-{number}", range(first, first + 100, 2)))
        with GrpcPeer(running.ready["grpc"], "honest@1") as honest:
            assert code_of(honest.send(message(topic, b"x", "id-1"))) == Code.OK
            assert honest.messages(topic, "honest")
        # The last ones are refused; one of another connection is taken.
        assert b"too many calls of this address" in lines[-1].read_until(b"too many calls")
        neighbour = stack.enter_context(Line(running.ready["grpc"], elsewhere))
        neighbour.write(begin + receives("honest", range(1, 3, 2)))
        well = literal(b"grpc-status", b"0")
        assert well in neighbour.read_until(well, literal(b"grpc-status", b"%d" % UNAVAILABLE))
