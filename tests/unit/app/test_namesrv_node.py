"""The life of a name server: its port, what it keeps over a restart, brokers that come and go."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.app.namesrv import NamesrvNode
from aerobee.namesrv.config import NamesrvConfig
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.kv import GetKVConfigRequestHeader, PutKVConfigRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.workload import RawClient, eventually

HOST = "127.0.0.1"


def node_on(disk: RecordingDisk, port: int = 0) -> NamesrvNode:
    config = NamesrvConfig(listen_port=port, kv_config_path="/store/kv.json")
    return NamesrvNode(config, disk, SystemClock(), host=HOST)


def test_it_serves_its_port_until_stopped_and_keeps_its_table_over_a_restart() -> None:
    async def main() -> None:
        disk = RecordingDisk(seed=1)
        node = node_on(disk)
        await node.start()
        client = RawClient(f"{HOST}:{node.port}")
        await client.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="n", key="k", value="v"))
        await client.close()
        await node.stop()
        with socket.socket() as probe:
            assert probe.connect_ex((HOST, node.port)) != 0
        again = node_on(disk, node.port)
        await again.start()
        assert again.port == node.port
        client = RawClient(f"{HOST}:{again.port}")
        answer = await client.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="n", key="k"))
        assert answer.ext["value"] == "v"
        await client.close()
        await again.stop()

    asyncio.run(main())


def test_a_port_in_use_is_an_error_at_once() -> None:
    async def main() -> None:
        first = node_on(RecordingDisk(seed=1))
        await first.start()
        second = node_on(RecordingDisk(seed=1), first.port)
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await first.stop()

    asyncio.run(main())


def test_a_broker_that_dies_is_gone_from_the_cluster_and_comes_back(standing: Callable[[], Any]) -> None:
    async def brokers(client: RawClient) -> set[str]:
        answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return set(ClusterInfo.decode(answer.body).broker_addr_table)

    async def main() -> None:
        async with standing() as stand:
            client = RawClient(stand.namesrv)
            node = stand.broker()
            await node.start()
            assert await brokers(client) == {"broker-a"}
            await node.die()

            async def is_alone() -> bool:
                return not await brokers(client)

            await eventually(is_alone)
            again = stand.broker(port=node.port)
            await again.start()
            assert await brokers(client) == {"broker-a"}
            await client.close()
            await again.stop()

    asyncio.run(main())


def test_an_unknown_request_is_refused_and_the_connection_stays() -> None:
    async def main() -> None:
        node = node_on(RecordingDisk(seed=1))
        await node.start()
        client = RawClient(f"{HOST}:{node.port}")
        assert (await client.call(9_999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await client.call(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
        await client.close()
        await node.stop()

    asyncio.run(main())
