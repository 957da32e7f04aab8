"""`aerobee proxy` before a cluster in trouble: brokers and name servers that hang, die and come back, a new master."""

from __future__ import annotations

import asyncio
import itertools
import signal
from pathlib import Path

import grpc

import aerobee
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import PbMessage
from aerobee.runtime.clock import SystemClock
from aerobee.testing.commands import proxy_of
from aerobee.testing.grpckit import SERVICE, GrpcPeer, message
from aerobee.testing.processes import ProcessCluster, ServerProcess

_numbers = itertools.count(1)
_CLOCK = SystemClock()
# What clients give a call by default.
CALL_S = 3.0


def sent(peer: GrpcPeer, body: bytes = b"x") -> bool:
    """Send a message as a client does; return whether it is stored."""
    made = message("orders", body, f"id-{next(_numbers)}")
    try:
        answer = peer.call(calls.PbSendMessageRequest([made]), calls.PbSendMessageResponse, CALL_S)
    except grpc.RpcError:
        return False
    return answer.status is not None and answer.status.code == Code.OK


def handle_of(one: PbMessage) -> str:
    assert one.system_properties is not None and one.system_properties.receipt_handle is not None
    return one.system_properties.receipt_handle


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
