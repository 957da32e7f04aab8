"""Messages found by id, key and time, and tracked, on two real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from aerobee import LitePullConsumer, Message, MessageQueue, PushConsumer
from aerobee.admin import groups, messages
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupChange
from aerobee.errors.codes import QueryNotFoundError, TopicNotExistError
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill

T = TypeVar("T")
BROKERS = 2


def ask(cluster: LocalCluster, work: Callable[[AdminConnection], Awaitable[T]]) -> T:
    async def main() -> T:
        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            return await work(admin)

    return asyncio.run(main())


def test_a_message_by_its_unique_id_and_by_its_offset_id(cluster: LocalCluster, topic: str) -> None:
    receipts = fill(cluster.namesrv, topic, 4, tags="red", keys="k1", properties={"color": "blue"})
    for number, receipt in enumerate(receipts):
        found = ask(cluster, lambda admin, one=receipt: messages.find_message(admin, one.message_id, topic=topic))  # type: ignore[misc]
        assert (found.body, found.tags, found.keys) == (b"%d" % number, "red", "k1")
        assert dict(found.properties) == {"color": "blue"}
        by_place = ask(cluster, lambda admin, one=found: messages.find_message(admin, one.offset_id))  # type: ignore[misc]
        assert by_place == found


def test_what_is_not_there_is_said(cluster: LocalCluster, topic: str) -> None:
    receipt = fill(cluster.namesrv, topic, 1)[0]
    with pytest.raises(QueryNotFoundError, match="name its topic"):
        ask(cluster, lambda admin: messages.find_message(admin, receipt.message_id))
    with pytest.raises(QueryNotFoundError, match="there is no message 7F"):
        ask(cluster, lambda admin: messages.find_message(admin, "7F" * 16, topic=topic))
    with pytest.raises(QueryNotFoundError, match="not hex"):
        ask(cluster, lambda admin: messages.find_message(admin, "not hex", topic=topic))
    with pytest.raises(TopicNotExistError, match="topic nowhere does not exist"):
        ask(cluster, lambda admin: messages.find_message(admin, receipt.message_id, topic="nowhere"))


def test_by_key_over_all_brokers_within_a_time_and_a_limit(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 8, keys=["order-7", "other"])
    fill(cluster.namesrv, topic, 4, start=100, keys="order-8")
    found = ask(cluster, lambda admin: messages.find_by_key(admin, topic, "order-7")).messages
    assert sorted(int(one.body) for one in found) == list(range(8))
    assert len({one.broker for one in found}) == 2
    assert [one.store_timestamp for one in found] == sorted(one.store_timestamp for one in found)
    assert len(ask(cluster, lambda admin: messages.find_by_key(admin, topic, "order-8", limit=3)).messages) == 3
    late = max(one.store_timestamp for one in found) + 60_000
    assert not ask(cluster, lambda admin: messages.find_by_key(admin, topic, "order-7", begin_ms=late)).messages


def test_by_time_in_the_order_of_store_times(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 70)
    cluster.advance(seconds=10)
    fill(cluster.namesrv, topic, 10, start=70)
    every = ask(cluster, lambda admin: messages.find_by_time(admin, topic, limit=1000)).messages
    assert sorted(int(one.body) for one in every) == list(range(80))
    times = [one.store_timestamp for one in every]
    assert times == sorted(times)
    border = times[70]
    late = ask(cluster, lambda admin: messages.find_by_time(admin, topic, begin_ms=border, limit=1000)).messages
    assert sorted(int(one.body) for one in late) == list(range(70, 80))
    early = ask(cluster, lambda admin: messages.find_by_time(admin, topic, end_ms=border, limit=1000)).messages
    assert sorted(int(one.body) for one in early) == list(range(70))
    assert ask(cluster, lambda admin: messages.find_by_time(admin, topic, limit=3)).messages == every[:3]


def test_looking_leaves_no_offsets_behind(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 3)
    ask(cluster, lambda admin: messages.find_by_time(admin, topic))
    message = ask(cluster, lambda admin: messages.find_by_time(admin, topic)).messages[0]
    assert ask(cluster, lambda admin: messages.track_message(admin, message)) == ()


def test_track_tells_groups_apart(cluster: LocalCluster, topic: str) -> None:
    queue = MessageQueue(topic, cluster.broker_name(0), 0)
    receipts = fill(cluster.namesrv, topic, 3, queue=queue, tags="red")

    async def main() -> dict[str, messages.GroupTrack]:
        seen = asyncio.Event()

        async def take(message: Message) -> None:
            if message.queue_offset == 2:
                seen.set()

        async with asyncio.timeout(30), AdminConnection(cluster.namesrv) as admin:
            await groups.create_group(admin, f"away-{topic}", GroupChange())
            away = LitePullConsumer(cluster.namesrv, group=f"away-{topic}")
            async with away:
                await away.commit({queue: 1})
            done = PushConsumer(cluster.namesrv, group=f"done-{topic}", consume_from="first", persist_interval=0.2)
            done.listener(topic)(take)
            other = PushConsumer(cluster.namesrv, group=f"other-{topic}", consume_from="first", persist_interval=0.2)
            other.listener(topic, tags="green")(take)
            async with done, other:
                await seen.wait()
                message = await messages.find_message(admin, receipts[1].message_id, topic=topic)
                while True:
                    tracks = {one.group: one for one in await messages.track_message(admin, message)}
                    online = [tracks.get(f"{name}-{topic}") for name in ("done", "other")]
                    if all(one is not None and one.passed for one in online):
                        return tracks

    tracks = asyncio.run(main())
    assert tracks[f"done-{topic}"].track == "CONSUMED"
    assert tracks[f"other-{topic}"].track == "CONSUMED_BUT_FILTERED"
    away = tracks[f"away-{topic}"]
    assert (away.track, away.consumer_offset, away.passed, away.members) == ("NOT_ONLINE", 1, False, 0)
    assert not any(one.dead_letter or one.retries for one in tracks.values())
