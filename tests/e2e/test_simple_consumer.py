"""The simple consumer against a cluster of ours, as a user writes it."""

from __future__ import annotations

import asyncio

import pytest

import aerobee
from aerobee.testing.cluster import LocalCluster


async def _send(cluster: LocalCluster, count: int, topic: str = "orders") -> None:
    async with aerobee.Producer(cluster.namesrv) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, tags="PAID" if number % 2 else "OPEN")


def test_receive_and_ack() -> None:
    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 20)
        async with aerobee.SimpleConsumer(
            cluster.namesrv, group="billing", subscribe={"orders": "*"}, consume_from="first"
        ) as consumer:
            seen: list[bytes] = []
            while len(seen) < 20:
                messages = await consumer.receive(max_messages=8, invisible=10.0, wait=5.0)
                assert messages
                assert all(isinstance(one, aerobee.PoppedMessage) for one in messages)
                assert messages[0].topic == "orders" and messages[0].delivery_attempt == 1
                seen += [one.body for one in messages]
                await consumer.ack_all(messages[1:])
                await consumer.ack(messages[0])
            assert sorted(map(bytes, seen)) == sorted(b"%d" % number for number in range(20))
            assert await consumer.receive(wait=0.2) == []
            with pytest.raises(aerobee.HandleExpiredError):
                await consumer.ack(messages[0])

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_what_is_not_acknowledged_comes_again() -> None:
    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 2)
        async with aerobee.SimpleConsumer(
            cluster.namesrv, group="billing", subscribe={"orders": "PAID"}, consume_from="first"
        ) as consumer:
            (first,) = await consumer.receive(invisible=30.0, wait=5.0)
            assert first.body == b"1"
            await consumer.change_invisible(first, 0.0)
            (again,) = await consumer.receive(invisible=0.5, wait=5.0)
            assert (again.body, again.delivery_attempt, again.topic) == (b"1", 2, "orders")
            (third,) = await consumer.receive(invisible=5.0, wait=5.0)
            assert (third.body, third.delivery_attempt) == (b"1", 3)
            await consumer.ack(third)

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_a_message_waits_for_nobody() -> None:
    """A message that comes while somebody waits is handed out at once, also over several topics."""

    async def main(cluster: LocalCluster) -> None:
        async with aerobee.SimpleConsumer(
            cluster.namesrv, group="billing", subscribe={"orders": "*", "bills": "*"}
        ) as consumer:
            waiting = asyncio.create_task(consumer.receive(wait=20.0))
            await asyncio.sleep(0)
            await _send(cluster, 1, "bills")
            (message,) = await asyncio.wait_for(waiting, 15)
            assert message.topic == "bills"
            await consumer.ack(message)

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("bills")
        asyncio.run(main(cluster))


def test_a_message_is_renewed_while_its_program_works() -> None:
    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 1)
        async with aerobee.SimpleConsumer(
            cluster.namesrv, group="billing", subscribe={"orders": "*"}, consume_from="first", renew=True
        ) as consumer:
            (message,) = await consumer.receive(invisible=1.5, wait=5.0)
            assert await consumer.receive(invisible=1.5, wait=4.0) == []
            await consumer.ack(message)
            assert await consumer.receive(invisible=1.5, wait=2.0) == []

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_it_goes_on_over_a_restart_of_the_broker() -> None:
    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 10)
        async with aerobee.SimpleConsumer(
            cluster.namesrv, group="billing", subscribe={"orders": "*"}, consume_from="first"
        ) as consumer:
            seen: set[bytes] = set()
            first = await consumer.receive(max_messages=4, invisible=8.0, wait=5.0)
            await asyncio.to_thread(cluster.kill, 0)
            await asyncio.to_thread(cluster.restart, 0)
            for one in first:
                await _try(consumer.ack(one))
                seen.add(one.body)
            while len(seen) < 10:
                for one in await _try(consumer.receive(invisible=8.0, wait=5.0)) or []:
                    assert one.body not in seen
                    seen.add(one.body)
                    await consumer.ack(one)

    async def _try(work):  # type: ignore[no-untyped-def]
        try:
            return await work
        except aerobee.TransportError:
            await asyncio.sleep(0.2)
            return None

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_the_synchronous_one() -> None:
    from aerobee.sync import SimpleConsumer

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(_send(cluster, 3))
        with SimpleConsumer(
            cluster.namesrv, group="billing", subscribe={"orders": "*"}, consume_from="first"
        ) as consumer:
            seen: list[bytes] = []
            while len(seen) < 3:
                messages = consumer.receive(wait=5.0)
                seen += [one.body for one in messages]
                consumer.ack_all(messages)
        assert sorted(seen) == [b"0", b"1", b"2"]
