"""Our consumers with SQL92 filters against our cluster: what matches, what is missing, restarts, wrong expressions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aerobee import BrokerError, Message, Producer, PushConsumer
from aerobee.testing.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"enablePropertyFilter": "true", "brokerFastFailureEnable": "false", "enableCalcFilterBitMap": "true"}
    with LocalCluster(settings=settings) as running:
        yield running


async def send(cluster: LocalCluster, topic: str, *prices: str | None) -> None:
    async with Producer(cluster.namesrv) as producer:
        for price in prices:
            properties = {} if price is None else {"price": price}
            await producer.send(topic, (price or "none").encode(), properties=properties)


class Taken:
    """What a consumer got, to be waited for."""

    def __init__(self, cluster: LocalCluster, topic: str, sql92: str) -> None:
        self.consumer = PushConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first")
        self.bodies: list[bytes] = []
        self._changed = asyncio.Event()

        @self.consumer.listener(topic, sql92=sql92)
        async def take(message: Message) -> None:
            self.bodies.append(message.body)
            self._changed.set()

    async def until(self, *bodies: bytes, once: bool = True) -> None:
        async with asyncio.timeout(30):
            while not set(bodies) <= set(self.bodies):
                self._changed.clear()
                await self._changed.wait()
        assert sorted(self.bodies if once else set(self.bodies)) == sorted(bodies)


def test_a_push_consumer_gets_what_matches_also_after_a_restart(cluster: LocalCluster) -> None:
    async def main() -> None:
        cluster.create_topic("prices", queues=2)
        await send(cluster, "prices", "1", "15", None, "x", "99", "20")
        taken = Taken(cluster, "prices", "price BETWEEN 10 AND 20")
        async with taken.consumer:
            await taken.until(b"15", b"20")
            await send(cluster, "prices", "7", None, "11")
            await taken.until(b"15", b"20", b"11")
            await asyncio.to_thread(cluster.restart, 0)
            async with asyncio.timeout(20):
                while True:
                    try:
                        await send(cluster, "prices", "8", None, "12")
                        break
                    except BrokerError:
                        continue
            # What was taken and not yet committed may come twice after a restart.
            await taken.until(b"15", b"20", b"11", b"12", once=False)
        assert set(taken.bodies) == {b"15", b"20", b"11", b"12"}

    asyncio.run(main())


def test_unknown_is_asked_for_in_words(cluster: LocalCluster) -> None:
    async def main() -> None:
        cluster.create_topic("unknown", queues=1)
        await send(cluster, "unknown", "1", None, "2")
        taken = Taken(cluster, "unknown", "price IS NULL OR price = 2")
        async with taken.consumer:
            await taken.until(b"none", b"2")

    asyncio.run(main())


def test_a_wrong_expression_stops_the_start_with_the_place(cluster: LocalCluster) -> None:
    async def main() -> None:
        cluster.create_topic("wrong", queues=1)
        with pytest.raises(BrokerError) as refused:
            await Taken(cluster, "wrong", "price > 'x'").consumer.start()
        assert "only numbers can be compared by size" in str(refused.value)
        assert "  price > 'x'\n          ^" in str(refused.value)

    asyncio.run(main())
