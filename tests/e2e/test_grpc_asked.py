"""The gRPC service, by grpcio and raw sockets: the last tries of a message, what is asked of clients, one port for all.

The tests 48, 50 and a part of 52 of the study, by name.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from aerobee import sync
from aerobee.hot.h2 import frames
from aerobee.hot.log.host import encode_host
from aerobee.model.ids import offset_message_id
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, decode_frame, encode_command
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbDuration, PbStatus
from aerobee.proxy.status import OK
from aerobee.testing.commands import Up
from aerobee.testing.grpckit import GrpcPeer, consumer_settings, message, topic_named

_numbers = itertools.count(1)


@pytest.fixture
def topic(running: Up) -> str:
    name = f"asked-{next(_numbers)}"
    with sync.Admin(running.namesrv) as admin:
        admin.topics.create(name, queues=2)
    return name


def test_attempts(running: Up, peer: GrpcPeer, topic: str) -> None:
    """A message is delivered 17 times; the next receive finds it spent, and it is among the dead letters."""
    group = f"{topic}-tries"
    assert peer.send(message(topic, b"never done", "48")).status == OK
    attempts = []
    while len(attempts) < 17:
        for one in peer.messages(topic, group):
            assert one.system_properties is not None
            attempts.append(one.system_properties.delivery_attempt)
            request = calls.PbChangeInvisibleDurationRequest(
                topic_named(group), topic_named(topic), one.system_properties.receipt_handle or "", PbDuration(0), "id"
            )
            assert peer.call(request, calls.PbChangeInvisibleDurationResponse).status == OK
    assert attempts == list(range(1, 18))
    assert peer.messages(topic, group) == []
    listed = running.run("dlq", "list", "-g", group, "--json")
    assert listed.stdout.count("never done") == 1, listed.stdout + listed.stderr
    assert peer.messages(topic, group) == []


def asked(running: Up, code: int, ext: dict[str, str]) -> Command:
    """Ask the broker as an administrator does."""
    host, _, port = running.ready["broker"].rpartition(":")
    with socket.create_connection((host, parse_int(port)), timeout=20) as line:
        line.sendall(encode_command(Command(code, 5, 0, ext)))
        with line.makefile("rb") as stream:
            size = stream.read(4)
            return decode_frame(size + stream.read(int.from_bytes(size, "big")))


def test_stack_and_verify(running: Up, peer: GrpcPeer, topic: str) -> None:
    """What an administrator asks of a client reaches it by its telemetry stream; silence ends after five seconds."""
    group, client_id = f"{topic}-asked", dict(peer.metadata)["x-mq-client-id"]
    stream = peer.telemetry()
    stream.settle(consumer_settings(group, [topic]))
    ext = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "true"}
    with ThreadPoolExecutor(1) as pool:
        info = pool.submit(asked, running, RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
        command = stream.next().print_thread_stack_trace_command
        assert command is not None
        trace = calls.PbThreadStackTrace(command.nonce, "main: at rest")
        stream.put(calls.PbTelemetryCommand(status=OK, thread_stack_trace=trace))
        answer = info.result(20)
        assert answer.code == 0 and b"main: at rest" in answer.body

        began_s = time.monotonic()
        silent = asked(running, RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
        assert silent.code != 0 and "in time" in (silent.remark or "") and time.monotonic() - began_s > 4.0
    stream.close()


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.BAD_REQUEST, "CR_THROW_EXCEPTION"),
    ],
)
def test_consume_directly(running: Up, peer: GrpcPeer, topic: str, code: Code, result: str) -> None:
    """An administrator has a consumer handle one message (309), and is told how that went. It is not acknowledged."""
    group, client_id = f"{topic}-directly", dict(peer.metadata)["x-mq-client-id"]
    sent = message(topic, b"look at me", f"id-{topic}", tag="TagA", keys=["k1", "k2"], user={"colour": "red"})
    assert peer.send(sent).status == OK
    (found,) = peer.messages(topic, f"{topic}-other")
    system = found.system_properties
    assert system is not None and system.receipt_handle is not None
    host, _, port = system.store_host.rpartition(":")
    place = parse_int(system.receipt_handle.rpartition(" ")[2])
    message_id = offset_message_id(encode_host(host, parse_int(port)), place)
    stream = peer.telemetry()
    stream.settle(consumer_settings(group, [topic]))
    ext = {"consumerGroup": group, "clientId": client_id, "msgId": message_id, "topic": topic, "brokerName": "broker-a"}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, running, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext)
        command = stream.next().verify_message_command
        assert command is not None and command.message is not None
        told = command.message
        assert told.topic is not None and told.system_properties is not None
        assert (told.topic.name, told.body, told.user_properties) == (topic, b"look at me", {"colour": "red"})
        assert (told.system_properties.tag, told.system_properties.keys) == ("TagA", ["k1", "k2"])
        assert told.system_properties.message_id == f"id-{topic}"
        # An answer to something else is none to this.
        wrong = calls.PbVerifyMessageResult(f"not-{command.nonce}")
        stream.put(calls.PbTelemetryCommand(status=OK, verify_message_result=wrong))
        made = calls.PbVerifyMessageResult(command.nonce)
        stream.put(calls.PbTelemetryCommand(status=PbStatus(code, "as told"), verify_message_result=made))
        done = answer.result(20)
    assert done.code == 0, done.remark
    body = json.loads(done.body)
    assert (body["consumeResult"], body["remark"]) == (result, "as told")
    stream.close()
    assert [one.body for one in peer.messages(topic, group)] == [b"look at me"]


def test_one_port_after_a_proxy_header(running: Up) -> None:
    """A connection that a load balancer announces may be HTTP/2, on each port."""
    begin = b"PROXY TCP4 10.1.2.3 10.0.0.2 1000 2000\r\n" + frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)
    for port in ("broker", "grpc"):
        host, _, number = running.ready[port].rpartition(":")
        with socket.create_connection((host, parse_int(number)), timeout=20) as line, line.makefile("rb") as stream:
            line.sendall(begin)
            assert stream.read(9)[3] == frames.SETTINGS
