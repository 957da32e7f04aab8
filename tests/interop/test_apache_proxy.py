"""Apache's proxy in CLUSTER mode before our name server and brokers, for RocketMQ's gRPC and remoting clients.

Test 34 of docs/pop.md. One name server and two brokers are ours; both clients and the proxy are Apache's.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aerobee import sync
from aerobee.model.dialect import loads_object
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbDuration, PbMessage, PbTimestamp
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.grpcclients import run_java
from aerobee.testing.grpckit import (
    GrpcPeer,
    Telemetry,
    code_of,
    consumer_settings,
    handle_of,
    message,
    producer_settings,
    topic_named,
)
from aerobee.testing.javachecks import lost, of_kind, out_of_order, repeated
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.waiting import wait_until

KINDS = ("NORMAL", "FIFO", "DELAY", "PRIORITY", "TRANSACTION")
SETTINGS = {
    **PATIENT,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
}
# A client's own limit of 3 s is over sooner than a loaded machine answers.
LONG_MS = 20_000
HEARTBEATS = "DefaultHeartBeatSyncerTopic"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with LocalCluster(brokers=2, settings=SETTINGS) as started:
        with sync.Admin(started.namesrv) as admin:
            for kind in KINDS:
                admin.topics.create(kind, queues=4, attributes={"message.type": kind})
        yield started


@pytest.fixture(scope="module")
def proxy(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.ApacheProxy]:
    with apache.ApacheProxy(tmp_path_factory.mktemp("proxy"), cluster.namesrv, "LocalCluster") as started:
        yield started


@pytest.fixture
def peer(proxy: apache.ApacheProxy) -> Iterator[GrpcPeer]:
    with GrpcPeer(proxy.grpc, f"peer@{next(_numbers)}") as one:
        yield one


def made(cluster: LocalCluster, kind: str = "NORMAL") -> str:
    """Return a new topic of one broker: a receive asks one."""
    topic = f"{kind.lower()}-{next(_numbers)}"
    with sync.Admin(cluster.namesrv) as admin:
        admin.topics.create(topic, queues=2, attributes={"message.type": kind}, broker="broker-a")
    return topic


def attempt_of(one: PbMessage) -> int | None:
    assert one.system_properties is not None
    return one.system_properties.delivery_attempt


def settled(peer: GrpcPeer, group: str, topic: str) -> Telemetry:
    """Tell the proxy of a consumer: it answers no receive of one that it does not know."""
    stream = peer.telemetry()
    stream.settle(consumer_settings(group, [topic]))
    return stream


def send_all(peer: GrpcPeer, topic: str, *bodies: bytes, **system: Any) -> None:
    for body in bodies:
        answer = peer.send(message(topic, body, f"01{next(_numbers):032X}", **system))
        assert code_of(answer) == Code.OK, answer


def receive_all(peer: GrpcPeer, topic: str, group: str, count: int, **more: Any) -> list[PbMessage]:
    """Receive until so many messages are there."""
    found: list[PbMessage] = []

    def is_enough() -> bool:
        found.extend(peer.messages(topic, group, **more))
        return len(found) >= count

    wait_until(is_enough, lambda: str(found))
    return found


def members_of(address: str, group: str) -> list[str]:
    """Ask a server who is in a group."""

    async def ask() -> list[str]:
        client = RemotingClient()
        try:
            asked = request(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, opaque=client.next_opaque(), ext={"consumerGroup": group}
            )
            answer = await client.call(address, asked, 10)
        finally:
            await client.close()
        return loads_object(answer.body)["consumerIdList"] if not answer.code else []

    return asyncio.run(ask())


def at_s(seconds: float) -> PbTimestamp:
    return PbTimestamp(int(seconds), int(seconds % 1 * 1e9))


# -- gRPC


def test_java_clients(proxy: apache.ApacheProxy) -> None:
    """Messages of each kind, a check-back, a simple consumer that renews, a push consumer that fails one message."""
    run_java(proxy.grpc, *KINDS, *(f"simple:{kind}" for kind in KINDS), *(f"push:{kind}" for kind in KINDS))


def test_handles(cluster: LocalCluster, peer: GrpcPeer) -> None:
    """What is received is acknowledged, hidden for another time, or buried; nothing stays held."""
    topic, group = made(cluster), "holds"
    stream = settled(peer, group, topic)
    send_all(peer, topic, b"done", b"later", b"dead")
    held = {one.body: handle_of(one) for one in receive_all(peer, topic, group, 3)}
    assert code_of(peer.ack(topic, group, held[b"done"])) == Code.OK
    change = calls.PbChangeInvisibleDurationRequest(
        topic_named(group), topic_named(topic), held[b"later"], PbDuration(1), "id"
    )
    changed = peer.call(change, calls.PbChangeInvisibleDurationResponse)
    assert code_of(changed) == Code.OK and changed.receipt_handle
    bury = calls.PbForwardMessageToDeadLetterQueueRequest(
        topic_named(group), topic_named(topic), held[b"dead"], "id", 1, 1
    )
    assert code_of(peer.call(bury, calls.PbForwardMessageToDeadLetterQueueResponse)) == Code.OK
    (again,) = receive_all(peer, topic, group, 1)
    assert (again.body, attempt_of(again)) == (b"later", 2)
    assert code_of(peer.ack(topic, group, handle_of(again))) == Code.OK
    assert [one.body for one in cluster.messages(f"%DLQ%{group}")] == [b"dead"]
    with sync.Admin(cluster.namesrv) as admin:
        lag = admin.groups.lag(group)
    assert (lag.lag, sum(queue.in_flight for queue in lag.queues)) == (0, 0), lag
    # Only the proxy knows who is in the group.
    assert members_of(cluster.broker_address(0), group) == []
    stream.close()


def test_a_broker_comes_back(cluster: LocalCluster, peer: GrpcPeer) -> None:
    """A handle from before the broker was killed acknowledges after it; what was not acknowledged comes again."""
    topic, group = made(cluster), "survives"
    stream = settled(peer, group, topic)
    send_all(peer, topic, b"done", b"again")
    held = {one.body: handle_of(one) for one in receive_all(peer, topic, group, 2, invisible_s=10)}
    cluster.kill(0)
    cluster.restart(0)
    wait_until(lambda: code_of(peer.ack(topic, group, held[b"done"])) == Code.OK)
    (again,) = receive_all(peer, topic, group, 1)
    assert (again.body, attempt_of(again)) == (b"again", 2)
    assert code_of(peer.ack(topic, group, handle_of(again))) == Code.OK
    stream.close()


def test_filters(cluster: LocalCluster, peer: GrpcPeer) -> None:
    topic = made(cluster)
    for number in range(6):
        send_all(peer, topic, b"%d" % number, tag="ABC"[number % 3], user={"n": str(number)})
    for group, expression, wanted in (
        ("by-tag", {"tags": "A"}, [b"0", b"3"]),
        ("by-tags", {"tags": "A || C"}, [b"0", b"2", b"3", b"5"]),
        ("by-sql", {"sql": "n > 2 AND TAGS <> 'B'"}, [b"3", b"5"]),
    ):
        stream = settled(peer, group, topic)
        found = receive_all(peer, topic, group, len(wanted), **expression)
        assert sorted(one.body for one in found) == wanted
        stream.close()


def test_order(cluster: LocalCluster, peer: GrpcPeer) -> None:
    """The messages of a group keep one queue, which waits until those before are acknowledged."""
    topic, group = made(cluster, "FIFO"), "ordered"
    with sync.Admin(cluster.namesrv) as admin:
        admin.groups.create(group, orderly=True)
    stream = settled(peer, group, topic)
    send_all(peer, topic, b"0", b"1", b"2", b"3", message_group="one")
    first = receive_all(peer, topic, group, 2, batch=2)
    assert [one.body for one in first] == [b"0", b"1"]
    assert peer.messages(topic, group) == []
    for one in first:
        assert code_of(peer.ack(topic, group, handle_of(one))) == Code.OK
    assert [one.body for one in receive_all(peer, topic, group, 2, batch=2)] == [b"2", b"3"]
    stream.close()


def test_delay_and_recall(cluster: LocalCluster, peer: GrpcPeer) -> None:
    topic, group = made(cluster, "DELAY"), "delayed"
    stream = settled(peer, group, topic)
    due_s = time.time() + 3
    taken_back = peer.send(message(topic, b"never", "recalled-1", delivery_timestamp=at_s(due_s)))
    recall = calls.PbRecallMessageRequest(topic_named(topic), taken_back.entries[0].recall_handle)
    recalled = peer.call(recall, calls.PbRecallMessageResponse)
    assert (code_of(recalled), recalled.message_id) == (Code.OK, "recalled-1")
    send_all(peer, topic, b"due", delivery_timestamp=at_s(due_s))
    (found,) = receive_all(peer, topic, group, 1)
    assert found.body == b"due" and time.time() > due_s - 0.1
    assert peer.messages(topic, group) == []
    stream.close()


def test_transactions(cluster: LocalCluster, peer: GrpcPeer) -> None:
    topic, group = made(cluster, "TRANSACTION"), "transacted"
    stream = settled(peer, group, topic)
    producing = peer.telemetry()
    producing.settle(producer_settings(topic))

    def half(body: bytes) -> str:
        answer = peer.send(message(topic, body, f"01{next(_numbers):032X}", message_type=enums.TRANSACTION))
        assert code_of(answer) == Code.OK, answer
        return answer.entries[0].transaction_id

    def end(transaction_id: str, resolution: int) -> int:
        asked = calls.PbEndTransactionRequest(topic_named(topic), transaction_id, transaction_id, resolution)
        return code_of(peer.call(asked, calls.PbEndTransactionResponse))

    assert end(half(b"committed"), enums.COMMIT) == end(half(b"rolled back"), enums.ROLLBACK) == Code.OK
    pending = half(b"asked about")
    command = producing.next().recover_orphaned_transaction_command
    assert command is not None and command.message is not None
    assert (command.message.body, command.transaction_id) == (b"asked about", pending)
    assert end(pending, enums.COMMIT) == Code.OK
    found = receive_all(peer, topic, group, 2)
    assert sorted(one.body for one in found) == [b"asked about", b"committed"]
    producing.close()
    stream.close()


def test_names_that_are_unknown(cluster: LocalCluster, peer: GrpcPeer) -> None:
    """Our answers become the codes that clients of Apache's proxy know."""
    route = calls.PbQueryRouteRequest(topic_named("no-such"), peer.endpoints)
    assert code_of(peer.call(route, calls.PbQueryRouteResponse)) == Code.TOPIC_NOT_FOUND


def test_two_proxies_tell_each_other_of_members(
    cluster: LocalCluster, proxy: apache.ApacheProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They do so by a topic that the first one made on our brokers."""
    topic, group = made(cluster), "together"
    work = tmp_path_factory.mktemp("second")
    with (
        apache.ApacheProxy(work, cluster.namesrv, "LocalCluster") as second,
        GrpcPeer(proxy.grpc, "peer@together") as peer,
    ):
        stream = settled(peer, group, topic)

        def is_known_to_both() -> bool:
            beat = peer.call(
                calls.PbHeartbeatRequest(topic_named(group), enums.SIMPLE_CONSUMER), calls.PbHeartbeatResponse
            )
            assert code_of(beat) == Code.OK
            return all(members_of(one.remoting, group) == ["peer@together"] for one in (proxy, second))

        # A proxy that has just started may begin to read behind what the first one said. Clients repeat it.
        wait_until(is_known_to_both)
        told = [loads_object(one.body) for one in cluster.messages(HEARTBEATS)]
        assert {one["heartbeatType"] for one in told if one["group"] == group} == {"REGISTER"}
        stream.close()
        with sync.Admin(cluster.namesrv) as admin:
            assert {one.broker for one in admin.topics.route(HEARTBEATS)} == {"broker-a", "broker-b"}


# -- remoting


@pytest.fixture(scope="module")
def java(proxy: apache.ApacheProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSession]:
    """Apache's remoting client. The proxy is its name server, and all the brokers that it sees."""
    with JavaSession(tmp_path_factory.mktemp("java"), proxy.remoting) as session:
        yield session


def test_remoting_clients(cluster: LocalCluster, java: JavaSession) -> None:
    """Everything comes once and in the order of its queue; a consumer that starts again goes on where it was."""
    cluster.create_topic("by-remoting", 4)
    sent = of_kind(java.run("produce", topic="by-remoting", count=60, tags="a,b", keys="k", timeout_ms=LONG_MS), "sent")
    first = java.run("consume", topic="by-remoting", group="remoting", expect=60)
    taken = of_kind(first, "message")
    assert lost(sent, taken) == [] and repeated(taken) == []
    assert {one["storeHost"] for one in taken} == {f"/{cluster.broker_address(number)}" for number in (0, 1)}
    more = of_kind(java.run("produce", topic="by-remoting", count=20, from_=60, timeout_ms=LONG_MS), "sent")
    second = of_kind(java.run("consume", topic="by-remoting", group="remoting", expect=20), "message")
    assert lost(more, second) == [] and repeated(taken + second) == []


def test_remoting_retries_and_order(cluster: LocalCluster, java: JavaSession) -> None:
    for topic in ("retried", "in-order"):
        cluster.create_topic(topic, 4)
    run = java.start("consume", topic="retried", group="retries", fail_times=1)
    sent = of_kind(java.run("produce", topic="retried", count=5, timeout_ms=LONG_MS), "sent")
    again = run.wait_for_events("message", 5)
    assert lost(sent, again) == [] and {one["reconsumeTimes"] for one in again} == {1}
    run.stop()
    sent = of_kind(java.run("produce", topic="in-order", count=40, shards=8, timeout_ms=LONG_MS), "sent")
    taken = of_kind(java.run("consume", topic="in-order", group="orders", orderly=True, expect=40), "message")
    assert lost(sent, taken) == [] and repeated(taken) == [] and out_of_order(taken) == []


def test_remoting_transactions(cluster: LocalCluster, java: JavaSession) -> None:
    """What the client answers when it is asked is stored. What it says right after a send does not come out of the
    proxy, whose broker ever: it looks for the place of the half message, which it keeps for gRPC only."""
    with sync.Admin(cluster.namesrv) as admin:
        admin.topics.create("remote-tx", queues=4, attributes={"message.type": "TRANSACTION"})
    run = java.start(
        "transact", topic="remote-tx", group="remote-tx-g", states="unknown,unknown", answer="commit", hold=True
    )
    assert {one["status"] for one in run.wait_for_events("sent", 2)} == {"SEND_OK"}
    wait_until(lambda: sorted(one.body for one in cluster.messages("remote-tx")) == [b"0:unknown", b"1:unknown"])
    assert {one["body"] for one in run.events("check")} == {"0:unknown", "1:unknown"}
    run.stop()
