"""A group of replicas on virtual time: roles change in place, connections stay, old routes go on, settings are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aerobee.admin.connection import AdminConnection
from aerobee.admin.messages import find_message
from aerobee.app.honoured import require_honoured
from aerobee.broker.config import BrokerConfig
from aerobee.errors import ConfigError
from aerobee.model.ids import decode_offset_message_id
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.message import ViewMessageRequestHeader
from aerobee.store.config import BrokerRole, StoreConfig
from aerobee.testing.loop import VirtualLoop
from aerobee.testing.simulation.cluster import NAMESRV_ADDR
from aerobee.testing.simulation.group import GROUP, GroupCluster, GroupLevel, ReplicaHost
from aerobee.testing.simulation.story import Story
from aerobee.testing.simulation.world import World
from aerobee.testing.workload import RawClient

LEVEL = GroupLevel(sync_flush=False, sync_master=True, min_in_sync=2)


def run(main: Callable[[GroupCluster, World], Awaitable[None]], level: GroupLevel = LEVEL) -> None:
    async def body(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        cluster = GroupCluster(world, Story(world.trace, loop.time), level)
        await cluster.start()
        await main(cluster, world)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(body(loop))
    finally:
        loop.bury_all()
        loop.close()


def master_of(cluster: GroupCluster) -> ReplicaHost:
    master = cluster.master()
    assert master is not None
    return master


def client_of(world: World, replica: ReplicaHost) -> RawClient:
    return RawClient(replica.address, world.net.host("10.0.2.9"))


async def switched(cluster: GroupCluster) -> tuple[ReplicaHost, ReplicaHost]:
    """Hand the role over. Return the old and the new master."""
    old = master_of(cluster)
    assert old.node is not None and old.node.group is not None and old.node.group.replica is not None
    assert old.status is not None
    target = next(number for number in old.status.state.in_sync if number != old.status.id)
    await old.node.group.replica.switch_to(target)
    await cluster.ready()
    return old, master_of(cluster)


def test_clients_of_the_old_master_go_on_over_their_connections() -> None:
    async def main(cluster: GroupCluster, world: World) -> None:
        client = client_of(world, master_of(cluster))
        assert (await client.send("plain", 0, b"before")).code == ResponseCode.SUCCESS
        held = asyncio.ensure_future(client.pull("plain", 0, 1, hold_ms=15_000))
        await asyncio.sleep(0.2)
        old, new = await switched(cluster)
        assert old is not new
        # The pull that was held has ended, and its client asks again.
        code, offset, found = await held
        assert (code, found) == (ResponseCode.PULL_NOT_FOUND, [])
        answer = await client.send("plain", 0, b"after")
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "1")
        assert (await client.pull("plain", 0, offset))[2] == [(1, "after")]
        assert old.node is not None and len(old.node.server.channels) > 0
        # Name servers name the new master.
        routes = cluster.namesrvs[0].node
        assert routes is not None
        assert routes.names.state.routes.members(GROUP)[0] == new.address

    run(main)


def test_a_message_is_found_by_its_id_on_every_replica() -> None:
    async def main(cluster: GroupCluster, world: World) -> None:
        master = master_of(cluster)
        sent = await client_of(world, master).send("plain", 0, b"known")
        offset = decode_offset_message_id(sent.ext["msgId"]).physical_offset
        await asyncio.sleep(1)
        master.kill()
        await asyncio.sleep(10)
        for replica in cluster.replicas:
            if replica is not master:
                header = ViewMessageRequestHeader(offset=offset)
                found = await client_of(world, replica).call(RequestCode.VIEW_MESSAGE_BY_ID, header)
                assert found.code == ResponseCode.SUCCESS and b"known" in found.body
        # An administrator finds it too, although the id names a broker that is gone.
        async with AdminConnection(NAMESRV_ADDR, client=RemotingClient(net=world.net.host("10.0.2.9"))) as admin:
            assert (await find_message(admin, sent.ext["msgId"])).body == b"known"

    run(main)


def test_too_few_replicas_in_sync_refuse_a_send_and_store_nothing() -> None:
    async def main(cluster: GroupCluster, world: World) -> None:
        master = master_of(cluster)
        client = client_of(world, master)
        for replica in cluster.replicas:
            if replica is not master:
                replica.kill()
        await asyncio.sleep(5)
        assert master.node is not None
        end = master.node.state.store.log_end
        answer = await client.send("plain", 0, b"alone")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        assert master.node.state.store.log_end == end

    run(main)


def test_a_follower_refuses_writes_and_knows_what_the_master_was_told() -> None:
    async def main(cluster: GroupCluster, world: World) -> None:
        master = master_of(cluster)
        await client_of(world, master).create_topic("new", 3)
        await asyncio.sleep(1)
        for replica in cluster.replicas:
            assert replica.node is not None
            assert replica.node.state.catalog.topic_table.topics["new"].write_queue_nums == 3
            if replica is not master:
                answer = await client_of(world, replica).send("new", 0, b"no")
                assert answer.code == ResponseCode.SYSTEM_BUSY

    run(main)


@pytest.mark.parametrize(
    ("config", "store_config", "words"),
    [
        (BrokerConfig(broker_id=1), StoreConfig(), "brokerId=1"),
        (BrokerConfig(), StoreConfig(broker_role=BrokerRole.SLAVE), "brokerRole=SLAVE"),
        (BrokerConfig(), StoreConfig(in_sync_replicas=2, total_replicas=3), "minInSyncReplicas=2"),
    ],
)
def test_what_a_group_cannot_keep_is_refused(config: BrokerConfig, store_config: StoreConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        require_honoured(config, store_config, coordinated=True)


def test_what_a_group_keeps_is_taken() -> None:
    store = StoreConfig(
        broker_role=BrokerRole.SYNC_MASTER, total_replicas=3, min_in_sync_replicas=2, in_sync_replicas=2
    )
    require_honoured(BrokerConfig(), store, coordinated=True)
