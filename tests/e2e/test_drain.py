"""A rolling restart: each of three broker groups is drained, stopped, started and let in again while messages flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aerobee import LitePullConsumer, Producer, SendReceipt
from aerobee.admin.cluster import change_broker_settings, runtime_info
from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.errors import AerobeeError
from aerobee.runtime.tasks import Tasks
from aerobee.testing.processes import ProcessCluster

RATE = 2000
BROKERS = 3
KEY = "brokerPermission"


class Load:
    """A producer that sends at a fixed rate. It does not know of the restarts."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.stored: list[bytes] = []
        self.errors: list[AerobeeError] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began_s, number = loop.time(), 0
        while True:
            while number < (loop.time() - began_s) * RATE:
                number += 1
                self._producer.send_nowait("orders", b"%d" % number).add_done_callback(self._answered(b"%d" % number))
            await asyncio.sleep(0.005)

    def _answered(self, body: bytes) -> Callable[[asyncio.Future[SendReceipt]], None]:
        def answered(future: asyncio.Future[SendReceipt]) -> None:
            error = None if future.cancelled() else future.exception()
            if isinstance(error, AerobeeError):
                self.errors.append(error)
            elif not future.cancelled():
                self.stored.append(body)

        return answered


async def taken(admin: AdminConnection, address: str) -> str:
    return (await runtime_info(admin, address))["msgPutTotalTodayNow"]


async def restart(cluster: ProcessCluster, admin: AdminConnection, broker: int) -> None:
    """Do what docs/operations.md says of a broker that is out for a while."""
    address, name = cluster.brokers[broker].address, cluster.broker_name(broker)
    await change_broker_settings(admin, {KEY: "4"}, broker=name)
    # Nothing has come for as long as a producer may take for its tries.
    before, quiet = await taken(admin, address), 0
    async with asyncio.timeout(40):
        while quiet < 4:
            await asyncio.sleep(0.25)
            now = await taken(admin, address)
            before, quiet = now, quiet + 1 if now == before else 0
    assert await cluster.brokers[broker].stop() == 0
    await cluster.brokers[broker].start()
    await change_broker_settings(admin, {}, unset=[KEY], broker=name)


def test_drain_and_rolling_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            ProcessCluster(tmp_path, brokers=BROKERS) as cluster,
            AdminConnection(cluster.namesrv.address) as admin,
        ):
            await create_topic(admin, "orders", TopicChange(2, 2))
            async with Producer(cluster.namesrv.address, max_in_flight=10_000) as producer, Tasks() as tasks:
                load = Load(producer)
                tasks.start(load.run(), name="load")
                for broker in range(BROKERS):
                    await restart(cluster, admin, broker)
                await asyncio.sleep(0.5)
                await tasks.close()
                await producer.flush()
            assert load.errors == []
            assert len(load.stored) > RATE
            read: list[bytes] = []
            async with LitePullConsumer(cluster.namesrv.address, group="reader", consume_from="first") as consumer:
                consumer.subscribe("orders")
                async with asyncio.timeout(60):
                    while set(load.stored) - set(read):
                        read += [message.body for message in await consumer.poll(1000, timeout=2)]
            print(f"{len(load.stored)} stored, {len(read)} read")

    asyncio.run(main())
