"""`aerobee proxy` before a cluster in trouble: brokers and name servers that hang, die and come back, a new master."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable
from pathlib import Path

import grpc

import aerobee
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import PbSettings
from aerobee.runtime.clock import SystemClock
from aerobee.testing.commands import proxy_of
from aerobee.testing.grpckit import (
    SERVICE,
    GrpcPeer,
    code_of,
    consumer_settings,
    handle_of,
    message,
    producer_settings,
    topic_named,
)
from aerobee.testing.processes import ProcessCluster, ServerProcess

_numbers = itertools.count(1)
_CLOCK = SystemClock()
# What clients give a call by default.
CALL_S = 3.0


def sent(peer: GrpcPeer, body: bytes = b"x", group: str | None = None) -> bool:
    """Send a message as a client does, perhaps one of a message group; return whether it is stored."""
    made = message("fifo" if group else "orders", body, f"id-{next(_numbers)}", message_group=group)
    try:
        answer = peer.call(calls.PbSendMessageRequest([made]), calls.PbSendMessageResponse, CALL_S)
    except grpc.RpcError:
        return False
    return answer.status is not None and answer.status.code == Code.OK


async def topic(cluster: ProcessCluster) -> None:
    async with aerobee.Admin(cluster.namesrv.address) as admin:
        await admin.topics.create("orders", queues=2)


def test_a_broker_that_hangs_holds_up_those_who_meet_it_first(tmp_path: Path) -> None:
    """Before, every look at the topic waited for it, and half of the messages."""

    def work(address: str, cluster: ProcessCluster) -> None:
        with GrpcPeer(address, "producer@1") as peer, GrpcPeer(address, "producer@2") as other:
            assert all(sent(peer) for _ in range(8))
            for hung in (0, 1):
                cluster.pause(hung)
                try:
                    # The first one who meets it waits for nothing.
                    assert sum(not sent(peer) for _ in range(6)) <= 1
                    # The others, and a client that comes now, do not meet it.
                    assert all(sent(other) for _ in range(6))
                    with GrpcPeer(address, "producer@3") as late:
                        assert all(sent(late) for _ in range(6))
                finally:
                    cluster.resume(hung)
                # It gets messages again, some seconds later.
                until_s, name, body = _CLOCK.monotonic() + 30.0, cluster.broker_name(hung), b"after %d" % hung
                while body not in [one.body for one in peer.messages("orders", "readers", broker=name)]:
                    assert all(sent(peer, body) for _ in range(4)) and _CLOCK.monotonic() < until_s

    async def main() -> None:
        async with ProcessCluster(tmp_path, brokers=2) as cluster:
            await topic(cluster)
            with proxy_of("-n", cluster.namesrv.address) as address:
                await asyncio.to_thread(work, address, cluster)

    asyncio.run(asyncio.wait_for(main(), 200))


def test_nobody_waits_for_a_broker_that_hangs(tmp_path: Path) -> None:
    """Before, a new client waited three seconds for its settings, and whoever met the broker waited for its whole
    deadline."""

    def settled_s(address: str, name: str, settings: PbSettings) -> float:
        began_s = _CLOCK.monotonic()
        with GrpcPeer(address, name) as peer:
            peer.telemetry().settle(settings)
        return _CLOCK.monotonic() - began_s

    def refused_s(work: Callable[[], object]) -> float:
        """Do what names the broker that hangs; return how long its refusal took."""
        began_s = _CLOCK.monotonic()
        answer = work()
        assert code_of(answer[0] if isinstance(answer, list) else answer) == Code.PROXY_TIMEOUT, answer
        return _CLOCK.monotonic() - began_s

    def work(address: str, cluster: ProcessCluster) -> None:
        name = cluster.broker_name(1)
        with GrpcPeer(address, "client@1") as peer:
            while not peer.messages("orders", "readers", broker=name, invisible_s=300):
                assert sent(peer)
            assert sent(peer) and sent(peer)
            (one, *_) = peer.messages("orders", "others", broker=name, invisible_s=300)
            ack = calls.PbAckMessageRequest(
                topic_named("others"), topic_named("orders"), [calls.PbAckMessageEntry("id", handle_of(one))]
            )
            cluster.pause(1)
            try:
                # Whoever meets it first hears well before its deadline that it does not answer.
                assert refused_s(lambda: peer.call(ack, calls.PbAckMessageResponse, 20.0)) < 3.0
                # From then on nobody waits, also not longer than it is remembered as late.
                until_s = _CLOCK.monotonic() + 12.0
                while _CLOCK.monotonic() < until_s:
                    assert refused_s(lambda: peer.call(ack, calls.PbAckMessageResponse, 20.0)) < 1.0
                    assert refused_s(lambda: peer.receive("orders", "readers", broker=name)) < 1.0
                    assert settled_s(address, "new@1", producer_settings("orders")) < 2.0
                    assert settled_s(address, "new@2", consumer_settings("readers", ["orders"])) < 2.0
                    assert settled_s(address, "new@3", consumer_settings("new", ["orders"])) < 2.0
                    assert all(sent(peer) for _ in range(6))
            finally:
                cluster.resume(1)
            until_s = _CLOCK.monotonic() + 30.0
            while code_of(peer.call(ack, calls.PbAckMessageResponse, 20.0)) != Code.OK:
                assert _CLOCK.monotonic() < until_s

    async def main() -> None:
        async with ProcessCluster(tmp_path, brokers=2) as cluster:
            await topic(cluster)
            with proxy_of("-n", cluster.namesrv.address) as address:
                await asyncio.to_thread(work, address, cluster)

    asyncio.run(asyncio.wait_for(main(), 200))


def test_a_send_that_meets_a_broker_that_hangs_ends_before_its_deadline(tmp_path: Path) -> None:
    """A message group has its queue. The others go elsewhere once the broker is known."""

    def work(address: str, cluster: ProcessCluster) -> None:
        with GrpcPeer(address, "producer@1") as peer:
            while not (sent(peer) and sent(peer, group="g")):
                pass
            for hung in (0, 1):
                cluster.pause(hung)
                try:
                    for group in (None, "g", None, "g"):
                        made = message("fifo" if group else "orders", b"x", f"id-{next(_numbers)}", message_group=group)
                        began_s = _CLOCK.monotonic()
                        answer = peer.call(calls.PbSendMessageRequest([made]), calls.PbSendMessageResponse, 10.0)
                        assert code_of(answer) in (Code.OK, Code.PROXY_TIMEOUT), answer
                        assert _CLOCK.monotonic() - began_s < 3.0
                finally:
                    cluster.resume(hung)
                until_s = _CLOCK.monotonic() + 30.0
                while not all([sent(peer) and sent(peer, group="g") for _ in range(4)]):
                    assert _CLOCK.monotonic() < until_s

    async def main() -> None:
        async with ProcessCluster(tmp_path, brokers=2) as cluster:
            await topic(cluster)
            async with aerobee.Admin(cluster.namesrv.address) as admin:
                await admin.topics.create("fifo", queues=2, attributes={"message.type": "FIFO"})
            with proxy_of("-n", cluster.namesrv.address) as address:
                await asyncio.to_thread(work, address, cluster)

    asyncio.run(asyncio.wait_for(main(), 200))


def test_a_name_server_that_hangs_is_asked_after_the_others(tmp_path: Path) -> None:
    def work(address: str) -> None:
        with GrpcPeer(address, "producer@1") as peer:
            assert all(sent(peer) for _ in range(3))
            began_s = _CLOCK.monotonic()
            # Routes are looked for each two seconds.
            while _CLOCK.monotonic() - began_s < 7.0:
                at_s = _CLOCK.monotonic()
                assert sent(peer)
                assert _CLOCK.monotonic() - at_s < 2.0

    async def main() -> None:
        hung = ServerProcess("namesrv", {"kvConfigPath": str(tmp_path / "other.json")}, tmp_path / "other.log")
        await hung.start()
        try:
            async with ProcessCluster(tmp_path) as cluster:
                await topic(cluster)
                hung.signal(signal.SIGSTOP)
                with proxy_of("-n", f"{hung.address};{cluster.namesrv.address}") as address:
                    await asyncio.to_thread(work, address)
        finally:
            await hung.kill()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_made_up_clients_leave_descriptors_for_others(tmp_path: Path) -> None:
    """Each client of a proxy has connections of its own. One peer makes up more of them than the proxy may open."""

    def work(address: str) -> None:
        with GrpcPeer(address, "attacker") as attacker:
            method = attacker.channel.unary_unary(SERVICE + "SendMessage", request_serializer=encode)
            answers = [
                method.future(
                    calls.PbSendMessageRequest([message("orders", b"x", f"made-up-{number}")]), timeout=60,
                    metadata=(("x-mq-client-id", f"made-up-{number}"),),
                )
                for number in range(300)
            ]  # fmt: skip
            for answer in answers:
                assert answer.exception() is None
            for number in range(5):
                with GrpcPeer(address, f"honest-{number}") as honest:
                    assert sent(honest)

    async def main() -> None:
        async with ProcessCluster(tmp_path) as cluster:
            await topic(cluster)
            with proxy_of("-n", cluster.namesrv.address, files=128) as address:
                await asyncio.to_thread(work, address)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_new_master_takes_acknowledgements_of_what_the_old_one_gave(tmp_path: Path) -> None:
    async def main() -> None:
        async with ProcessCluster(tmp_path, replicas=3) as cluster:
            await topic(cluster)
            with proxy_of("-n", cluster.namesrv.address) as address, GrpcPeer(address, "client@1") as peer:
                while not await asyncio.to_thread(sent, peer):
                    pass
                (one,) = await asyncio.to_thread(peer.messages, "orders", "readers", invisible_s=300)
                await cluster.kill(await cluster.master())
                began_s = _CLOCK.monotonic()
                while not await asyncio.to_thread(sent, peer):
                    assert _CLOCK.monotonic() - began_s < 60.0
                answer = await asyncio.to_thread(peer.ack, "orders", "readers", handle_of(one))
                assert answer.status is not None and answer.status.code == Code.OK
                found = await asyncio.to_thread(peer.messages, "orders", "readers")
                assert handle_of(one) not in [handle_of(other) for other in found] and found

    asyncio.run(asyncio.wait_for(main(), 200))
