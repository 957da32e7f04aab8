"""Registration with name servers, and without any."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.app.namesrv import NamesrvNode
from aerobee.broker.config import BrokerConfig
from aerobee.broker.topics.registrar import Registrar, Standing
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.tasks import Tasks
from aerobee.testing.brokerkit import BrokerKit
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.net import SimNet


@pytest.mark.parametrize("turns", range(5))
def test_a_stop_is_heard_beside_a_change_of_topics(turns: int) -> None:
    """However many turns of the loop after the change it comes. `asyncio.wait_for` once swallowed it, and the broker
    never stopped."""

    async def body() -> None:
        client = RemotingClient()
        config = BrokerConfig(namesrv_addr="127.0.0.1:1")
        kit = BrokerKit(RecordingDisk(seed=1), SystemClock())
        registrar = Registrar(config, "broker-a", "127.0.0.1:2", kit.state.catalog, client, SystemClock())
        tasks = Tasks()
        await registrar.start(tasks)
        await asyncio.sleep(0.01)
        registrar._topics_changed([])
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(tasks.close())
        await asyncio.wait([closing], timeout=2)
        heard = closing.done()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([closing])
        await client.close()
        kit.close()
        assert heard

    asyncio.run(body())


def test_a_broker_registers_as_what_it_stands_for_and_an_old_master_loses() -> None:
    """Name servers take the master of the highest epoch, whoever speaks last."""

    async def body(loop: VirtualLoop) -> None:
        net, clock = SimNet(loop, seed=1), VirtualClock(loop.time)
        node = NamesrvNode(
            NamesrvConfig(listen_port=9876), RecordingDisk(seed=1), clock, host="10.0.0.1", net=net.host("10.0.0.1")
        )
        await node.start()
        members = node.names.state.routes.members
        async with Tasks() as tasks:
            old, new = [await registered(net, clock, host, tasks) for host in ("10.0.1.1", "10.0.1.2")]
            old.stand(Standing(broker_id=0, epoch=1, ha_address="10.0.1.1:10912"))
            await asyncio.sleep(0.1)
            new.stand(Standing(broker_id=2, epoch=1))
            told: list[tuple[str, str]] = []
            new.on_master_told = lambda *addresses: told.append(addresses)
            await asyncio.sleep(0.1)
            assert members("broker-a") == {0: "10.0.1.1:10911", 2: "10.0.1.2:10911"}
            assert told == [("10.0.1.1:10911", "10.0.1.1:10912")]
            new.stand(Standing(broker_id=0, epoch=2))
            await asyncio.sleep(0.1)
            assert members("broker-a") == {0: "10.0.1.2:10911"}
            # The old master does not know yet that it was deposed.
            old.stand(Standing(broker_id=0, epoch=1))
            await asyncio.sleep(60)
            assert members("broker-a") == {0: "10.0.1.2:10911"}
            old.stand(Standing(broker_id=1, epoch=2))
            await asyncio.sleep(0.1)
            assert members("broker-a") == {0: "10.0.1.2:10911", 1: "10.0.1.1:10911"}
            # Who knows of no role says nothing; name servers forget it after a while.
            old.stand(None)
            await asyncio.sleep(200)
            assert members("broker-a") == {0: "10.0.1.2:10911"}
            for registrar in (old, new):
                await registrar.stop()
            assert members("broker-a") == {}
        await node.stop()

    run_virtual(body)


def test_a_topic_is_answered_when_the_name_server_knows_it() -> None:
    """Or a second later, where the name server does not answer."""

    async def body(loop: VirtualLoop) -> None:
        net, clock = SimNet(loop, seed=1), VirtualClock(loop.time)
        node = NamesrvNode(
            NamesrvConfig(listen_port=9876), RecordingDisk(seed=1), clock, host="10.0.0.1", net=net.host("10.0.0.1")
        )
        await node.start()
        kit = BrokerKit(RecordingDisk(seed=1), clock)
        client = kit.connect()

        async def make(topic: str) -> float:
            """Return how many seconds the answer took."""
            began_s = clock.monotonic()
            header = CreateTopicRequestHeader(
                topic=topic, default_topic="", read_queue_nums=1, write_queue_nums=1, perm=6,
                topic_filter_type="SINGLE_TAG",
            )  # fmt: skip
            client.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, header, opaque=1))
            while not (answers := await client.answers()):
                kit.tick()
                await asyncio.sleep(0.0001)
            assert answers[0].code == 0, answers
            return clock.monotonic() - began_s

        async with Tasks() as tasks:
            registrar = await registered(net, clock, "10.0.1.1", tasks, kit)
            registrar.stand(Standing(broker_id=0, epoch=1))
            await asyncio.sleep(0.1)
            for number in range(5):
                await make(f"made-{number}")
                assert f"made-{number}" in node.names.state.routes.topics()
            net.stop("10.0.0.1")
            assert 0.9 < await make("nobody-knows") < 1.5
            net.go_on("10.0.0.1")
            async with asyncio.timeout(60):
                while "nobody-knows" not in node.names.state.routes.topics():
                    kit.tick()
                    await asyncio.sleep(0.1)
            await node.stop()
            await make("refused")
            assert await make("nobody-is-waited-for") < 0.1

    run_virtual(body)


async def registered(
    net: SimNet, clock: VirtualClock, host: str, tasks: Tasks, kit: BrokerKit | None = None
) -> Registrar:
    config = BrokerConfig(namesrv_addr="10.0.0.1:9876", broker_id=9)
    kit = kit or BrokerKit(RecordingDisk(seed=1), clock)
    client = RemotingClient(net=net.host(host))
    registrar = Registrar(config, "broker-a", f"{host}:10911", kit.state.catalog, client, clock)
    await registrar.start(tasks)
    return registrar
