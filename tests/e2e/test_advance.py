"""LocalCluster.advance: what falls due has happened when it returns, and nobody is disconnected by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import aerobee
from aerobee import Message, MessageQueue, RetryLater
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import PATIENCE_S, Seen
from aerobee.testing.workload import eventually

# The servers look for idle connections once a second.
SWEEP_S = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


def test_delays_and_timers_are_in_their_queues_when_it_returns(cluster: LocalCluster) -> None:
    """More of each than a broker delivers in one round or takes in with one tick."""
    levels, timers = 1_100, 2_300
    cluster.create_topic("due")
    with Producer(cluster.namesrv, max_in_flight=5_000, timeout=60) as producer:
        # The last ones must be due, too, not only the first.
        futures = [producer.send_nowait("due", b"level", delay_level=18) for _ in range(levels)]
        futures += [producer.send_nowait("due", b"timer", delay=3_600) for _ in range(timers)]
        for future in futures:
            future.result(PATIENCE_S)
    cluster.advance(minutes=59)
    assert cluster.messages("due") == []
    cluster.advance(minutes=2)
    assert [message.body for message in cluster.messages("due")] == [b"timer"] * timers
    cluster.advance(hours=1)
    assert len(cluster.messages("due")) == levels + timers


@pytest.mark.parametrize("step_s", [0.05, 0.2])
def test_small_steps_miss_nothing(cluster: LocalCluster, step_s: float) -> None:
    """A level is looked at ten times a second: a step must not end between two looks."""
    topic = f"small-{int(step_s * 100)}"
    cluster.create_topic(topic)
    with Producer(cluster.namesrv) as producer:
        for _ in range(5):
            count = len(cluster.messages(topic))
            producer.send(topic, b"x", delay_level=1)
            until_ms = cluster.clock.now_ms() + 1_000
            is_due = False
            while not is_due:
                is_due = cluster.clock.now_ms() + step_s * 1000 >= until_ms
                cluster.advance(seconds=step_s)
            assert len(cluster.messages(topic)) == count + 1


def test_half_messages_were_asked_about_when_it_returns(cluster: LocalCluster) -> None:
    cluster.create_topic("halves")
    asked = threading.Semaphore(0)

    def on_check(half: Message) -> bool:
        asked.release()
        return True

    with Producer(cluster.namesrv, group="halves", on_check=on_check) as producer:
        for _ in range(20):
            with pytest.raises(ZeroDivisionError), producer.transaction("halves", b"half"):
                1 / 0  # noqa: B018
        before = [node.broker.transactions.asked for node in cluster._nodes.values()]
        cluster.advance(seconds=31)
        after = [node.broker.transactions.asked for node in cluster._nodes.values()]
        assert sum(after) - sum(before) == 20
        for _ in range(20):
            assert asked.acquire(timeout=PATIENCE_S)


def test_hours_disconnect_nobody_and_take_no_queue_away(cluster: LocalCluster) -> None:
    cluster.create_topic("kept", queues=2)
    revoked: list[MessageQueue] = []

    async def main() -> None:
        seen = Seen()
        plain = aerobee.PushConsumer(cluster.namesrv, group="kept", consume_from="first", on_revoked=revoked.extend)
        ordered = aerobee.PushConsumer(cluster.namesrv, group="kept-o", consume_from="first", on_revoked=revoked.extend)
        plain.listener("kept")(_noting(seen))
        ordered.listener("kept", ordered=True)(_noting(seen))
        async with plain, ordered, aerobee.Producer(cluster.namesrv) as producer:
            for _ in range(8):
                await producer.send("kept", b"before")
            await seen.count(16)
            before = connections(cluster)
            owned = ordered.assignment()
            # Not only the first jump.
            for _ in range(3):
                cluster.advance(minutes=121)
                for _ in range(8):
                    await producer.send("kept", b"between")
            await asyncio.sleep(1.5 * SWEEP_S)
            await seen.count(64)
            assert connections(cluster) == before
            assert ordered.assignment() == owned and len(owned) == 4 and revoked == []
            assert [node.state.clients.consumer_ids("kept") for node in cluster._nodes.values()] == [
                [plain.client_id],
                [plain.client_id],
            ]

    asyncio.run(asyncio.wait_for(main(), 100))


def connections(cluster: LocalCluster) -> list[set[int]]:
    """Of each broker; one that was lost and made again has another number."""
    return [set(node.server.channels) for node in cluster._nodes.values()]


def _noting(seen: Seen) -> aerobee.Handler:
    async def handle(message: Message) -> None:
        seen.add(message)

    return handle


def test_sixteen_retries_pass_in_moments(cluster: LocalCluster) -> None:
    cluster.create_topic("hopeless", queues=1)

    async def main() -> None:
        seen = Seen()
        consumer = aerobee.PushConsumer(cluster.namesrv, group="hopeless", consume_from="first")

        @consumer.listener("hopeless")
        async def handle(message: Message) -> None:
            seen.add(message)
            raise RetryLater

        async with consumer, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("hopeless", b"x")
            for tries in range(1, 18):
                await seen.count(tries)
                # Until it was given back; then its time comes.
                async with asyncio.timeout(PATIENCE_S):
                    while len(cluster.messages("%RETRY%hopeless")) < min(tries, 16):
                        await asyncio.sleep(0.02)
                        cluster.advance(hours=2)
            await eventually(lambda: cluster.messages("%DLQ%hopeless"))
        assert [message.reconsume_times for message in seen.messages] == list(range(17))

    asyncio.run(asyncio.wait_for(main(), 100))


def test_what_has_expired_is_gone_when_it_returns() -> None:
    hours = ";".join(f"{hour:02}" for hour in range(24))
    settings = {
        "mappedFileSizeCommitLog": str(1 << 20),
        "maxMessageSize": "250000",
        "fileReservedTime": "1",
        "deleteWhen": hours,
    }
    with LocalCluster(settings=settings) as cluster:
        cluster.create_topic("old", queues=1)
        with Producer(cluster.namesrv, compression=None) as producer:
            for _ in range(60):  # 15 segments; a broker's round of cleaning takes 10
                producer.send("old", bytes(200_000))
        assert len(cluster.messages("old")) == 60
        cluster.advance(minutes=30)
        assert len(cluster.messages("old")) == 60
        cluster.advance(hours=2)
        # All but the segment that is written.
        assert 0 < len(cluster.messages("old")) <= 5


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_time_does_not_go_back(cluster: LocalCluster, seconds: float) -> None:
    with pytest.raises(aerobee.InvalidArgumentError, match="cannot be advanced"):
        cluster.advance(seconds=seconds)
