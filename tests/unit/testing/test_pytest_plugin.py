"""The fixtures users get, and LocalCluster's faults as a user meets them."""

from __future__ import annotations

import asyncio

from aerobee import Producer
from aerobee.testing.checkers import Acked, Read, judge
from aerobee.testing.cluster import LocalCluster


def test_a_shared_cluster_takes_and_shows_messages(aerobee_cluster: LocalCluster) -> None:
    aerobee_cluster.create_topic("plugin", queues=2)

    async def main() -> None:
        async with Producer(aerobee_cluster.namesrv) as producer:
            for number in range(4):
                await producer.send("plugin", f"{number}".encode())

    asyncio.run(main())
    assert sorted(message.body for message in aerobee_cluster.messages("plugin")) == [b"0", b"1", b"2", b"3"]


def test_sends_go_on_while_one_of_two_groups_is_dead(aerobee_fresh_cluster: LocalCluster) -> None:
    cluster = aerobee_fresh_cluster
    cluster.create_topic("plugin", queues=1)

    async def send(first: int, last: int) -> None:
        async with Producer(cluster.namesrv, retries=4) as producer:
            for number in range(first, last):
                await producer.send("plugin", f"{number}".encode())

    asyncio.run(send(0, 10))
    cluster.kill(0)
    asyncio.run(send(10, 20))
    cluster.restart(0)
    bodies = {message.body for message in cluster.messages("plugin")}
    assert bodies == {str(number).encode() for number in range(20)}


def test_the_judge_tells_each_kind_of_fault() -> None:
    acked = [Acked(0, 0, "a", 0, 0), Acked(0, 1, "a", 0, 1), Acked(0, 2, "a", 0, 2)]
    whole = [Read("a", 0, 0, "0-0"), Read("a", 0, 1, "0-1"), Read("a", 0, 2, "0-2")]
    assert judge(acked, whole, whole).is_sound
    lost = judge(acked, whole[:2])
    assert (lost.lost, lost.misplaced, lost.is_sound) == ([acked[2]], [acked[2]], False)
    twice = judge(acked, [*whole, Read("a", 0, 3, "0-1")])
    assert (twice.duplicates, twice.is_sound) == (1, True)
    assert judge(acked, [whole[0], whole[2]]).holes == [(("a", 0), 1)]
    assert judge([acked[0], Acked(0, 1, "a", 0, 0)], whole).reordered == [(acked[0], Acked(0, 1, "a", 0, 0))]
    seen = Read("a", 0, 2, "0-9")
    assert judge(acked, whole, [seen]).changed == [seen]
