"""A group whose master changes: sends, ends of transactions and the blocking client go to the new one by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import aerobee
from aerobee.client.blocking import BlockingClient
from aerobee.client.core import ClientConfig, clientcore
from aerobee.errors.codes import NoPermissionError, SystemBusyError
from aerobee.model.route import BrokerData, QueueData, TopicRouteData
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.offset import GetMaxOffsetResponseHeader
from aerobee.testing.workload import eventually

LONG_S = 60.0
FOLLOWER = "[REJECTREQUEST]system busy, start flow control for a while"


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, LONG_S))


def refuse(channel: Channel, command: Command, count: int = 0) -> Command:
    return response(command, ResponseCode.SYSTEM_BUSY, remark=FOLLOWER)


class Group:
    """Two scripted replicas of one broker group. The name server names one of them master, or none."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.replicas = cluster.brokers
        self.name(0)

    def name(self, master: int | None) -> None:
        addresses = {0 if place == master else place + 1: one.address for place, one in enumerate(self.replicas)}
        route = TopicRouteData((QueueData("g", 4, 4, 6),), (BrokerData("C", "g", addresses),))
        self.cluster.extra["t"] = route

    def demote(self, replica: int) -> None:
        self.replicas[replica].answer_send = refuse

    def promote(self, replica: int) -> None:
        self.replicas[replica].answer_send = self.replicas[replica].store
        self.name(replica)


@pytest.mark.parametrize("options", [{}, {"sharding_key": "k"}], ids=["any queue", "sharding key"])
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("kind", ["refuses", "gone", "gone from the route"])
def test_sends_find_the_new_master(new_cluster: Any, options: Any, idempotent: bool, kind: str) -> None:
    async def work() -> None:
        async with new_cluster("r0", "r1") as cluster:
            group = Group(cluster)
            async with aerobee.Producer(cluster.namesrv, idempotent=idempotent, timeout=LONG_S) as producer:
                await producer.send("t", b"0", **options)
                group.demote(0)
                group.demote(1)
                if kind != "refuses":
                    await group.replicas[0].server.close()
                    remoting = producer._running().core.remoting
                    await eventually(lambda: remoting.peek(group.replicas[0].address) is None)
                    group.name(0 if kind == "gone" else None)
                sends = [producer.send_nowait("t", b"%d" % number, **options) for number in range(1, 10)]
                await asyncio.sleep(0.3)  # the group elects
                assert not any(one.done() for one in sends)
                loop = asyncio.get_running_loop()
                promoted_s = loop.time()
                group.promote(1)
                receipts = await asyncio.gather(*sends)
                # A second on a machine of its own.
                assert loop.time() - promoted_s < 5.0
                assert {receipt.broker_address for receipt in receipts} == {group.replicas[1].address}
                if options:
                    bodies = list(dict.fromkeys(stored.body for stored in group.replicas[1].stored))
                    assert bodies == [b"%d" % number for number in range(1, 10)]

    run(work())


# What may be stored already is not sent again to one queue, unless the broker would know it.
@pytest.mark.parametrize(
    ("options", "idempotent"), [({}, False), ({"sharding_key": "k"}, True)], ids=["any queue", "sharding key"]
)
def test_sends_leave_a_master_that_hangs_without_waiting_for_the_regular_look(
    new_cluster: Any, options: Any, idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clientcore, "_REPLICATED_S", LONG_S)

    async def work() -> None:
        async with new_cluster("r0", "r1") as cluster:
            group = Group(cluster)
            async with aerobee.Producer(cluster.namesrv, idempotent=idempotent, timeout=LONG_S) as producer:
                await producer.send("t", b"0", **options)
                hung: list[Command] = []

                def hang(channel: Channel, command: Command, count: int) -> None:
                    hung.append(command)

                group.replicas[0].answer_send = hang
                sends = [producer.send_nowait("t", b"%d" % number, **options) for number in range(1, 4)]
                await eventually(lambda: len(hung) >= 1)
                asked = len(cluster.asked)
                await eventually(lambda: len(cluster.asked) > asked)
                assert not any(one.done() for one in sends)
                # The new master takes the old one's place at the name server, which hears nothing of the old one.
                new = group.replicas[1].address
                brokers = (BrokerData("C", "g", {0: new}),)
                cluster.extra["t"] = TopicRouteData((QueueData("g", 4, 4, 6),), brokers)
                assert {receipt.broker_address for receipt in await asyncio.gather(*sends)} == {new}

    run(work())


def test_a_refusal_that_has_nothing_to_do_with_the_master_is_not_tried_for_ever(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv, timeout=LONG_S) as producer:
            for code, remark, error in (
                (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy", SystemBusyError),
                (ResponseCode.NO_PERMISSION, "no", NoPermissionError),
            ):
                cluster.brokers[0].answer_send = lambda channel, command, count, code=code, remark=remark: response(
                    command, code, remark=remark
                )
                with pytest.raises(error):
                    await producer.send("t", b"x")

    run(work())


def test_what_waits_for_a_master_fails_with_the_reason_when_its_time_is_over(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("r0", "r1") as cluster:
            group = Group(cluster)
            async with aerobee.Producer(cluster.namesrv, timeout=0.4) as producer:
                await producer.send("t", b"0", timeout=LONG_S)
                await group.replicas[0].server.close()
                group.name(None)
                core = producer._running().core
                await eventually(lambda: core.routes.master("g") is None)
                with pytest.raises(aerobee.AerobeeError, match="no broker takes messages") as caught:
                    await producer.send("t", b"1")
                assert caught.value.retriable
                await eventually(lambda: not producer._running().wait_queues)

    run(work())


def test_the_end_of_a_transaction_goes_to_the_new_master(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("r0", "r1") as cluster:
            group = Group(cluster)

            def check(message: aerobee.Message) -> bool:
                return True

            async with aerobee.Producer(cluster.namesrv, on_check=check, timeout=LONG_S) as producer:
                for replica in group.replicas:
                    replica.handlers[RequestCode.END_TRANSACTION] = refuse
                new = group.replicas[1]
                ended: list[Command] = []

                def end(channel: Channel, command: Command) -> Command:
                    ended.append(command)
                    return response(command)

                async with producer.transaction("t", b"half"):
                    asyncio.get_running_loop().call_later(0.3, group.promote, 1)
                    new.handlers[RequestCode.END_TRANSACTION] = end
                    group.name(0)
                assert len(ended) == 1

    run(work())


@pytest.mark.parametrize("gone", [False, True])
def test_the_blocking_client_asks_the_new_master(new_cluster: Any, gone: bool) -> None:
    async def work() -> None:
        async with new_cluster("r0", "r1") as cluster:
            group = Group(cluster)
            for place, replica in enumerate(group.replicas):

                def end(channel: Channel, command: Command, place: int = place) -> Command:
                    return response(command, ResponseCode.SUCCESS, GetMaxOffsetResponseHeader(offset=place))

                replica.handlers[RequestCode.GET_MAX_OFFSET] = end
            client = BlockingClient(ClientConfig(namesrv=(cluster.namesrv,)))
            route = await asyncio.to_thread(client.route, "t")
            assert route is not None
            queue = route.read_queues[0]
            assert await asyncio.to_thread(client.end_offsets, [queue]) == {queue: 0}
            if gone:
                await group.replicas[0].server.close()
            else:
                group.replicas[0].handlers[RequestCode.GET_MAX_OFFSET] = refuse
            group.name(1)
            assert await asyncio.to_thread(client.end_offsets, [queue]) == {queue: 1}

    run(work())
