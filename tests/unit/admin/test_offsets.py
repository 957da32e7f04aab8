"""Resets planned and carried out, with members and without, by both kinds of broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee import LitePullConsumer, Message, MessageQueue, PushConsumer
from aerobee.admin import groups, offsets
from aerobee.admin.cluster import change_broker_settings
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupChange
from aerobee.admin.offsets import BY_BROKER, BY_COMMIT, BY_MEMBERS, QueueReset, ResetTarget
from aerobee.errors import InvalidArgumentError
from aerobee.errors.codes import GroupNotExistError, IllegalOperationError, TopicNotExistError
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill


def queue_of(cluster: LocalCluster, topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, cluster.broker_name(0), queue_id)


async def stand(cluster: LocalCluster, admin: AdminConnection, group: str, saved: dict[MessageQueue, int]) -> None:
    await groups.create_group(admin, group, GroupChange())
    async with LitePullConsumer(cluster.namesrv, group=group) as consumer:
        await consumer.commit(saved)


@pytest.mark.parametrize(
    ("low", "high", "before", "after", "replayed", "skipped"),
    [
        (0, 10, 6, 2, 4, 0),
        (0, 10, 2, 6, 0, 4),
        (0, 10, None, 10, 0, 10),
        (0, 10, None, 0, 0, 0),
        (5, 10, 2, 5, 0, 0),
        (5, 10, 2, 8, 0, 3),
        (0, 10, 15, 0, 10, 0),
    ],
)
def test_what_a_queue_replays_and_skips(
    low: int, high: int, before: int | None, after: int, replayed: int, skipped: int
) -> None:
    queue = QueueReset("broker-a", 0, low, high, before, after)
    assert (queue.replayed, queue.skipped) == (replayed, skipped)


def test_a_target_is_one_thing() -> None:
    wrong: list[dict[str, Any]] = [{}, {"edge": "first", "offset": 3}, {"edge": "middle"}]
    for values in wrong:
        with pytest.raises(InvalidArgumentError):
            ResetTarget(**values)


def test_off_line_to_every_target(cluster: LocalCluster, topic: str) -> None:
    first, second = queue_of(cluster, topic, 0), queue_of(cluster, topic, 1)
    for queue in (first, second):
        fill(cluster.namesrv, topic, 4, queue=queue)
    cluster.advance(seconds=5)
    border = cluster.clock.now_ms()
    fill(cluster.namesrv, topic, 3, start=4, queue=first)

    async def main() -> None:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            await stand(cluster, admin, "away", {first: 5})

            async def done(target: ResetTarget, queue_id: int | None = None) -> tuple[list[int], int, int]:
                plan = await offsets.plan_reset(admin, "away", topic, target, queue_id=queue_id)
                assert plan.members == 0 and plan.ways == {cluster.broker_name(0): BY_BROKER}
                await offsets.reset_offsets(admin, plan, target)
                after = await offsets.plan_reset(admin, "away", topic, target, queue_id=queue_id)
                assert (after.replayed, after.skipped) == (0, 0)
                return [one.from_offset for one in after.queues if one.from_offset is not None], *_counts(plan)

            # The second queue was never consumed: going to its start replays nothing.
            assert await done(ResetTarget(edge="first")) == ([0, 0], 5, 0)
            assert await done(ResetTarget(edge="last")) == ([7, 4], 0, 11)
            assert await done(ResetTarget(time_ms=border)) == ([4, 4], 3, 0)
            assert await done(ResetTarget(offset=2)) == ([2, 2], 4, 0)
            assert await done(ResetTarget(offset=100), 1) == ([4], 0, 2)

    asyncio.run(main())


def _counts(plan: offsets.ResetPlan) -> tuple[int, int]:
    return plan.replayed, plan.skipped


def test_a_dry_plan_changes_nothing_and_wrong_names_are_refused(cluster: LocalCluster, topic: str) -> None:
    first = queue_of(cluster, topic, 0)
    fill(cluster.namesrv, topic, 2, queue=first)

    async def main() -> None:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            await stand(cluster, admin, "dry", {first: 1})
            target = ResetTarget(edge="first")
            for _ in range(2):
                plan = await offsets.plan_reset(admin, "dry", topic, target)
                assert [one.from_offset for one in plan.queues] == [1, None]
            assert await offsets.consumer_status(admin, "dry", topic) == ()
            with pytest.raises(GroupNotExistError):
                await offsets.plan_reset(admin, "nobody", topic, target)
            with pytest.raises(TopicNotExistError):
                await offsets.plan_reset(admin, "dry", "nowhere", target)
            with pytest.raises(InvalidArgumentError, match="no queue 9"):
                await offsets.plan_reset(admin, "dry", topic, target, queue_id=9)

    asyncio.run(main())


class Taken:
    """What a consumer was given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._more = asyncio.Event()

    async def take(self, message: Message) -> None:
        self.bodies.append(message.body)
        self._more.set()

    async def count(self, count: int) -> None:
        while len(self.bodies) < count:
            self._more.clear()
            await self._more.wait()


@pytest.mark.parametrize("server_side", [True, False])
def test_on_line_members_go_back(cluster: LocalCluster, topic: str, server_side: bool) -> None:
    group = f"online-{topic}"
    queue = queue_of(cluster, topic, 0)
    fill(cluster.namesrv, topic, 5, queue=queue)

    async def main() -> None:
        taken = Taken()
        consumer = PushConsumer(cluster.namesrv, group=group, consume_from="first", persist_interval=0.1)
        consumer.listener(topic)(taken.take)
        async with asyncio.timeout(60), AdminConnection(cluster.namesrv) as admin:
            await change_broker_settings(admin, {"useServerSideResetOffset": str(server_side).lower()})
            async with consumer:
                await taken.count(5)
                target = ResetTarget(edge="first")
                while True:
                    plan = await offsets.plan_reset(admin, group, topic, target)
                    if [one.from_offset for one in plan.queues] == [5, 0]:
                        break
                assert plan.ways == {cluster.broker_name(0): BY_BROKER if server_side else BY_MEMBERS}
                assert (plan.members, plan.replayed) == (1, 5)
                (said,) = [one for one in await offsets.consumer_status(admin, group, topic) if one.queue_id == 0]
                assert (said.client_id, said.broker, said.offset) == (consumer.client_id, queue.broker_name, 5)
                if not server_side:
                    with pytest.raises(IllegalOperationError, match="can only reset whole topics by time"):
                        await offsets.reset_offsets(admin, plan, ResetTarget(offset=0))
                await offsets.reset_offsets(admin, plan, target)
                # A member that waits at the end learns of it when its pull is answered.
                await asyncio.to_thread(fill, cluster.namesrv, topic, 1, 5, queue=queue)
                await taken.count(11 if not server_side else 10)
            assert taken.bodies.count(b"0") == 2 and taken.bodies.count(b"4") == 2
            await change_broker_settings(admin, {"useServerSideResetOffset": "true"})

    asyncio.run(main())


def test_off_line_at_a_broker_that_only_tells_members(cluster: LocalCluster, topic: str) -> None:
    queue = queue_of(cluster, topic, 0)
    fill(cluster.namesrv, topic, 3, queue=queue)

    async def main() -> None:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            await change_broker_settings(admin, {"useServerSideResetOffset": "false"})
            await stand(cluster, admin, "old", {queue: 3})
            target = ResetTarget(offset=1)
            plan = await offsets.plan_reset(admin, "old", topic, target)
            assert set(plan.ways.values()) == {BY_COMMIT}
            await offsets.reset_offsets(admin, plan, target)
            after = await offsets.plan_reset(admin, "old", topic, target)
            assert [one.from_offset for one in after.queues] == [1, 0]
            await change_broker_settings(admin, {"useServerSideResetOffset": "true"})

    asyncio.run(main())
