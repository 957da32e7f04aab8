"""Copies of a time range and of a backlog: what is kept, what is counted, where they stop."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aerobee import LitePullConsumer, MessageQueue
from aerobee.admin import groups, offsets, replay, topics
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupChange
from aerobee.admin.messages import Span
from aerobee.admin.offsets import ResetTarget
from aerobee.admin.replay import CopyRate
from aerobee.admin.topics import TopicChange
from aerobee.errors import InvalidArgumentError
from aerobee.errors.codes import IllegalOperationError, TopicNotExistError
from aerobee.model.sysproperties import SHARDING_KEY
from aerobee.model.topic import PERM_READ
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill

_counter = itertools.count()


@pytest.fixture
def pair(cluster: LocalCluster) -> tuple[str, str]:
    number = next(_counter)
    cluster.create_topic(f"from-{number}", queues=2)
    cluster.create_topic(f"to-{number}", queues=4)
    return f"from-{number}", f"to-{number}"


def numbers(cluster: LocalCluster, topic: str) -> list[int]:
    return sorted(int(one.body) for one in cluster.messages(topic))


def test_a_time_is_copied_with_what_the_sender_gave(cluster: LocalCluster, pair: tuple[str, str]) -> None:
    source, target = pair
    fill(cluster.namesrv, source, 5)
    cluster.advance(seconds=5)
    begin = cluster.clock.now_ms()
    fill(
        cluster.namesrv,
        source,
        40,
        start=5,
        tags="red",
        keys=["a", "b"],
        properties={"color": "blue"},
        sharding_key="s",
        flag=3,
    )
    cluster.advance(seconds=5)
    end = cluster.clock.now_ms()
    fill(cluster.namesrv, source, 5, start=45)
    told: list[tuple[int, int]] = []

    async def main() -> replay.CopyReport:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            span = Span(begin, end)
            assert await replay.count_range(admin, source, span) == 40
            return await replay.replay(admin, source, target, span, progress=lambda *at: told.append(at))

    report = asyncio.run(main())
    assert (report.total, report.copied, report.skipped, report.problem) == (40, 40, 0, None)
    assert told[0] == (0, 40) and told[-1] == (40, 40)
    copies = cluster.messages(target)
    # In order, since they have one sharding key.
    assert [int(one.body) for one in copies] == list(range(5, 45))
    originals = {one.message_id for one in cluster.messages(source)}
    for one in copies:
        assert (one.tags, one.keys, dict(one.properties), one.flag) == ("red", "a b", {"color": "blue"}, 3)
        assert one.system_properties[SHARDING_KEY] == "s"
        assert one.message_id not in originals


def test_a_refused_copy_says_where_to_go_on(cluster: LocalCluster, pair: tuple[str, str]) -> None:
    source, target = pair
    fill(cluster.namesrv, source, 10)
    first = min(one.store_timestamp for one in cluster.messages(source))

    async def main() -> replay.CopyReport:
        async with asyncio.timeout(60), AdminConnection(cluster.namesrv) as admin:
            await topics.update_topic(admin, target, TopicChange(perm=PERM_READ))
            return await replay.replay(admin, source, target, Span())

    report = asyncio.run(main())
    assert report.copied == 0 and report.problem
    assert report.resume_ms == first
    assert cluster.messages(target) == []


def test_targets_that_cannot_be(cluster: LocalCluster, pair: tuple[str, str]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            with pytest.raises(InvalidArgumentError, match="source and target are the same topic"):
                await replay.replay(admin, pair[0], pair[0], Span())
            with pytest.raises(TopicNotExistError, match="topic misspelt does not exist"):
                await replay.replay(admin, pair[0], "misspelt", Span())

    asyncio.run(main())


def test_a_backlog_moves_and_the_offsets_follow(cluster: LocalCluster, pair: tuple[str, str]) -> None:
    source, target = pair
    first = MessageQueue(source, cluster.broker_name(0), 0)
    second = MessageQueue(source, cluster.broker_name(0), 1)
    fill(cluster.namesrv, source, 50, queue=first)
    fill(cluster.namesrv, source, 40, start=50, queue=second)

    async def main() -> None:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            await groups.create_group(admin, "slow", GroupChange())
            async with LitePullConsumer(cluster.namesrv, group="slow") as consumer:
                await consumer.commit({first: 45, second: 0})
            assert await replay.backlog(admin, "slow", source) == 45
            report = await replay.forward(admin, source, target, "slow")
            assert (report.total, report.copied, report.problem) == (45, 45, None)
            assert await replay.backlog(admin, "slow", source) == 0
            lag = await groups.group_lag(admin, "slow", topic=source)
            assert (lag.lag, [one.consumer_offset for one in lag.queues]) == (0, [50, 40])
            again = await replay.forward(admin, source, target, "slow")
            assert (again.total, again.copied) == (0, 0)
            # A reset nobody has fetched: the first pull is answered with it.
            back = ResetTarget(offset=48)
            plan = await offsets.plan_reset(admin, "slow", source, back, queue_id=0)
            await offsets.reset_offsets(admin, plan, back)
            more = await replay.forward(admin, source, target, "slow")
            assert (more.total, more.copied, more.problem) == (2, 2, None)
            assert await replay.backlog(admin, "slow", source) == 0

    asyncio.run(main())
    assert numbers(cluster, target) == sorted([*range(45, 90), 48, 49])
    assert len({one.queue_id for one in cluster.messages(target)}) == 4


def test_a_backlog_stays_where_the_target_refuses(cluster: LocalCluster, pair: tuple[str, str]) -> None:
    source, target = pair
    fill(cluster.namesrv, source, 20)

    async def main() -> None:
        async with asyncio.timeout(60), AdminConnection(cluster.namesrv) as admin:
            await groups.create_group(admin, "stays", GroupChange())
            await topics.update_topic(admin, target, TopicChange(perm=PERM_READ))
            report = await replay.forward(admin, source, target, "stays")
            assert report.copied == 0 and report.problem
            assert await replay.backlog(admin, "stays", source) == 20

    asyncio.run(main())


def test_a_group_with_members_is_not_forwarded(cluster: LocalCluster, pair: tuple[str, str]) -> None:
    source, target = pair
    fill(cluster.namesrv, source, 1)

    async def main() -> None:
        consumer = LitePullConsumer(cluster.namesrv, group=f"busy-{source}", consume_from="first")
        consumer.subscribe(source)
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin, consumer:
            assert await consumer.poll(timeout=20)
            with pytest.raises(IllegalOperationError, match="has 1 connected members"):
                await replay.forward(admin, source, target, f"busy-{source}")

    asyncio.run(main())
    assert cluster.messages(target) == []


def test_a_pace_is_kept() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        pace = CopyRate(100)
        started = loop.time()
        for _ in range(11):
            await pace.turn()
        return loop.time() - started

    assert asyncio.run(main()) >= 0.099
