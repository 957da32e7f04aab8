"""The push consumer in POP mode against a cluster of ours."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import aerobee
from aerobee.testing.cluster import LocalCluster


async def _send(cluster: LocalCluster, count: int) -> None:
    async with aerobee.Producer(cluster.namesrv) as producer:
        for number in range(count):
            await producer.send("orders", b"%d" % number, sharding_key="one")


def test_members_share_one_queue() -> None:
    """Three members, messages of one key in one queue: each is handled once, by more than one member."""

    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 60)
        seen: Counter[bytes] = Counter()
        workers: Counter[int] = Counter()
        over = asyncio.Event()
        consumers = []
        for member in range(3):
            consumer = aerobee.PushConsumer(
                cluster.namesrv, group="billing", mode="pop", consume_from="first", concurrency=2
            )

            @consumer.listener("orders")
            async def handle(message: aerobee.Message, member: int = member) -> None:
                seen[message.body] += 1
                workers[member] += 1
                await asyncio.sleep(0.01)
                if len(seen) == 60:
                    over.set()

            consumers.append(consumer)
        for consumer in consumers:
            await consumer.start()
        await asyncio.wait_for(over.wait(), 30)
        for consumer in consumers:
            await consumer.close()
        assert len(seen) == 60 and set(seen.values()) == {1}

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_what_fails_comes_again_and_ends_as_a_dead_letter() -> None:
    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 2)
        tries: Counter[bytes] = Counter()
        over = asyncio.Event()
        consumer = aerobee.PushConsumer(
            cluster.namesrv, group="billing", mode="pop", consume_from="first", max_reconsume_times=1
        )

        @consumer.listener("orders")
        async def handle(message: aerobee.Message) -> None:
            tries[message.body] += 1
            if message.body == b"0":
                if tries[b"0"] == 2:
                    over.set()
                raise aerobee.RetryLater(delay_level=1)

        async with consumer:
            await asyncio.wait_for(over.wait(), 30)
            for _ in range(100):
                if cluster.messages("%DLQ%billing"):
                    break
                await asyncio.sleep(0.1)
        assert tries == {b"0": 2, b"1": 1}
        (dead,) = cluster.messages("%DLQ%billing")
        assert dead.body == b"0"

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_in_order() -> None:
    """An ordered handler that fails once gets its message again before the next one of the queue."""

    async def main(cluster: LocalCluster) -> None:
        await _send(cluster, 20)
        seen: list[bytes] = []
        over = asyncio.Event()
        consumer = aerobee.PushConsumer(
            cluster.namesrv, group="billing", mode="pop", consume_from="first", suspend=0.05
        )

        @consumer.listener("orders", ordered=True)
        async def handle(message: aerobee.Message) -> None:
            seen.append(message.body)
            if message.body == b"7" and seen.count(b"7") == 1:
                raise ValueError("once")
            if message.body == b"19":
                over.set()

        async with consumer:
            await asyncio.wait_for(over.wait(), 30)
        wanted = [b"%d" % number for number in range(20)]
        wanted.insert(7, b"7")
        assert seen == wanted

    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(main(cluster))


def test_a_mode_that_is_none() -> None:
    with pytest.raises(aerobee.InvalidArgumentError, match="queues and pop are known"):
        aerobee.PushConsumer(group="billing", mode="push")
    with pytest.raises(aerobee.InvalidArgumentError, match="cannot go together"):
        aerobee.PushConsumer(group="billing", mode="pop", broadcast=True)
