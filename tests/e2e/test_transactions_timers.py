"""Transactions and timed messages through our producer against our own cluster, over kills and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import aerobee
from aerobee import Message
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.workload import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"recallMessageEnable": "true", "brokerFastFailureEnable": "false"}) as running:
        yield running


def bodies(cluster: LocalCluster, topic: str) -> list[bytes]:
    return sorted(message.body for message in cluster.messages(topic))


def test_transactions_end_are_asked_about_and_survive_a_kill(cluster: LocalCluster) -> None:
    cluster.create_topic("tx")
    asked: list[bytes] = []

    def on_check(half: Message) -> bool:
        asked.append(half.body)
        return half.body != b"nobody knows"

    async def work() -> None:
        async with aerobee.Producer(cluster.namesrv, group="tx", on_check=on_check) as producer:
            async with producer.transaction("tx", b"committed"):
                pass
            async with producer.transaction("tx", b"rolled back") as transaction:
                transaction.rollback()
            for body in (b"checked", b"nobody knows"):
                with pytest.raises(ZeroDivisionError):
                    async with producer.transaction("tx", body):
                        1 / 0  # noqa: B018
            assert bodies(cluster, "tx") == [b"committed"]
        cluster.kill(0)
        cluster.restart(0)
        # The one that sent them is gone: another of the group answers.
        async with aerobee.Producer(cluster.namesrv, group="tx", on_check=on_check) as producer:
            await producer.send("other", b"says where it is")
            await eventually(lambda: cluster_has_producer(cluster))
            cluster.advance(seconds=31)
            await eventually(lambda: len(bodies(cluster, "tx")) == 2)
            await eventually(lambda: len(asked) == 2)

    asyncio.run(work())
    assert sorted(asked) == [b"checked", b"nobody knows"]
    assert bodies(cluster, "tx") == [b"checked", b"committed"]


def cluster_has_producer(cluster: LocalCluster) -> bool:
    return "tx" in cluster._nodes[0].state.clients.producers()


def test_timed_messages_come_in_time_and_can_be_cancelled(cluster: LocalCluster) -> None:
    cluster.create_topic("timed")

    async def work() -> None:
        async with aerobee.Producer(cluster.namesrv) as producer:
            cancelled = await producer.send("timed", b"cancelled", delay=3600)
            await producer.send("timed", b"hour", delay=3600)
            at_ms = cluster.clock.now_ms() + 7_200_000
            await producer.send("timed", b"two hours", deliver_at=at_ms)
            assert await producer.cancel(cancelled) == cancelled.message_id
            cluster.advance(minutes=59)
            cluster.kill(0)
            cluster.restart(0)
            await eventually(lambda: cluster._nodes[0].broker.timers.ledger.is_settled)
            assert bodies(cluster, "timed") == []
            cluster.advance(minutes=2)
            await eventually(lambda: bodies(cluster, "timed") == [b"hour"])
            cluster.advance(hours=1)
            await eventually(lambda: bodies(cluster, "timed") == [b"hour", b"two hours"])

    asyncio.run(work())
