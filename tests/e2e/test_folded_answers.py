"""Answers whose compressed messages unfold to much more than they are: a reader gets all, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aerobee import LitePullConsumer, Message, MessageQueue, Producer, SimpleConsumer
from aerobee.admin import messages
from aerobee.admin.connection import AdminConnection
from aerobee.cli.messages import message_line
from aerobee.dashboard.scanning import Scanner, wanted_of
from aerobee.hot.log.layout import COMPRESSED
from aerobee.model.compression import UNFOLDED_SIZE_MAX
from aerobee.runtime.clock import SystemClock
from aerobee.testing.cluster import LocalCluster

MIB = 1 << 20
COUNT = 12
BODIES = [b"<%d>" % number + bytes([65 + number]) * (3 * MIB) for number in range(COUNT)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as running:
        running.create_topic("folded", queues=1)

        async def send() -> None:
            async with Producer(running.namesrv) as producer:
                for number, body in enumerate(BODIES):
                    await producer.send("folded", body, keys="all", tags=f"T{number}")

        asyncio.run(send())
        yield running


def queue(cluster: LocalCluster) -> MessageQueue:
    return MessageQueue("folded", cluster.broker_name(0), 0)


def test_a_pull_gives_what_fits_and_the_next_one_goes_on(cluster: LocalCluster) -> None:
    async def main() -> list[list[Message]]:
        found: list[list[Message]] = []
        async with LitePullConsumer(cluster.namesrv, group="pulls", auto_commit=False) as consumer:
            at = 0
            while at < COUNT:
                pulled = await consumer.pull(queue(cluster), at)
                assert pulled.messages and pulled.next_offset == pulled.messages[-1].queue_offset + 1
                found.append(pulled.messages)
                at = pulled.next_offset
        return found

    pulls = asyncio.run(main())
    assert [one.body for some in pulls for one in some] == BODIES
    assert all(not one.sys_flag & COMPRESSED for some in pulls for one in some)
    assert all(sum(len(one.body) for one in some) <= 16 * MIB for some in pulls) and len(pulls) >= 3


def test_a_pull_that_leaves_bodies_folded_takes_all_at_once(cluster: LocalCluster) -> None:
    async def main() -> list[Message]:
        async with LitePullConsumer(cluster.namesrv, group="pulls", auto_commit=False) as consumer:
            return (await consumer.pull(queue(cluster), 0, unfold=False)).messages

    found = asyncio.run(main())
    assert len(found) == COUNT and all(len(one.body) < MIB and one.sys_flag & COMPRESSED for one in found)
    assert message_line(found[7]).endswith(f"<7>{'H' * 197}... ({len(found[7].body)} bytes compressed)")


def test_a_pop_gives_the_others_back_and_no_try_is_counted(cluster: LocalCluster) -> None:
    """Each of the others is stored once more, and not again with every pop: fewer are asked for then."""

    async def main() -> tuple[list[tuple[bytes, int]], int]:
        found: list[tuple[bytes, int]] = []
        async with (
            asyncio.timeout(60),
            SimpleConsumer(cluster.namesrv, group="pops", subscribe={"folded": "*"}) as consumer,
        ):
            while len(found) < COUNT:
                some = await consumer.receive(32, invisible=600)
                assert sum(len(one.body) for one in some) <= 16 * MIB
                found += [(one.body, one.delivery_attempt) for one in some]
                for one in some:
                    await consumer.ack(one)
        async with LitePullConsumer(cluster.namesrv, group="pulls", auto_commit=False) as consumer:
            copies = await consumer.end_offset(MessageQueue("%RETRY%pops_folded", cluster.broker_name(0), 0))
        return found, copies

    found, copies = asyncio.run(main())
    assert sorted(found) == sorted((body, 1) for body in BODIES)
    assert copies == COUNT - 16 // 3, "none was stored more than once"


def test_a_search_by_key_tells_what_it_left_folded(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "UNFOLDED_SIZE_MAX", 8 * MIB)

    async def main() -> tuple[messages.FoundMessages, messages.FoundMessages]:
        async with AdminConnection(cluster.namesrv) as admin:
            return await messages.find_by_key(admin, "folded", "all"), await messages.find_by_time(admin, "folded")

    assert UNFOLDED_SIZE_MAX > COUNT * 3 * MIB
    for found in asyncio.run(main()):
        assert [one.body for one in found.messages[:3]] == BODIES[:3]
        assert len(found.messages) == COUNT and all(one.sys_flag & COMPRESSED for one in found.messages[3:])
        assert [one.startswith("9 messages are left compressed") for one in found.problems] == [True]


def test_the_dashboard_searches_in_what_it_does_not_keep(cluster: LocalCluster) -> None:
    async def main() -> list[Message]:
        async with LitePullConsumer(cluster.namesrv, group="pulls", auto_commit=False) as consumer:
            scanner = Scanner(consumer, SystemClock(), newest_first=True)
            return (await scanner.scan("folded", messages.Span(), wanted_of("", "<5>fff", ""), 5)).messages

    (found,) = asyncio.run(main())
    assert found.tags == "T5" and len(found.body) < MIB
