"""The blocking client against scripted servers: routes, static topics, refusals, connections that are kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from aerobee.broker.roles import REJECTED
from aerobee.client.blocking import BlockingClient
from aerobee.client.core import ClientConfig
from aerobee.errors import TransportError
from aerobee.errors.codes import NoPermissionError
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRouteData
from aerobee.net.channel import Channel
from aerobee.protocol.codes import MASTER_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.offset import GetMaxOffsetResponseHeader


def client_of(cluster: Any) -> BlockingClient:
    return BlockingClient(ClientConfig(namesrv=(cluster.namesrv,)))


def answer_ends(cluster: Any) -> list[tuple[str, str, int]]:
    """Make every broker answer 10 times its place plus the queue id, and return the questions it gets."""
    asked: list[tuple[str, str, int]] = []
    for place, broker in enumerate(cluster.brokers):

        def end(channel: Channel, command: Command, place: int = place, name: str = broker.name) -> Command:
            asked.append((name, command.ext["bname"], int(command.ext["queueId"])))
            header = GetMaxOffsetResponseHeader(offset=10 * place + int(command.ext["queueId"]))
            return response(command, ResponseCode.SUCCESS, header)

        broker.handlers[RequestCode.GET_MAX_OFFSET] = end
    return asked


def test_each_queue_is_asked_of_its_broker_and_connections_are_kept(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b", queue_nums=2) as cluster:
            answer_ends(cluster)
            client = client_of(cluster)
            route = await asyncio.to_thread(client.route, "t")
            assert route is not None
            for _ in range(2):
                ends = await asyncio.to_thread(client.end_offsets, route.read_queues)
            assert list(ends.values()) == [0, 1, 10, 11]
            assert [len(broker.server.channels) for broker in cluster.brokers] == [1, 1]

    asyncio.run(work())


def test_an_end_is_asked_of_masters_only(new_cluster: Any) -> None:
    """A slave may be behind: its end is not that of the queue. Slaves of RocketMQ answer it."""

    async def work() -> None:
        async with new_cluster("a") as cluster:

            def follower(channel: Channel, command: Command) -> Command:
                assert command.ext[MASTER_FIELD] == "true"
                return response(command, ResponseCode.SYSTEM_BUSY, remark=REJECTED)

            cluster.brokers[0].handlers[RequestCode.GET_MAX_OFFSET] = follower
            client = client_of(cluster)
            route = await asyncio.to_thread(client.route, "t")
            assert route is not None
            with pytest.raises(TransportError, match="is not the master of its group now"):
                await asyncio.to_thread(client.end_offsets, route.read_queues)
            own = cluster.route()
            (broker,) = own.broker_datas
            slave = replace(broker, broker_addrs={1: broker.broker_addrs[0]})
            cluster.extra["led by none"] = replace(own, broker_datas=(slave,))
            later = client_of(cluster)
            await asyncio.to_thread(later.route, "led by none")
            assert later.address_of(MessageQueue("led by none", "a", 0)) is None

    asyncio.run(work())


def test_a_static_topics_queues_are_asked_of_the_brokers_that_serve_them(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster:
            asked = answer_ends(cluster)
            own = cluster.route()
            mapping = {"scope": "__global__", "totalQueues": 3, "epoch": 1}
            cluster.extra["static"] = TopicRouteData(
                own.queue_datas,
                own.broker_datas,
                topic_queue_mapping_by_broker={
                    "a": {**mapping, "bname": "a", "currIdMap": {0: 0}},
                    "b": {**mapping, "bname": "b", "currIdMap": {1: 0}},
                },
            )
            client = client_of(cluster)
            route = await asyncio.to_thread(client.route, "static")
            assert route is not None
            nobody = MessageQueue("static", "__syslo__global__", 2)
            assert route.read_queues[2] == nobody and client.address_of(nobody) is None
            with pytest.raises(TransportError, match="names an address"):
                client.require_address(nobody)
            ends = await asyncio.to_thread(client.end_offsets, route.read_queues[:2])
            assert list(ends.values()) == [0, 11]
            assert asked == [("a", "__syslo__global__", 0), ("b", "__syslo__global__", 1)]

    asyncio.run(work())


def test_a_missing_topic_is_none_and_a_refusal_is_raised(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", unknown={"gone"}) as cluster:
            refusal = lambda channel, command: response(command, ResponseCode.NO_PERMISSION, remark="no")  # noqa: E731
            cluster.brokers[0].handlers[RequestCode.GET_MAX_OFFSET] = refusal
            client = client_of(cluster)
            assert await asyncio.to_thread(client.route, "gone") is None
            route = await asyncio.to_thread(client.route, "t")
            assert route is not None
            with pytest.raises(NoPermissionError):
                await asyncio.to_thread(client.end_offsets, route.read_queues)

    asyncio.run(work())


def test_a_broker_that_is_away_is_raised_or_told(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b", queue_nums=1) as cluster:
            answer_ends(cluster)
            client = client_of(cluster)
            route = await asyncio.to_thread(client.route, "t")
            assert route is not None
            await cluster.brokers[0].server.close()
            with pytest.raises(TransportError, match="broker a cannot be reached"):
                await asyncio.to_thread(client.end_offsets, route.read_queues)
            away: dict[str, object] = {}
            ends = await asyncio.to_thread(client.end_offsets, route.read_queues, away.__setitem__)
            assert list(ends.values()) == [10] and list(away) == ["a"]

    asyncio.run(work())
