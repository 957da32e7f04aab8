"""The gRPC service before a broker that refuses, does not answer, or has served another front before."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from aerobee.hot.h2.hpack import literal
from aerobee.model.names import dlq_topic, retry_topic
from aerobee.model.route import TopicRouteData
from aerobee.model.topic import PERM_READ, TopicConfig
from aerobee.protocol import grpc
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbBroker, PbDuration, PbFilterExpression, PbMessage, PbMessageQueue, PbUA
from aerobee.proxy import service
from aerobee.proxy.backend import ClusterBackend
from aerobee.runtime.net import RealNet
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.frontkit import FrontKit, FrontPeer
from aerobee.testing.grpckit import consumer_settings, message, producer_settings, topic_named

TRIES = 17


def with_front(
    work: Callable[[FrontKit, FrontPeer], Awaitable[None]], *, authority: Callable[[], bool] | None = None
) -> None:
    """Run a test with a broker that has the topic T, and a front with one client."""

    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        front = FrontKit(kit)
        await work(front, front.connect("client@1"))
        await front.close()

    run_broker(main, authority=authority, confirm_limit=None if authority is None else 1 << 40)


async def sent(peer: FrontPeer, body: bytes) -> None:
    request = calls.PbSendMessageRequest([message("T", body, f"id-{body.decode()}")])
    answer = await peer.call(request, calls.PbSendMessageResponse)
    assert answer.status is not None and answer.status.code == Code.OK, answer


async def received(peer: FrontPeer, *, renew: bool = False, batch: int = 32) -> list[PbMessage]:
    place = PbMessageQueue(topic_named("T"), -1, enums.READ, PbBroker("broker-a", 0, None), [])
    request = calls.PbReceiveMessageRequest(
        group=topic_named("G"), message_queue=place, batch_size=batch, invisible_duration=PbDuration(60),
        long_polling_timeout=PbDuration(5), auto_renew=renew,
    )  # fmt: skip
    answers = await peer.stream(request, calls.PbReceiveMessageResponse)
    assert answers[0].status is not None and answers[0].status.code in (Code.OK, Code.MESSAGE_NOT_FOUND), answers
    return [one.message for one in answers if one.message is not None]


def handle_of(one: PbMessage) -> str:
    assert one.system_properties is not None and one.system_properties.receipt_handle is not None
    return one.system_properties.receipt_handle


async def acked(peer: FrontPeer, handle: str) -> int:
    request = calls.PbAckMessageRequest(topic_named("G"), topic_named("T"), [calls.PbAckMessageEntry("id", handle)])
    answer = await peer.call(request, calls.PbAckMessageResponse)
    assert answer.status is not None
    return int(answer.status.code)


async def handled(peer: FrontPeer, seconds: float) -> None:
    """Let time pass for a client that is there."""
    while seconds > 0:
        await peer.front.kit.pass_time(5.0)
        await peer.call(calls.PbHeartbeatRequest(), calls.PbHeartbeatResponse)
        seconds -= 5.0


def test_a_message_that_cannot_become_a_dead_letter_does_not_hide_others() -> None:
    async def work(front: FrontKit, peer: FrontPeer) -> None:
        await sent(peer, b"spent")
        for _ in range(TRIES):
            (one,) = await received(peer)
            request = calls.PbChangeInvisibleDurationRequest(
                topic_named("G"), topic_named("T"), handle_of(one), PbDuration(0), "id"
            )
            await peer.call(request, calls.PbChangeInvisibleDurationResponse)
            await front.kit.pass_time(1.0)
        front.kit.state.catalog.put_topic(TopicConfig(retry_topic("G"), 1, 1, PERM_READ))
        for number in range(4):
            await sent(peer, b"%d" % number)
        found: list[bytes] = []
        while len(found) < 4:
            found += [one.body for one in await received(peer)]
        assert sorted(found) == [b"0", b"1", b"2", b"3"]

    with_front(work)


def test_an_acknowledgement_that_failed_can_be_made_again() -> None:
    """The handler took longer than the time of its handle. The front knows what the handle has become, and must not
    forget it before the broker has answered."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        peer.begin(calls.PbTelemetryCommand(settings=consumer_settings("G", ["T"])), name="Telemetry", ends=False)
        for body in (b"one", b"two"):
            await sent(peer, body)
        first, second = await received(peer, renew=True)
        await handled(peer, 90)
        front.kit.store.set_confirm_limit(front.kit.store.log_end)
        # By the long way, and by the short one.
        assert await acked(peer, handle_of(first)) == Code.PROXY_TIMEOUT
        assert await acked(peer, handle_of(second)) == Code.PROXY_TIMEOUT
        front.kit.store.set_confirm_limit(1 << 40)
        for one in (first, second):
            assert await acked(peer, handle_of(one)) == Code.OK
        assert len(front.service.renewals) == 0

    with_front(work, authority=lambda: True)


def test_a_message_that_was_renewed_is_acknowledged_at_a_new_front() -> None:
    """The front was started again while the message was handled. The broker knows that it is held."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        peer.begin(calls.PbTelemetryCommand(settings=consumer_settings("G", ["T"])), name="Telemetry", ends=False)
        for body in (b"one", b"two"):
            await sent(peer, body)
        first, second = await received(peer, renew=True)
        await handled(peer, 90)
        other = FrontKit(front.kit)
        behind = other.connect("client@1")
        assert await acked(behind, handle_of(first)) == Code.OK
        assert await acked(behind, handle_of(first)) == Code.INVALID_RECEIPT_HANDLE, "nobody holds it any more"
        assert await acked(behind, handle_of(second).replace("60000", "5000")) == Code.OK
        await front.kit.pass_time(400.0)
        assert await received(behind) == []
        await other.close()

    with_front(work)


def test_a_front_that_stops_takes_nothing_from_clients_that_go_on() -> None:
    """They handle their messages, come to the next front and acknowledge them: nobody else gets one meanwhile."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        peer.begin(calls.PbTelemetryCommand(settings=consumer_settings("G", ["T"])), name="Telemetry", ends=False)
        await sent(peer, b"x")
        (one,) = await received(peer, renew=True)
        await front.service.stop()
        other = FrontKit(front.kit)
        behind = other.connect("client@1")
        assert await received(behind) == []
        assert await acked(behind, handle_of(one)) == Code.OK
        await front.kit.pass_time(100.0)
        assert await received(behind) == []
        await other.close()

    with_front(work)


def test_an_expired_handle_makes_no_dead_letter() -> None:
    async def work(front: FrontKit, peer: FrontPeer) -> None:
        await sent(peer, b"x")
        (one,) = await received(peer)
        await front.kit.pass_time(61.0)
        request = calls.PbForwardMessageToDeadLetterQueueRequest(
            topic_named("G"), topic_named("T"), handle_of(one), "id-x", 17, 17
        )
        answer = await peer.call(request, calls.PbForwardMessageToDeadLetterQueueResponse)
        assert answer.status is not None and answer.status.code == Code.INVALID_RECEIPT_HANDLE
        assert front.kit.state.catalog.find(dlq_topic("G")) is None

    with_front(work)


def test_a_handle_that_nobody_holds_is_not_renewed_for_ever() -> None:
    """Two fronts behind one address: a message is received at one and acknowledged at the other."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        peer.begin(calls.PbTelemetryCommand(settings=consumer_settings("G", ["T"])), name="Telemetry", ends=False)
        await sent(peer, b"x")
        (one,) = await received(peer, renew=True)
        other = FrontKit(front.kit)
        assert await acked(other.connect("client@1"), handle_of(one)) == Code.OK
        assert len(front.service.renewals) == 1
        await handled(peer, 60)
        assert len(front.service.renewals) == 0
        await other.close()

    with_front(work)


# -- what one client can cost


def test_own_connections_leave_room_for_those_of_others() -> None:
    """Each client of gRPC has a connection to the broker in memory. They are bounded by the number of clients."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        server = front.kit.server
        server.limits = dataclasses.replace(server.limits, connections_max=5)
        for number in range(8):
            await sent(front.connect(f"made-up-{number}", 60_000 + number), b"x")
        assert len(server.channels) >= 8
        clients = [front.kit.connect() for _ in range(6)]
        assert [one.is_closed for one in clients] == [False] * 5 + [True]
        clients[0].close()
        await front.kit.pass_time(1.0)
        assert not front.kit.connect().is_closed
        await front.service.stop()
        await front.kit.pass_time(1.0)
        assert server.own_channels == 1, "by which the front looks for routes"

    with_front(work)


@pytest.mark.parametrize("text", ["a" * 10_001, "||".join(f"t{n}" for n in range(3_000))])
@pytest.mark.parametrize("kind", [enums.TAG, enums.SQL])
def test_a_filter_has_a_limit(text: str, kind: int) -> None:
    async def work(front: FrontKit, peer: FrontPeer) -> None:
        settings = consumer_settings("G", ["T"])
        assert settings.subscription is not None
        settings.subscription.subscriptions[0].expression = PbFilterExpression(kind, text)
        call = peer.begin(calls.PbTelemetryCommand(settings=settings), name="Telemetry", ends=False)
        await peer.ended(call)
        assert status_of(call.blocks) == grpc.INVALID_ARGUMENT
        place = PbMessageQueue(topic_named("T"), -1, enums.READ, PbBroker("broker-a", 0, None), [])
        asked = calls.PbReceiveMessageRequest(
            group=topic_named("G"), message_queue=place, filter_expression=PbFilterExpression(kind, text),
            batch_size=1, invisible_duration=PbDuration(60),
        )  # fmt: skip
        (answer, *_) = await peer.stream(asked, calls.PbReceiveMessageResponse)
        assert answer.status is not None and answer.status.code == Code.ILLEGAL_FILTER_EXPRESSION

    with_front(work)


def test_settings_have_a_limit() -> None:
    async def work(front: FrontKit, peer: FrontPeer) -> None:
        told = calls.PbTelemetryCommand(settings=producer_settings(*["T"] * 3))
        assert told.settings is not None
        told.settings.user_agent = PbUA(version="x" * (300 << 10))
        call = peer.begin(told, name="Telemetry", ends=False)
        await front.kit.pass_time(1.0)
        peer.receive()
        (answer,) = call.messages(calls.PbTelemetryCommand)
        assert answer.status is not None and answer.status.code == Code.BAD_REQUEST and not call.has_ended

    with_front(work)


def test_commands_that_wait_have_a_limit_in_bytes() -> None:
    """All of them come before the first one is worked on."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        told = calls.PbTelemetryCommand(settings=producer_settings("T"))
        call = peer.begin(told, name="Telemetry", ends=False)
        trace = calls.PbTelemetryCommand(thread_stack_trace=calls.PbThreadStackTrace("n", "x" * 60_000))
        for _ in range(17):
            peer.put(call, trace)
        peer.receive()
        assert not call.has_ended
        peer.put(call, trace)
        await peer.ended(call)
        assert status_of(call.blocks) == grpc.RESOURCE_EXHAUSTED

    with_front(work)


def status_of(blocks: bytes) -> int:
    """Return the status of gRPC that trailers bring."""
    at = blocks.index(b"grpc-status") + len(b"grpc-status")
    return int(blocks[at + 1 : at + 1 + blocks[at]])


def test_heartbeats_one_after_the_other_are_told_to_brokers_once() -> None:
    async def work(front: FrontKit, peer: FrontPeer) -> None:
        peer.begin(calls.PbTelemetryCommand(settings=consumer_settings("G", ["T"])), name="Telemetry", ends=False)
        await front.kit.pass_time(1.0)
        client = front.service.clients.known("client@1")
        assert client is not None
        before = client.remoting.next_opaque()
        for _ in range(50):
            answer = await peer.call(calls.PbHeartbeatRequest(), calls.PbHeartbeatResponse)
            assert answer.status is not None and answer.status.code == Code.OK
        assert client.remoting.next_opaque() - before == 2
        await front.kit.pass_time(1.0)
        await peer.call(calls.PbHeartbeatRequest(), calls.PbHeartbeatResponse)
        assert client.remoting.next_opaque() - before == 4

    with_front(work)


def test_heartbeats_with_large_settings_are_told_to_brokers_less_often() -> None:
    """Each repeats the settings, so a small call would cost the brokers much."""

    async def work(front: FrontKit, peer: FrontPeer) -> None:
        settings = consumer_settings("G", ["T"] * 25)
        assert settings.subscription is not None
        for one in settings.subscription.subscriptions:
            one.expression = PbFilterExpression(enums.TAG, "x" * 10_000)
        peer.begin(calls.PbTelemetryCommand(settings=settings), name="Telemetry", ends=False)
        await front.kit.pass_time(1.0)
        client = front.service.clients.known("client@1")
        assert client is not None and client.settings is not None
        before = client.remoting.next_opaque()
        for _ in range(40):
            answer = await peer.call(calls.PbHeartbeatRequest(), calls.PbHeartbeatResponse)
            assert answer.status is not None and answer.status.code == Code.OK
            await front.kit.pass_time(1.0)
        assert client.remoting.next_opaque() - before <= 1 + 40 / 8 + 1

    with_front(work)


def test_topics_that_nobody_has_are_looked_for_once_in_two_seconds() -> None:
    async def work(front: FrontKit, peer: FrontPeer) -> None:
        looked: list[str] = []

        def nobody_has(topic: str) -> TopicRouteData | None:
            looked.append(topic)
            return front.backend_route(topic)

        backend = ClusterBackend(list, front.kit.clock.monotonic, lambda peer: RealNet(), own_route=nobody_has)
        topics = [f"none-{number}" for number in range(100)]
        for _ in range(20):
            for topic in topics:
                assert await backend.find_known(topic) is None
        assert len(looked) == 100
        # Whoever wants it now finds it at once.
        front.kit.state.catalog.put_topic(TopicConfig("none-7", 1, 1))
        assert await backend.find_route("none-7") is not None
        assert await backend.find_known("none-7") is not None
        await backend.close()

    with_front(work)


def test_one_address_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address holds as many calls as find room besides: half of them, the next one a quarter. Whoever holds few
    calls on a connection is served."""
    monkeypatch.setattr(service, "_IN_FLIGHT_MAX", 40)
    monkeypatch.setattr(service, "_CALLS_FEW", 4)
    place = PbMessageQueue(topic_named("T"), -1, enums.READ, PbBroker("broker-a", 0, None), [])
    asked = calls.PbReceiveMessageRequest(
        group=topic_named("G"), message_queue=place, batch_size=1, invisible_duration=PbDuration(60),
        long_polling_timeout=PbDuration(20),
    )  # fmt: skip

    async def main(front: FrontKit, peer: FrontPeer) -> None:
        async def held(host: str, port: int, count: int) -> int:
            """Begin receives on a new connection; return how many are held. The others are refused."""
            other = front.connect(f"client-{port}@1", port, host)
            made = [other.begin(asked) for _ in range(count)]
            await settle()
            other.receive()
            refused = [one for one in made if one.has_ended]
            assert all(literal(b"grpc-status", b"%d" % grpc.UNAVAILABLE) in one.blocks for one in refused)
            return count - len(refused)

        assert await held("10.0.0.1", 1, 60) == 20
        assert await held("10.0.0.1", 2, 60) == 4, "a few calls on another connection"
        assert await held("10.0.0.2", 3, 60) == 8
        # A single machine has all addresses of its network.
        assert await held("2001:db8::1", 4, 60) == 4
        assert await held("2001:db8::2%eth0", 5, 60) == 4, "only the few of its connection"
        assert await held("10.0.0.3", 6, 60) == 0, "nothing is left"

    with_front(main)
