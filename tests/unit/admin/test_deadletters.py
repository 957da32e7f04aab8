"""Dead letters listed and sent again to where they came from."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from aerobee import DeadLetter, Message, Producer, PushConsumer
from aerobee.admin import deadletters, groups, messages
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupChange
from aerobee.errors.codes import GroupNotExistError, QueryNotFoundError
from aerobee.model import sysproperties as names
from aerobee.testing.cluster import LocalCluster

BROKERS = 2


async def give_up(cluster: LocalCluster, topic: str, count: int) -> None:
    """A group that gives up every message of a topic."""
    consumer = PushConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first")
    done = asyncio.Event()
    seen = 0

    @consumer.listener(topic)
    async def handle(message: Message) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            done.set()
        raise DeadLetter("cannot be read")

    async with Producer(cluster.namesrv) as producer, consumer:
        for i in range(count):
            await producer.send(topic, b"%d" % i, tags="red", keys=f"k{i}", properties={"color": "blue"})
        await done.wait()
        # Stored, and the new topic known to the name server.
        async with AdminConnection(cluster.namesrv) as admin:
            while len(await letters_of(admin, f"g-{topic}")) < count:  # noqa: ASYNC110 - a server is waited for
                await asyncio.sleep(0.01)


async def letters_of(admin: AdminConnection, group: str) -> list[deadletters.DeadLetterEntry]:
    async with contextlib.aclosing(deadletters.read_letters(admin, group)) as letters:
        return [letter async for letter in letters]


def test_letters_are_listed_and_all_sent_again(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), AdminConnection(cluster.namesrv) as admin:
            await give_up(cluster, topic, 6)
            letters = await letters_of(admin, f"g-{topic}")
            assert sorted(int(one.message.body) for one in letters) == list(range(6))
            assert {one.origin_topic for one in letters} == {topic}
            assert all(one.origin_message_id for one in letters)
            plan = await deadletters.plan_resend(admin, f"g-{topic}")
            assert (plan.total, plan.topics, plan.other_groups) == (6, {topic: 6}, {topic: ()})
            told: list[tuple[int, int]] = []
            report = await deadletters.resend(admin, f"g-{topic}", plan.total, progress=lambda *at: told.append(at))
            assert (report.copied, report.problem, told[-1]) == (6, None, (6, 6))

    asyncio.run(main())
    stored = cluster.messages(topic)
    assert sorted(int(one.body) for one in stored) == sorted([*range(6), *range(6)])
    fresh = sorted(stored, key=lambda one: one.store_timestamp)[6:]
    for one in fresh:
        assert (one.tags, one.keys, dict(one.properties)) == ("red", f"k{int(one.body)}", {"color": "blue"})
        assert one.reconsume_times == 0 and names.RETRY_TOPIC not in one.system_properties


def test_one_letter_by_its_id_and_its_track(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), AdminConnection(cluster.namesrv) as admin:
            await give_up(cluster, topic, 3)
            letter = (await letters_of(admin, f"g-{topic}"))[1]
            for message_id in (letter.message.message_id, letter.message.offset_id):
                assert await deadletters.find_letter(admin, f"g-{topic}", message_id) == letter
            original = await messages.find_message(admin, letter.message.message_id, topic=topic)
            tracks = await messages.track_message(admin, original)
            assert [(one.group, one.dead_letter) for one in tracks] == [(f"g-{topic}", True)]
            report = await deadletters.resend(admin, f"g-{topic}", 1, message_ids=(letter.message.message_id,))
            assert report.copied == 1
            with pytest.raises(QueryNotFoundError):
                await deadletters.find_letter(admin, f"g-{topic}", "7F" * 16)

    asyncio.run(main())
    assert len(cluster.messages(topic)) == 4


def test_a_group_without_letters_and_one_that_is_not(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            await groups.create_group(admin, "fine", GroupChange())
            assert await letters_of(admin, "fine") == []
            assert (await deadletters.plan_resend(admin, "fine")).total == 0
            with pytest.raises(QueryNotFoundError, match="no dead letter"):
                await deadletters.find_letter(admin, "fine", "7F" * 16)
            with pytest.raises(GroupNotExistError):
                await letters_of(admin, "nobody")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({names.RETRY_TOPIC: "orders"}, "orders"),
        ({names.DLQ_ORIGIN_TOPIC: "orders", names.RETRY_TOPIC: "other"}, "orders"),
        ({names.RETRY_TOPIC: "%RETRY%g"}, ""),
        ({}, ""),
    ],
)
def test_where_a_letter_came_from(properties: dict[str, str], topic: str) -> None:
    assert deadletters.dead_letter(Message("%DLQ%g", b"x", system_properties=properties)).origin_topic == topic
