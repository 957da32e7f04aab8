"""A master and a slave with the roles that their settings give them: brokers on loopback, disks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import aerobee
from aerobee.app.broker import BrokerNode
from aerobee.app.honoured import require_honoured
from aerobee.broker.config import BrokerConfig
from aerobee.errors import AerobeeError, ConfigError
from aerobee.model.dialect import loads_object
from aerobee.model.route import TopicRouteData
from aerobee.protocol.bodies.cluster import HARuntimeInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.store.config import BrokerRole, StoreConfig
from aerobee.testing.hakit import log_bytes
from aerobee.testing.workload import RawClient, eventually, pull_header

Standing = Callable[[], Any]
QUICK = {"ha_send_heartbeat_interval_ms": 500, "ha_housekeeping_interval_ms": 3000, "ha_transfer_batch_size": 4096}


def master(stand: Any, **store_settings: Any) -> BrokerNode:
    given = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2, "total_replicas": 2, **QUICK}
    given = {"ha_listen_port": 0, "ha_max_gap_not_in_sync": 1 << 20, **given, **store_settings}
    node: BrokerNode = stand.broker(settings={"broker_ip2": "127.0.0.1"}, store_settings=given)
    return node


def slave(stand: Any, ha_master_address: str | None = None, **settings: Any) -> BrokerNode:
    node: BrokerNode = stand.broker(
        root="/store/slave",
        settings={"broker_id": 1, **settings},
        store_settings={"broker_role": BrokerRole.SLAVE, "ha_master_address": ha_master_address, **QUICK},
    )
    return node


@asynccontextmanager
async def started(*nodes: BrokerNode) -> AsyncIterator[list[RawClient]]:
    """Start brokers; yield a client of each."""
    clients: list[RawClient] = []
    running: list[BrokerNode] = []
    try:
        for node in nodes:
            await node.start()
            running.append(node)
            clients.append(RawClient(f"127.0.0.1:{node.port}"))
        yield clients
    finally:
        for client in clients:
            await client.close()
        for node in reversed(running):
            await node.stop()


async def level(first: BrokerNode, second: BrokerNode) -> None:
    async def is_level() -> bool:
        return first.state.store.log_end == second.state.store.log_end

    await eventually(is_level)


async def ha_status(client: RawClient) -> HARuntimeInfo:
    return HARuntimeInfo.decode((await client.call(RequestCode.GET_BROKER_HA_STATUS)).body)


def test_a_slave_copies_the_log_and_the_tables(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            one, two = master(stand, in_sync_replicas=1), slave(stand, slave_read_enable=True)
            async with started(one, two) as (to_master, to_slave):
                await to_master.create_topic("T", 3)
                for number in range(50):
                    answer = await to_master.send("T", number % 3, b"%d" % number * 200)
                    assert answer.code == ResponseCode.SUCCESS
                await level(one, two)
                assert log_bytes(one.state.store) == log_bytes(two.state.store)
                assert two.role.sync is not None
                assert await two.role.sync.once()
                topic = two.state.catalog.find("T")
                assert topic is not None
                assert topic.read_queue_nums == 3
                code, _, found = await to_slave.pull("T", 0, 0, hold_ms=0)
                assert (code, len(found)) == (ResponseCode.SUCCESS, 17)
                shown = await ha_status(to_master)
                assert (shown.master, shown.in_sync_slave_nums) == (True, 1)
                assert shown.ha_connection_info[0].diff == 0
                told = await ha_status(to_slave)
                assert (told.master, told.ha_client_runtime_info.activated) == (False, True)
                assert told.ha_client_runtime_info.max_offset == one.state.store.log_end
                client = RawClient(stand.namesrv)
                await two.registrar.register_now()
                route = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T"))
                await client.close()
                data = TopicRouteData.from_json(loads_object(route.body))
                assert sorted(data.broker_datas[0].broker_addrs) == [0, 1]

    asyncio.run(main())


def test_a_reader_that_is_far_behind_is_sent_to_the_slave_and_one_that_is_near_back(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            one = stand.broker(
                settings={"slave_read_enable": True, "broker_ip2": "127.0.0.1"},
                store_settings={"ha_listen_port": 0, "total_replicas": 2, **QUICK},
            )
            two = slave(stand, slave_read_enable=True)
            async with started(one, two) as (to_master, to_slave):
                for node in (one, two):
                    node.state.store.reads.memory_bytes = 0
                    node.state.store.reads.hot_bytes = 50_000
                await to_master.create_topic("T", 1)
                for number in range(100):
                    await to_master.send("T", 0, b"%d" % number * 500)
                await level(one, two)
                assert two.role.sync is not None
                assert await two.role.sync.once()
                for client, offset, suggested in (
                    (to_master, 0, "1"),
                    (to_master, 99, "0"),
                    (to_slave, 0, "1"),
                    (to_slave, 99, "0"),
                ):
                    header = pull_header("T", 0, offset, "raw", 0, 4)
                    answer = await client.call(RequestCode.PULL_MESSAGE, header)
                    assert (answer.code, answer.ext["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, suggested)
                commit = UpdateConsumerOffsetRequestHeader(consumer_group="raw", topic="T", queue_id=0, commit_offset=7)
                assert (await to_slave.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == ResponseCode.SUCCESS
                assert two.state.offsets.table["T@raw"] == {0: 7}

    asyncio.run(main())


def test_a_send_waits_for_the_slave_and_says_when_it_did_not_come(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            one, two = master(stand, slave_timeout_ms=300), slave(stand)
            async with started(one) as (to_master,):
                await to_master.create_topic("T", 1)
                answer = await to_master.send("T", 0, b"alone")
                assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert answer.ext["queueOffset"] == "0"
                code, _, found = await to_master.pull("T", 0, 0, hold_ms=0)
                assert (code, len(found)) == (ResponseCode.SUCCESS, 1), "readers see a message at once"
                async with started(two) as (to_slave,):
                    await level(one, two)
                    answer = await to_master.send("T", 0, b"both")
                    assert answer.code == ResponseCode.SUCCESS
                    assert two.state.store.log_end == one.state.store.log_end
                    refused = await to_slave.send("T", 0, b"no")
                    assert refused.code == ResponseCode.SYSTEM_BUSY
                    assert "REJECTREQUEST" in (refused.remark or "")
                    with pytest.raises(AerobeeError, match="REJECTREQUEST"):
                        await to_slave.pull("T", 0, 0, hold_ms=0)  # slaveReadEnable is off
                answer = await to_master.send("T", 0, b"alone again")
                assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT

    asyncio.run(main())


def test_consumers_read_from_the_slave_while_the_master_is_gone(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            one, two = master(stand, in_sync_replicas=1), slave(stand, slave_read_enable=True)
            await one.start()
            to_master = RawClient(f"127.0.0.1:{one.port}")
            async with started(two):
                await to_master.create_topic("T", 2)
                for number in range(40):
                    await to_master.send("T", number % 2, b"%d" % number)
                await level(one, two)
                assert two.role.sync is not None
                assert await two.role.sync.once()
                await two.registrar.register_now()
                await to_master.close()
                await one.die()
                came: set[bytes] = set()
                everything = asyncio.Event()
                consumer = aerobee.PushConsumer(stand.namesrv, group="billing", consume_from="first")

                @consumer.listener("T")
                async def handle(message: aerobee.Message) -> None:
                    came.add(message.body)
                    if len(came) == 40:
                        everything.set()

                async with consumer:
                    await asyncio.wait_for(everything.wait(), 30)

                async def is_committed() -> bool:
                    return sum(two.state.offsets.table.get("T@billing", {}).values()) == 40

                await eventually(is_committed)

    asyncio.run(main())


def test_a_slave_that_comes_back_goes_on_where_it_was(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            one = master(stand, in_sync_replicas=1)
            async with started(one) as (to_master,):
                await to_master.create_topic("T", 1)
                for _ in range(3):
                    two = slave(stand)
                    await two.start()
                    for number in range(20):
                        await to_master.send("T", 0, b"%d" % number)
                    await level(one, two)
                    await two.die()
                    for number in range(20):
                        await to_master.send("T", 0, b"%d" % number)
                two = slave(stand, ha_master_address=one.role.standing.ha_address)
                async with started(two):
                    await level(one, two)
                    assert log_bytes(one.state.store) == log_bytes(two.state.store)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "store_settings", "word"),
    [
        ({"broker_id": 1}, {}, "brokerId=1"),
        ({}, {"broker_role": BrokerRole.SLAVE}, "brokerRole=SLAVE"),
        ({}, {"in_sync_replicas": 2, "total_replicas": 2}, "inSyncReplicas=2"),
        ({}, {"min_in_sync_replicas": 2, "total_replicas": 2}, "minInSyncReplicas=2"),
    ],
)
def test_roles_that_contradict_each_other_are_refused(
    settings: dict[str, Any], store_settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        require_honoured(BrokerConfig(**settings), StoreConfig(**store_settings))
