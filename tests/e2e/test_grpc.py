"""The gRPC service in a broker's process, by grpcio: the tests 35 to 55 of the study, by name."""

from __future__ import annotations

import hashlib
import itertools
import json
import time

import grpc
import pytest

from aerobee import sync
from aerobee.hot.log.javahash import java_hash
from aerobee.model.compression import CompressionType, compress
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.calls import (
    PbChangeInvisibleDurationRequest,
    PbChangeInvisibleDurationResponse,
    PbEndTransactionRequest,
    PbEndTransactionResponse,
    PbForwardMessageToDeadLetterQueueRequest,
    PbForwardMessageToDeadLetterQueueResponse,
    PbHeartbeatRequest,
    PbHeartbeatResponse,
    PbNotifyClientTerminationRequest,
    PbNotifyClientTerminationResponse,
    PbQueryAssignmentRequest,
    PbQueryAssignmentResponse,
    PbQueryRouteRequest,
    PbQueryRouteResponse,
    PbRecallMessageRequest,
    PbRecallMessageResponse,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbDuration, PbEndpoints, PbMessage, PbMessageQueue, PbTimestamp
from aerobee.proxy.sending import jump_hash
from aerobee.testing.commands import Up, up
from aerobee.testing.grpckit import GrpcPeer, consumer_settings, message, producer_settings, topic_named
from aerobee.testing.waiting import wait_until

_numbers = itertools.count(1)
UP_WORDS = (
    "--set", "transactionTimeOut=500", "--set", "transactionCheckInterval=500", "--set", "enableMixedMessageType=true",
)  # fmt: skip
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


@pytest.fixture(scope="module")
def running(running: Up) -> Up:
    with sync.Admin(running.namesrv) as admin:
        for kind in TYPES:
            admin.topics.create(kind, queues=4, attributes={"message.type": kind})
    return running


@pytest.fixture
def topic(running: Up) -> str:
    name = f"topic-{next(_numbers)}"
    with sync.Admin(running.namesrv) as admin:
        admin.topics.create(name, queues=2)
    return name


def code_of(answer: object) -> int:
    status = getattr(answer, "status", None)
    assert status is not None, answer
    return int(status.code)


def an_id() -> str:
    return f"01{next(_numbers):032X}"


def sent(peer: GrpcPeer, topic: str, body: bytes = b"x", **system: object) -> int:
    return code_of(peer.send(message(topic, body, an_id(), **system)))


def handle_of(one: PbMessage) -> str:
    assert one.system_properties is not None and one.system_properties.receipt_handle is not None
    return one.system_properties.receipt_handle


def at_ms(ms: float) -> PbTimestamp:
    return PbTimestamp(int(ms // 1000), int(ms % 1000) * 1_000_000)


# -- 35 to 37: clients and names


def test_settings_first(peer: GrpcPeer, topic: str) -> None:
    stream = peer.telemetry()
    began_s = time.monotonic()
    settings = stream.settle(producer_settings(topic))
    assert settings.publishing is not None and settings.backoff_policy is not None
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4 << 20, True)
    assert settings.backoff_policy.max_attempts == 3 and settings.metric is None
    assert time.monotonic() - began_s < 2.0
    settings = stream.settle(consumer_settings("settled", [topic], enums.PUSH_CONSUMER))
    assert settings.subscription is not None and settings.backoff_policy is not None
    subscription = settings.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (False, 32)
    assert subscription.long_polling_timeout == PbDuration(20)
    assert settings.backoff_policy.max_attempts == 17
    assert settings.backoff_policy.customized_backoff is not None
    assert [one.seconds for one in settings.backoff_policy.customized_backoff.next][:4] == [1, 5, 10, 30]
    stream.close()


@pytest.mark.parametrize(
    ("topics", "group"), [(["a*b"], "g"), (["orders"], "CID_RMQ_SYS_x"), (["rmq_sys_x"], "g"), ([], "")]
)
def test_settings_that_are_wrong_end_the_stream(peer: GrpcPeer, topics: list[str], group: str) -> None:
    stream = peer.telemetry()
    stream.put(calls.PbTelemetryCommand(settings=consumer_settings(group, topics)))
    with pytest.raises(grpc.RpcError) as raised:
        stream.next()
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_client_id(running: Up, topic: str) -> None:
    with GrpcPeer(running.ready["grpc"], "") as nobody:
        assert sent(nobody, topic) == Code.CLIENT_ID_REQUIRED
        stream = nobody.telemetry()
        stream.put(calls.PbTelemetryCommand(settings=producer_settings(topic)))
        assert code_of(stream.next()) == Code.CLIENT_ID_REQUIRED
    with GrpcPeer(running.ready["grpc"], "no-settings") as one:
        beat = one.call(PbHeartbeatRequest(client_type=enums.PRODUCER), PbHeartbeatResponse)
        end = one.call(PbNotifyClientTerminationRequest(), PbNotifyClientTerminationResponse)
        assert code_of(beat) == code_of(end) == Code.UNRECOGNIZED_CLIENT_TYPE
        # Apache's proxy fails here with a null pointer; ours takes what the group says.
        assert sent(one, topic) == Code.OK
        assert [m.body for m in one.messages(topic, "no-settings")] == [b"x"]


def test_heartbeat_and_termination_make_a_member_come_and_go(running: Up, peer: GrpcPeer, topic: str) -> None:
    stream = peer.telemetry()
    stream.settle(consumer_settings("comes", [topic]))
    beat = peer.call(PbHeartbeatRequest(topic_named("comes"), enums.SIMPLE_CONSUMER), PbHeartbeatResponse)
    assert code_of(beat) == Code.OK
    assert len(running.json("group", "show", "-g", "comes")["members"]) == 1
    request = PbNotifyClientTerminationRequest(topic_named("comes"))
    assert code_of(peer.call(request, PbNotifyClientTerminationResponse)) == Code.OK
    wait_until(lambda: running.json("group", "show", "-g", "comes")["members"] == [], within_s=10)


@pytest.mark.parametrize("name", ["", " ", "a*b", "x" * 128, "rmq_sys_x", "TBW102", "SCHEDULE_TOPIC_XXXX"])
def test_names_of_topics(peer: GrpcPeer, name: str) -> None:
    route = peer.call(PbQueryRouteRequest(topic_named(name), peer.endpoints), PbQueryRouteResponse)
    assert code_of(route) == Code.ILLEGAL_TOPIC
    assert sent(peer, name) == Code.ILLEGAL_TOPIC
    assert code_of(peer.receive(name, "g")[0]) == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("group", ["", " ", "a*b", "x" * 121, "CID_RMQ_SYS_x"])
def test_names_of_groups(peer: GrpcPeer, group: str) -> None:
    assert code_of(peer.receive("NORMAL", group)[0]) == Code.ILLEGAL_CONSUMER_GROUP
    assert code_of(peer.ack("NORMAL", group, "h")) == Code.ILLEGAL_CONSUMER_GROUP


def test_names_unknown_and_found_at_once(running: Up, peer: GrpcPeer) -> None:
    request = PbQueryRouteRequest(topic_named("soon"), peer.endpoints)
    assert code_of(peer.call(request, PbQueryRouteResponse)) == Code.TOPIC_NOT_FOUND
    assert sent(peer, "soon") == Code.TOPIC_NOT_FOUND
    assert code_of(peer.receive("soon", "g")[0]) == Code.TOPIC_NOT_FOUND
    assert running.run("topic", "create", "-t", "soon").returncode == 0
    answer = peer.call(request, PbQueryRouteResponse)
    assert code_of(answer) == Code.OK and len(answer.message_queues) == 8
    queue = answer.message_queues[0]
    assert queue.broker is not None and queue.broker.endpoints == peer.endpoints
    assert (queue.permission, queue.accept_message_types) == (enums.READ_WRITE, [enums.NORMAL])


def test_a_route_without_endpoints_is_refused(peer: GrpcPeer) -> None:
    for endpoints in (None, PbEndpoints()):
        answer = peer.call(PbQueryRouteRequest(topic_named("NORMAL"), endpoints), PbQueryRouteResponse)
        assert code_of(answer) == Code.ILLEGAL_ACCESS_POINT


# -- 38 to 41: sends


NOW_MS = time.time() * 1000
LIMITS: list[tuple[str, dict[str, object], int]] = [
    ("NORMAL", {"body": b""}, Code.MESSAGE_BODY_EMPTY),
    ("NORMAL", {"body": bytes(4 << 20)}, Code.OK),
    ("NORMAL", {"body": bytes((4 << 20) + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
    ("NORMAL", {"user": {f"n{i}": "v" for i in range(128)}}, Code.OK),
    ("NORMAL", {"user": {f"n{i}": "v" for i in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("NORMAL", {"user": {"UNIQ_KEY": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("NORMAL", {"user": {"a\x01": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("NORMAL", {"user": {"a": "v\x02"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("NORMAL", {"user": {"a": "v" * (16 * 1024 - 1)}}, Code.OK),
    ("NORMAL", {"user": {"a": "v" * 16 * 1024}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("NORMAL", {"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
    ("NORMAL", {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
    ("NORMAL", {"tag": "a\n"}, Code.ILLEGAL_MESSAGE_TAG),
    ("NORMAL", {"keys": ["a", " "]}, Code.ILLEGAL_MESSAGE_KEY),
    ("NORMAL", {"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
    ("TRANSACTION", {"message_type": 4, "orphaned_transaction_recovery_duration": PbDuration(3600)}, Code.OK),
    ("TRANSACTION", {"message_type": 4, "orphaned_transaction_recovery_duration": PbDuration(3601)}, Code.BAD_REQUEST),
    ("DELAY", {"delivery_timestamp": at_ms(NOW_MS + 86_000_000)}, Code.OK),
    ("DELAY", {"delivery_timestamp": at_ms(NOW_MS + 90_000_000)}, Code.ILLEGAL_DELIVERY_TIME),
    ("DELAY", {"delivery_timestamp": at_ms(NOW_MS - 90_000_000)}, Code.OK),
    ("FIFO", {"message_group": "g" * 63}, Code.OK),
    ("FIFO", {"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
    ("FIFO", {"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
    ("NORMAL", {"lite_topic": "a b"}, Code.ILLEGAL_LITE_TOPIC),
]


@pytest.mark.parametrize(("topic", "parts", "code"), LIMITS, ids=lambda one: str(one)[:40])
def test_send_limits(peer: GrpcPeer, topic: str, parts: dict[str, object], code: int) -> None:
    given = dict(parts)
    body, message_id = given.pop("body", b"x"), given.pop("message_id", an_id())
    assert isinstance(body, bytes) and isinstance(message_id, str)
    assert code_of(peer.send(message(topic, body, message_id, **given))) == code


def test_send_limits_of_a_call(peer: GrpcPeer, topic: str) -> None:
    assert code_of(peer.send()) == Code.MESSAGE_CORRUPTED
    assert code_of(peer.send(message(topic, b"x", "1"), message("NORMAL", b"x", "2"))) == Code.MESSAGE_CORRUPTED
    answer = peer.send(message(topic, b"x", "id-1"), message(topic, b"y", "id-2"))
    assert [one.message_id for one in answer.entries] == ["id-1", "id-2"]
    bodies: list[bytes] = []
    while len(bodies) < 2:
        bodies += [m.body for m in peer.messages(topic, "batch")]
    assert sorted(bodies) == [b"x", b"y"]


FIELDS: dict[str, dict[str, object]] = {
    "NORMAL": {},
    "FIFO": {"message_group": "g"},
    "DELAY": {"delivery_timestamp": at_ms(NOW_MS)},
    "TRANSACTION": {"message_type": enums.TRANSACTION},
    "PRIORITY": {"priority": 1},
}


@pytest.mark.parametrize("topic", TYPES)
@pytest.mark.parametrize("kind", FIELDS)
def test_types(peer: GrpcPeer, topic: str, kind: str) -> None:
    fits = topic == kind or (topic == "MIXED" and kind != "PRIORITY")
    assert sent(peer, topic, **FIELDS[kind]) == (Code.OK if fits else Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE)
    # What a message calls itself decides nothing, but for transactions.
    if kind == "NORMAL":
        assert (sent(peer, topic, message_type=enums.FIFO) == Code.OK) == fits


def test_fifo_queue_is_apaches() -> None:
    # Guava 30.1.1: Hashing.consistentHash(HashCode.fromInt(x), buckets), asked in Java.
    keys = (0, 1, 2, 97, -1, 12345, 2**31 - 1, -(2**31))
    assert [jump_hash(key, 2) for key in keys] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert [jump_hash(key, 8) for key in keys] == [0, 6, 6, 0, 5, 1, 0, 3]
    assert [jump_hash(key, 1000) for key in keys] == [0, 549, 338, 346, 875, 938, 231, 618]
    assert [jump_hash(java_hash(text), 8) for text in ("a", "group-1", "ünïcode", "order-42")] == [0, 7, 1, 3]


def test_fifo_messages_of_a_group_keep_one_queue(peer: GrpcPeer) -> None:
    for group in ("a", "b", "c"):
        for body in (b"1", b"2", b"3"):
            assert sent(peer, "FIFO", body + group.encode(), message_group=f"{group}-keeps") == Code.OK
    queues: dict[str, set[int]] = {}
    for one in peer.messages("FIFO", "fifo-reader"):
        assert one.system_properties is not None
        if str(one.system_properties.message_group).endswith("-keeps"):
            queues.setdefault(str(one.system_properties.message_group), set()).add(one.system_properties.queue_id)
    assert len(queues) == 3 and all(len(used) == 1 for used in queues.values())


def test_delay_and_recall(peer: GrpcPeer) -> None:
    answer = peer.send(message("DELAY", b"never", "recalled-1", delivery_timestamp=at_ms(time.time() * 1000 + 3_000)))
    handle = answer.entries[0].recall_handle
    request = PbRecallMessageRequest(topic_named("DELAY"), handle)
    recalled = peer.call(request, PbRecallMessageResponse)
    assert (code_of(recalled), recalled.message_id) == (Code.OK, "recalled-1")
    garbage = peer.call(PbRecallMessageRequest(topic_named("DELAY"), "garbage"), PbRecallMessageResponse)
    assert code_of(garbage) == Code.BAD_REQUEST
    other = peer.call(PbRecallMessageRequest(topic_named("NORMAL"), handle), PbRecallMessageResponse)
    assert code_of(other) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert sent(peer, "DELAY", b"soon", delivery_timestamp=at_ms(time.time() * 1000 + 2_000)) == Code.OK
    came = [m.body for _ in range(2) for m in peer.messages("DELAY", "delayed", wait_s=6)]
    assert b"soon" in came and b"never" not in came


# -- 42: transactions


def end_of(transaction_id: str, resolution: int) -> PbEndTransactionRequest:
    return PbEndTransactionRequest(topic_named("TRANSACTION"), "", transaction_id, resolution)


def test_transaction(running: Up, peer: GrpcPeer) -> None:
    def half(body: bytes) -> str:
        answer = peer.send(message("TRANSACTION", body, an_id(), message_type=enums.TRANSACTION))
        return answer.entries[0].transaction_id

    def end(transaction_id: str, resolution: int) -> int:
        return code_of(peer.call(end_of(transaction_id, resolution), PbEndTransactionResponse))

    stream = peer.telemetry()
    stream.settle(producer_settings("TRANSACTION"))
    committed, rolled = half(b"committed"), half(b"rolled back")
    assert end(committed, enums.COMMIT) == Code.OK and end(rolled, enums.ROLLBACK) == Code.OK
    assert end(committed, enums.COMMIT) == Code.OK
    assert end(committed, enums.ROLLBACK) == Code.INVALID_TRANSACTION_ID
    for wrong in ("", " ", "x", "1@2@3", "1@2@id@other-broker", "999999999@5@id@broker-a", "-1@5@id@broker-a"):
        assert end(wrong, enums.COMMIT) == Code.INVALID_TRANSACTION_ID, wrong
    pending = half(b"asked about")
    message_id = pending.split("@")[2]
    while True:
        command = stream.next().recover_orphaned_transaction_command
        assert command is not None and command.message is not None and command.message.system_properties is not None
        if command.message.system_properties.message_id == message_id:
            break
    assert command.message.body == b"asked about"
    # A half message that was asked about has a new place; the client's old id stands for it too.
    assert command.transaction_id != pending
    assert end(pending, enums.COMMIT) == Code.OK
    assert end(command.transaction_id, enums.COMMIT) == Code.OK
    bodies = [m.body for _ in range(2) for m in peer.messages("TRANSACTION", "tx-reader")]
    assert bodies.count(b"committed") == bodies.count(b"asked about") == 1 and b"rolled back" not in bodies
    stream.close()


# -- 43 to 48: receives


def test_receive_stream(peer: GrpcPeer, topic: str) -> None:
    began_s = time.monotonic()
    status, *rest = peer.receive(topic, "empty", wait_s=1)
    assert code_of(status) == Code.MESSAGE_NOT_FOUND and [one.message for one in rest] == [None]
    # A shorter wait is raised to five seconds, as in Apache's proxy.
    assert 4.0 < time.monotonic() - began_s < 9.0
    assert sent(peer, topic, b"one", tag="A", keys=["k1", "k2"], user={"n": "v"}) == Code.OK
    status, found, last = peer.receive(topic, "reader")
    assert code_of(status) == Code.OK and last.delivery_timestamp is not None
    assert found.message is not None and found.message.system_properties is not None
    system = found.message.system_properties
    assert (found.message.body, found.message.user_properties) == (b"one", {"n": "v"})
    assert (system.tag, system.keys, system.delivery_attempt) == ("A", ["k1", "k2"], 1)
    assert len(handle_of(found.message).split(" ")) == 9
    assert code_of(peer.receive(topic, "reader", timeout_s=3)[0]) == Code.ILLEGAL_POLLING_TIME
    for invisible_s in (9, 12 * 3600 + 1):
        assert code_of(peer.receive(topic, "r", invisible_s=invisible_s)[0]) == Code.ILLEGAL_INVISIBLE_TIME
    assert code_of(peer.receive(topic, "r", broker="nobody")[0]) == Code.BAD_REQUEST
    assert code_of(peer.receive(topic, "r", tags="A || ")[0]) == Code.ILLEGAL_FILTER_EXPRESSION


def test_a_send_wakes_a_receive(running: Up, peer: GrpcPeer, topic: str) -> None:
    assert peer.messages(topic, "woken", wait_s=5) == []
    with GrpcPeer(running.ready["grpc"], "sender") as sender:
        began_s = time.monotonic()
        waiting = peer.channel.unary_stream(
            "/apache.rocketmq.v2.MessagingService/ReceiveMessage", request_serializer=lambda one: one
        )
        from aerobee.protocol.v2.fields import encode

        queue = PbMessageQueue(topic_named(topic), -1, enums.READ, None, [])
        from aerobee.protocol.v2.values import PbBroker

        queue.broker = PbBroker("broker-a", 0, peer.endpoints)
        request = calls.PbReceiveMessageRequest(
            group=topic_named("woken"), message_queue=queue, batch_size=1, invisible_duration=PbDuration(20),
            long_polling_timeout=PbDuration(20),
        )  # fmt: skip
        answers = waiting(encode(request), metadata=peer.metadata, timeout=30)
        assert sent(sender, topic, b"woke") == Code.OK
        assert len(list(answers)) == 3 and time.monotonic() - began_s < 5.0


@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_digest_and_encoding(running: Up, peer: GrpcPeer, topic: str, kind: CompressionType | None) -> None:
    import gzip

    from aerobee.sync import Producer

    body = b"body " * 2_000
    if kind is None:
        assert sent(peer, topic, gzip.compress(body), body_encoding=enums.GZIP) == Code.OK
    else:
        assert compress(body, kind) != body
        with Producer(running.namesrv, compress_over=100, compression=kind.name) as producer:
            producer.send(topic, body)
    (one,) = peer.messages(topic, "inflated")
    assert one.system_properties is not None and one.system_properties.body_digest is not None
    digest = one.system_properties.body_digest
    assert (digest.type, digest.checksum) == (enums.MD5, hashlib.md5(one.body).hexdigest().upper())
    if kind is None:
        assert one.system_properties.body_encoding == enums.GZIP and gzip.decompress(one.body) == body
    else:
        assert (one.system_properties.body_encoding, one.body) == (enums.IDENTITY, body)


def test_ack_results(peer: GrpcPeer, topic: str) -> None:
    assert sent(peer, topic) == Code.OK
    (one,) = peer.messages(topic, "acks")
    good = handle_of(one)
    assert code_of(peer.ack(topic, "acks")) == Code.BAD_REQUEST
    assert code_of(peer.ack(topic, "acks", "garbage")) == Code.INVALID_RECEIPT_HANDLE
    both = peer.ack(topic, "acks", good, "garbage")
    assert code_of(both) == Code.MULTIPLE_RESULTS
    assert [code_of(entry) for entry in both.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
    for wrong in ("0 " * 9, good.replace("broker-a", "broker-x"), "9" * 5000, " ".join(["0"] * 5000)):
        assert code_of(peer.ack(topic, "acks", wrong)) == Code.INVALID_RECEIPT_HANDLE, wrong[:50]


def test_ten_part_handle(peer: GrpcPeer, topic: str) -> None:
    """Apache's LOCAL proxy writes a zero between the eight parts of remoting and the place in the log."""
    assert sent(peer, topic) == Code.OK
    parts = handle_of(peer.messages(topic, "ten")[0]).split(" ")
    assert code_of(peer.ack(topic, "ten", " ".join([*parts[:8], "0", parts[8]]))) == Code.OK


def test_change_and_back(peer: GrpcPeer, topic: str) -> None:
    def change(handle: str, seconds: int) -> PbChangeInvisibleDurationResponse:
        request = PbChangeInvisibleDurationRequest(
            topic_named("changes"), topic_named(topic), handle, PbDuration(seconds), "id"
        )
        return peer.call(request, PbChangeInvisibleDurationResponse)

    assert sent(peer, topic) == Code.OK
    handle = handle_of(peer.messages(topic, "changes")[0])
    assert code_of(change(handle, 12 * 3600 + 1)) == Code.ILLEGAL_INVISIBLE_TIME
    assert code_of(change("garbage", 1)) == Code.INVALID_RECEIPT_HANDLE
    changed = change(handle, 1)
    assert code_of(changed) == Code.OK and changed.receipt_handle
    (again,) = peer.messages(topic, "changes", wait_s=6)
    assert again.system_properties is not None and again.system_properties.delivery_attempt == 2
    assert handle_of(again).split(" ")[4] == "1"
    assert code_of(peer.ack(topic, "changes", handle_of(again))) == Code.OK


def test_auto_renew_and_termination(peer: GrpcPeer, topic: str) -> None:
    """What a push consumer holds comes back soon after it has said goodbye."""
    stream = peer.telemetry()
    stream.settle(consumer_settings("renewed", [topic], enums.PUSH_CONSUMER))
    assert sent(peer, topic, b"held") == Code.OK
    (held,) = peer.messages(topic, "renewed", auto_renew=True)
    assert handle_of(held).split(" ")[2] == "60000"
    request = PbNotifyClientTerminationRequest(topic_named("renewed"))
    assert code_of(peer.call(request, PbNotifyClientTerminationResponse)) == Code.OK
    began_s = time.monotonic()
    assert [m.body for m in peer.messages(topic, "renewed", wait_s=15)] == [b"held"]
    assert time.monotonic() - began_s < 5.0
    stream.close()


def test_forward_to_dead_letters(running: Up, peer: GrpcPeer, topic: str) -> None:
    assert sent(peer, topic, b"dead") == Code.OK
    (one,) = peer.messages(topic, "buries")
    request = PbForwardMessageToDeadLetterQueueRequest(
        topic_named("buries"), topic_named(topic), handle_of(one), "id", 1, 1
    )
    answer = peer.call(request, PbForwardMessageToDeadLetterQueueResponse)
    assert code_of(answer) == Code.OK
    (letter,) = running.run("dlq", "list", "-g", "buries", "--json").stdout.splitlines()
    assert json.loads(letter)["origin_topic"] == topic
    short = " ".join(handle_of(one).split(" ")[:8])
    request.receipt_handle = short
    answer = peer.call(request, PbForwardMessageToDeadLetterQueueResponse)
    assert code_of(answer) == Code.INVALID_RECEIPT_HANDLE


def test_assignment(peer: GrpcPeer, topic: str) -> None:
    request = PbQueryAssignmentRequest(topic_named(topic), topic_named("assigned"), peer.endpoints)
    answer = peer.call(request, PbQueryAssignmentResponse)
    queues = [one.message_queue for one in answer.assignments]
    assert [one.id for one in queues if one is not None] == [-1]
    missing = PbQueryAssignmentRequest(topic_named("no-such"), topic_named("assigned"), peer.endpoints)
    assert code_of(peer.call(missing, PbQueryAssignmentResponse)) == Code.TOPIC_NOT_FOUND


def test_pull_and_offsets(peer: GrpcPeer, topic: str) -> None:
    for number in range(4):
        assert sent(peer, topic, b"%d" % number) == Code.OK
    from aerobee.protocol.v2.values import PbBroker

    queue = PbMessageQueue(topic_named(topic), 0, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    request = calls.PbPullMessageRequest(topic_named("pulls"), queue, 0, 32)
    status, *rest = peer.stream(request, calls.PbPullMessageResponse)
    bodies = [one.message.body for one in rest if one.message is not None]
    assert code_of(status) == Code.OK and rest[-1].next_offset == len(bodies) == 2
    request.offset = 2
    assert code_of(peer.stream(request, calls.PbPullMessageResponse)[0]) == Code.MESSAGE_NOT_FOUND
    update = calls.PbUpdateOffsetRequest(topic_named("pulls"), queue, 1)
    assert code_of(peer.call(update, calls.PbUpdateOffsetResponse)) == Code.OK
    got = peer.call(calls.PbGetOffsetRequest(topic_named("pulls"), queue), calls.PbGetOffsetResponse)
    assert (code_of(got), got.offset) == (Code.OK, 1)
    for policy, offset in ((enums.BEGINNING, 0), (enums.END, 2)):
        asked = peer.call(calls.PbQueryOffsetRequest(queue, policy), calls.PbQueryOffsetResponse)
        assert (code_of(asked), asked.offset) == (Code.OK, offset)
    bad = calls.PbUpdateOffsetRequest(topic_named("pulls"), queue, -1)
    assert code_of(peer.call(bad, calls.PbUpdateOffsetResponse)) == Code.ILLEGAL_OFFSET


def test_lite_subscriptions_are_refused_in_words(peer: GrpcPeer, topic: str) -> None:
    request = calls.PbSyncLiteSubscriptionRequest(0, topic_named(topic), topic_named("lite"), ["a"])
    assert code_of(peer.call(request, calls.PbSyncLiteSubscriptionResponse)) == Code.NOT_IMPLEMENTED


@pytest.mark.parametrize("kind", [enums.LITE_PUSH_CONSUMER, enums.LITE_SIMPLE_CONSUMER])
def test_lite_consumers_are_refused_in_words(peer: GrpcPeer, topic: str, kind: int) -> None:
    stream = peer.telemetry()
    stream.put(calls.PbTelemetryCommand(settings=consumer_settings("lite", [topic], kind)))
    with pytest.raises(grpc.RpcError) as raised:
        stream.next()
    assert "lite topics are not served" in raised.value.details()


def test_higher_priorities_come_first(running: Up, peer: GrpcPeer) -> None:
    with sync.Admin(running.namesrv) as admin:
        admin.topics.create("PRIORITY", queues=4, attributes={"message.type": "PRIORITY"})
    sent_now = [0, 3, 1, 2, 9, 0, 2]
    for number, priority in enumerate(sent_now):
        assert sent(peer, "PRIORITY", b"%d" % number, priority=priority) == Code.OK
    found: list[tuple[int, int]] = []
    while len(found) < len(sent_now):
        for one in peer.messages("PRIORITY", "ranked", batch=1):
            system = one.system_properties
            assert system is not None and system.priority is not None
            found.append((system.queue_id, system.priority))
    queues = [queue_id for queue_id, _ in found]
    assert queues == sorted(queues, reverse=True)
    assert [queue_id for queue_id, _ in found] == [min(priority, 3) for _, priority in found]


# -- 52 to 55: the port


def test_one_port(running: Up, topic: str) -> None:
    """The broker's own port speaks gRPC too, and the port of gRPC remoting."""
    with GrpcPeer(running.ready["broker"], "one-port") as peer:
        assert sent(peer, topic, b"by the broker's port") == Code.OK
    done = running.run("cluster")
    assert done.returncode == 0, done.stderr


def test_stop_sends_clients_away(topic: str) -> None:
    with up() as running:
        assert running.run("topic", "create", "-t", "stops").returncode == 0
        with GrpcPeer(running.ready["grpc"], "stays") as peer:
            assert sent(peer, "stops") == Code.OK
            code, elapsed_s, said = running.stop()
            assert (code, said) == (0, "") and elapsed_s < 10


def test_unknown_methods_and_other_services(peer: GrpcPeer) -> None:
    for path in ("/apache.rocketmq.v2.MessagingService/NoSuch", "/grpc.health.v1.Health/Check", "/"):
        with pytest.raises(grpc.RpcError) as raised:
            peer.channel.unary_unary(path)(b"", timeout=5)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message_are_refused(peer: GrpcPeer) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        peer.channel.unary_unary("/apache.rocketmq.v2.MessagingService/SendMessage")(
            b"\xff\xff\xff", timeout=5, metadata=peer.metadata
        )
    assert raised.value.code() is grpc.StatusCode.INTERNAL
