"""Tests of your own application against a real cluster: `pytest examples/test_orders.py`.

`pip install aerobee` installs the fixtures. No server need run.
"""

import asyncio

import aerobee
from aerobee import Message
from aerobee.testing.cluster import LocalCluster


async def place_order(namesrv: str, order: str) -> None:
    """Place an order. This is the application under test."""
    async with aerobee.Producer(namesrv) as producer:
        await producer.send("placed", order.encode(), keys=order)


def test_an_order_is_sent(aerobee_cluster: LocalCluster) -> None:
    aerobee_cluster.create_topic("placed")
    asyncio.run(place_order(aerobee_cluster.namesrv, "42"))
    assert [message.keys for message in aerobee_cluster.messages("placed")] == ["42"]


def test_a_reminder_comes_two_hours_later(aerobee_fresh_cluster: LocalCluster) -> None:
    """Move the time forward: delays, retries and expiry then happen at once."""
    cluster = aerobee_fresh_cluster
    consumer = aerobee.PushConsumer(cluster.namesrv, group="reminders", consume_from="first")

    @consumer.listener("reminder")
    async def handle(message: Message) -> None:
        consumer.stop()

    async def main() -> None:
        async with aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("reminder", b"pay!", delay_level=18)
        cluster.advance(hours=2)
        await consumer.run()

    cluster.create_topic("reminder")
    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_broker_dies_and_orders_go_on(aerobee_fresh_cluster: LocalCluster) -> None:
    cluster = aerobee_fresh_cluster
    cluster.create_topic("placed")
    cluster.kill(0)
    asyncio.run(place_order(cluster.namesrv, "43"))
    cluster.restart(0)
    assert len(cluster.messages("placed")) == 1
