"""Our admin functions against Apache's broker: messages found, offsets reset, topics copied, dead letters resent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from aerobee import DeadLetter, Message, Producer, PushConsumer
from aerobee.admin import deadletters, messages, offsets, replay, topics
from aerobee.admin.connection import AdminConnection
from aerobee.admin.messages import Span
from aerobee.admin.offsets import ResetTarget
from aerobee.admin.topics import TopicChange
from aerobee.testing import apache


@pytest.fixture(scope="module")
def namesrv(apache_namesrv: apache.ApacheNameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    work = tmp_path_factory.mktemp("operated-broker")
    with apache.ApacheBroker(work, work / "store", apache_namesrv.address, name="operated"):
        yield apache_namesrv.address


async def letters_of(admin: AdminConnection, group: str) -> list[deadletters.DeadLetterEntry]:
    async with contextlib.aclosing(deadletters.read_letters(admin, group)) as letters:
        return [letter async for letter in letters]


def test_find_reset_replay_and_resend_at_apaches_broker(namesrv: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(100), AdminConnection(namesrv) as admin:
            for name in ("orders", "copy"):
                await topics.create_topic(admin, name, TopicChange(2, 2), broker="operated")
            async with Producer(namesrv) as producer:
                receipts = [
                    await producer.send("orders", b"%d" % i, keys=f"k{i}", properties={"n": str(i)}) for i in range(10)
                ]
            await found(admin, receipts[3].message_id)
            report = await replay.replay(admin, "orders", "copy", Span())
            assert (report.copied, report.problem) == (10, None)
            assert len((await messages.find_by_time(admin, "copy")).messages) == 10
            await gave_up(admin, namesrv)
            await reset_and_moved(admin)

    asyncio.run(main())


async def found(admin: AdminConnection, message_id: str) -> None:
    # Apache's index is written a moment after the log.
    while not (await messages.find_by_unique_id(admin, message_id, "orders")).messages:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    message = await messages.find_message(admin, message_id, topic="orders")
    assert (message.body, dict(message.properties)) == (b"3", {"n": "3"})
    assert await messages.find_message(admin, message.offset_id) == message
    assert (await messages.find_by_key(admin, "orders", "k3")).messages == (message,)
    early = await messages.find_by_time(admin, "orders", end_ms=message.store_timestamp)
    late = await messages.find_by_time(admin, "orders", begin_ms=message.store_timestamp)
    assert len(early.messages) + len(late.messages) == 10 and message in late.messages


async def gave_up(admin: AdminConnection, namesrv: str) -> None:
    """A group that gives one message up; it is found, tracked and sent again."""
    consumer = PushConsumer(namesrv, group="billing", consume_from="first", persist_interval=0.2)

    @consumer.listener("orders")
    async def handle(message: Message) -> None:
        if message.body == b"3":
            raise DeadLetter("cannot be read")

    async with consumer:
        while not (letters := await letters_of(admin, "billing")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        original = await messages.find_message(admin, letters[0].message.message_id, topic="orders")
        while True:
            (track,) = await messages.track_message(admin, original)
            if track.passed and track.dead_letter:
                break
            await asyncio.sleep(0.05)
        assert (track.group, track.track, track.members) == ("billing", "CONSUMED", 1)
        assert {one.client_id for one in await offsets.consumer_status(admin, "billing", "orders")} == {
            consumer.client_id
        }
    assert [(one.message.body, one.origin_topic) for one in letters] == [(b"3", "orders")]
    report = await deadletters.resend(admin, "billing", 1)
    assert (report.copied, report.problem) == (1, None)


async def reset_and_moved(admin: AdminConnection) -> None:
    """Eleven messages now: consumed once more from the start, by nobody but the forward."""
    target = ResetTarget(edge="first")
    plan = await offsets.plan_reset(admin, "billing", "orders", target)
    assert plan.replayed + plan.skipped >= 10
    await offsets.reset_offsets(admin, plan, target)
    assert [one.from_offset for one in (await offsets.plan_reset(admin, "billing", "orders", target)).queues] == [0, 0]
    assert await replay.backlog(admin, "billing", "orders") == 11
    report = await replay.forward(admin, "orders", "copy", "billing")
    assert (report.copied, report.problem) == (11, None)
    assert await replay.backlog(admin, "billing", "orders") == 0
