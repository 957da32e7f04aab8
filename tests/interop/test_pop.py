"""POP between Apache's software and ours: our consumers at both kinds of broker, and Java's push consumer at ours."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import aerobee
from aerobee.admin.connection import AdminConnection
from aerobee.admin.pops import set_mode
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import send
from aerobee.testing.javachecks import of_kind
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.place import Place


@pytest.fixture
def topic(request: pytest.FixtureRequest, place: Place) -> str:
    name = f"p-{request.node.name[5:60]}".replace("[", "-").replace("]", "")
    place.create_topic(name)
    return name


def test_simple_consumer(place: Place, topic: str) -> None:
    """Receive, acknowledge one by one and together, give back, and receive again: at Apache's broker and at ours."""

    async def main() -> None:
        await send(place.namesrv, topic, 40)
        seen: Counter[bytes] = Counter()
        async with aerobee.SimpleConsumer(
            place.namesrv, group=f"{topic}-g", subscribe={topic: "*"}, consume_from="first"
        ) as consumer:
            while len(seen) < 40:
                messages = await consumer.receive(max_messages=8, invisible=30.0, wait=5.0)
                for message in messages:
                    seen[message.body] += 1
                if messages:
                    await consumer.ack(messages[0])
                if len(messages) > 1:
                    await consumer.ack_all(messages[1:])
            assert set(seen.values()) == {1}
            await send(place.namesrv, topic, 1, start=100)
            (again,) = await consumer.receive(invisible=30.0, wait=10.0)
            await consumer.change_invisible(again, 1.0)
            (second,) = await consumer.receive(invisible=30.0, wait=20.0)
            assert (second.body, second.delivery_attempt, second.topic) == (again.body, 2, topic)
            await consumer.ack(second)
            assert await consumer.receive(invisible=30.0, wait=3.0) == []

    asyncio.run(main())


def test_priorities(place: Place) -> None:
    """Higher ones come first, at Apache's broker and at ours; a priority beyond the last queue is the last one."""
    topic, ranks = "p-priorities", [0, 2, 3, 1, 0, 9, 3, 2]

    async def main() -> None:
        async with AdminConnection(place.namesrv) as admin:
            change = TopicChange(read_queues=4, write_queues=4, attributes={"+message.type": "PRIORITY"})
            await create_topic(admin, topic, change)
        async with aerobee.Producer(place.namesrv) as producer:
            receipts = [await producer.send(topic, b"%d" % rank, priority=rank) for rank in ranks]
        assert [one.queue_id for one in receipts] == [min(rank, 3) for rank in ranks]
        found: list[int] = []
        async with aerobee.SimpleConsumer(
            place.namesrv, group=f"{topic}-g", subscribe={topic: "*"}, consume_from="first"
        ) as consumer:
            while len(found) < len(ranks):
                for message in await consumer.receive(max_messages=1, invisible=30.0, wait=5.0):
                    found.append(min(int(message.body), 3))
                    await consumer.ack(message)
        assert found == [3, 3, 3, 2, 2, 1, 0, 0]

    asyncio.run(main())


def test_push_consumer_pops(place: Place, topic: str) -> None:
    async def main() -> None:
        await send(place.namesrv, topic, 100)
        seen: Counter[bytes] = Counter()
        over = asyncio.Event()
        consumer = aerobee.PushConsumer(place.namesrv, group=f"{topic}-g", mode="pop", consume_from="first")

        @consumer.listener(topic)
        async def handle(message: aerobee.Message) -> None:
            seen[message.body] += 1
            if len(seen) == 100:
                over.set()

        async with consumer:
            await asyncio.wait_for(over.wait(), 60)
        assert set(seen.values()) == {1}

    asyncio.run(main())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with LocalCluster(data=tmp_path_factory.mktemp("cluster"), settings={**PATIENT}) as started:
        yield started


@pytest.fixture(scope="module")
def java5(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSession]:
    with JavaSession(tmp_path_factory.mktemp("java"), cluster.namesrv) as session:
        yield session


def _let_pop(cluster: LocalCluster, group: str, topic: str, mode: str = "pop") -> None:
    async def main() -> None:
        async with AdminConnection(cluster.namesrv) as admin:
            await set_mode(admin, group, topic, mode)

    asyncio.run(main())


def test_java_pop_consumer(cluster: LocalCluster, java5: JavaSession, tmp_path: Path) -> None:
    """clientRebalance=false against ours: it consumes, and what it refuses comes back after its 10 s."""
    cluster.create_topic("java-pop", 4)
    java5.run("produce", topic="java-pop", count=60)
    java5.run("consume", topic="java-pop", group="java-pop-g", limit_ms=1_500, expect=1)
    _let_pop(cluster, "java-pop-g", "java-pop")
    java5.run("produce", topic="java-pop", count=40, from_=100)
    said = java5.run(
        "consume", topic="java-pop", group="java-pop-g", pop=True, expect=40, limit_ms=90_000, within_s=120
    )
    assert len(of_kind(said, "message")) >= 40
    stats = cluster.messages("java-pop")
    assert len(stats) == 100


def test_java_pop_consumer_retries(cluster: LocalCluster, java5: JavaSession) -> None:
    cluster.create_topic("java-retry", 2)
    java5.run("consume", topic="java-retry", group="java-retry-g", limit_ms=1_000)
    _let_pop(cluster, "java-retry-g", "java-retry")
    run = java5.start(
        "consume", topic="java-retry", group="java-retry-g", pop=True, expect=10, limit_ms=90_000, fail_times=1
    )
    java5.run("produce", topic="java-retry", count=10)
    said = run.wait(120)
    refused, taken = of_kind(said, "refused"), of_kind(said, "message")
    assert len(refused) == 10 and len(taken) == 10
    assert {one["reconsumeTimes"] for one in taken} == {1}


def test_java_pop_consumer_over_kill(cluster: LocalCluster, java5: JavaSession) -> None:
    """kill -9 of our broker while Java pops: nothing is lost."""
    cluster.create_topic("java-kill", 2)
    java5.run("consume", topic="java-kill", group="java-kill-g", limit_ms=1_000)
    _let_pop(cluster, "java-kill-g", "java-kill")
    java5.run("produce", topic="java-kill", count=200)
    run = java5.start("consume", topic="java-kill", group="java-kill-g", pop=True, idle_ms=25_000, limit_ms=100_000)
    cluster.kill(0)
    cluster.restart(0)
    taken = of_kind(run.wait(140), "message")
    assert {one["sequence"] for one in taken} == set(range(200))


# A consumer that says what it holds and what it has acknowledged with an answer, until it is killed.
_DYING = """
import asyncio, sys
import aerobee

async def main(namesrv, topic, group):
    async with aerobee.SimpleConsumer(namesrv, group=group, subscribe={topic: "*"}, consume_from="first") as one:
        while True:
            for message in await one.receive(max_messages=8, invisible=10.0, wait=2.0):
                number = int(message.body)
                if number % 3 == 0:
                    await one.ack(message)
                    print("acked", number, flush=True)
                elif number % 3 == 1:
                    await one.change_invisible(message, 6.0)
                    print("changed", number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_our_client_is_killed(place: Place, topic: str) -> None:
    """kill -9 of our client in the middle of pop, ack and change: others get what it had not acknowledged."""
    group = f"{topic}-g"
    asyncio.run(send(place.namesrv, topic, 90))
    dying = subprocess.Popen(
        [sys.executable, "-c", _DYING, place.namesrv, topic, group], stdout=subprocess.PIPE, text=True
    )
    assert dying.stdout is not None
    said: list[str] = []
    while sum(line.startswith("acked") for line in said) < 12:
        line = dying.stdout.readline()
        assert line, "the consumer has ended"
        said.append(line)
    dying.kill()
    said += dying.stdout.read().splitlines()
    dying.stdout.close()
    dying.wait()
    acked = {int(line.split()[1]) for line in said if line.startswith("acked")}
    assert len(acked) < 30, "killed in the middle"

    async def others() -> set[int]:
        seen: set[int] = set()
        async with aerobee.SimpleConsumer(
            place.namesrv, group=group, subscribe={topic: "*"}, consume_from="first"
        ) as one:
            async with asyncio.timeout(90):
                while len(seen | acked) < 90:
                    for message in await one.receive(max_messages=32, invisible=30.0, wait=2.0):
                        seen.add(int(message.body))
                        await one.ack(message)
            # Longer than the time of anything that is held.
            for _ in range(4):
                seen |= {int(message.body) for message in await one.receive(invisible=30.0, wait=3.0)}
        return seen

    seen = asyncio.run(others())
    assert seen | acked == set(range(90)), "lost"
    # The one whose answer was under way when the client died may be either.
    assert seen & acked == set(), "acknowledged with an answer, and given again"


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_ours_to_apache(tmp_path: Path, apache_namesrv: apache.ApacheNameServer, killed: bool) -> None:
    """A directory with messages in flight goes to Apache's broker, which hands out each that was not acknowledged."""
    topic, group = f"moved-{killed}", f"moved-{killed}-g"
    acked: set[bytes] = set()

    async def before(namesrv: str) -> None:
        await send(namesrv, topic, 100)
        async with aerobee.SimpleConsumer(namesrv, group=group, subscribe={topic: "*"}, consume_from="first") as one:
            held: list[aerobee.PoppedMessage] = []
            while len(held) < 60:
                held += await one.receive(max_messages=20, invisible=600.0, wait=5.0)
            for message in held[::2]:
                await one.ack(message)
                acked.add(message.body)

    async def after(namesrv: str) -> set[bytes]:
        seen: set[bytes] = set()
        async with aerobee.SimpleConsumer(namesrv, group=group, subscribe={topic: "*"}, consume_from="first") as one:
            for _ in range(40):
                for message in await one.receive(max_messages=32, invisible=60.0, wait=2.0):
                    seen.add(message.body)
                    await one.ack(message)
                if len(seen | acked) == 100:
                    break
        return seen

    # Apache's POP needs its timers.
    alike = {**apache.STORE_SETTINGS, "timerWheelEnable": "true", "maxMessageSize": 262_144}
    settings = {key: str(value) for key, value in alike.items()}
    with LocalCluster(data=tmp_path / "ours", settings={**PATIENT, **settings}) as ours:
        ours.create_topic(topic, 2)
        asyncio.run(before(ours.namesrv))
        if killed:
            ours.kill(0)
    (store,) = [path.parent for path in (tmp_path / "ours").rglob("commitlog") if path.is_dir()]
    name = "broker-a"
    with apache.ApacheBroker(tmp_path / "apache", store, apache_namesrv.address, name=name, settings=settings):
        came = asyncio.run(after(apache_namesrv.address))
    assert len(came | acked) == 100, "none that was not acknowledged is lost"


def test_apache_to_ours(tmp_path: Path, apache_namesrv: apache.ApacheNameServer) -> None:
    """100 popped at Apache's broker, 50 acknowledged, killed: our broker hands out the other 50."""
    topic, group = "from-apache", "from-apache-g"
    alike = {**apache.STORE_SETTINGS, "timerWheelEnable": "true", "maxMessageSize": 262_144}
    settings = {key: str(value) for key, value in alike.items()}
    acked: set[bytes] = set()

    async def before(namesrv: str) -> None:
        async with AdminConnection(namesrv) as admin:
            await create_topic(admin, topic, TopicChange(read_queues=2, write_queues=2))
        await send(namesrv, topic, 100)
        async with aerobee.SimpleConsumer(namesrv, group=group, subscribe={topic: "*"}, consume_from="first") as one:
            held: list[aerobee.PoppedMessage] = []
            while len(held) < 100:
                held += await one.receive(max_messages=20, invisible=20.0, wait=5.0)
            for message in held[::2]:
                await one.ack(message)
                acked.add(message.body)
        await asyncio.sleep(6)  # Apache saves its offsets every 5 s

    async def after(namesrv: str) -> set[bytes]:
        seen: set[bytes] = set()
        async with aerobee.SimpleConsumer(namesrv, group=group, subscribe={topic: "*"}, consume_from="first") as one:
            for _ in range(30):
                for message in await one.receive(max_messages=32, invisible=60.0, wait=2.0):
                    seen.add(message.body)
                    await one.ack(message)
                if len(seen | acked) == 100:
                    break
        return seen

    with LocalCluster(data=tmp_path / "ours", settings={**PATIENT, **settings}):
        pass
    (store,) = [path.parent for path in (tmp_path / "ours").rglob("commitlog") if path.is_dir()]
    with apache.ApacheBroker(tmp_path / "apache", tmp_path / "store", apache_namesrv.address, settings=settings) as one:
        asyncio.run(before(apache_namesrv.address))
        one.kill()
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "store", store)
    with LocalCluster(data=tmp_path / "ours", settings={**PATIENT, **settings}) as ours:
        came = asyncio.run(after(ours.namesrv))
    assert len(came | acked) == 100, "none that was not acknowledged is lost"
