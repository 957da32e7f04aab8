"""LocalCluster(replicas=3): faults by group and replica, the new master, and time that is moved."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

import aerobee
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.workload import eventually


def bodies(cluster: LocalCluster) -> set[bytes]:
    return {message.body for message in cluster.messages("orders")}


def send(cluster: LocalCluster, *contents: bytes, **options: float) -> None:
    with Producer(cluster.namesrv) as producer:
        for body in contents:
            producer.send("orders", body, timeout=30, **options)


def test_a_master_that_is_killed_or_paused_is_replaced() -> None:
    with LocalCluster(replicas=3) as cluster:
        cluster.create_topic("orders", queues=2)
        first = cluster.master()
        send(cluster, b"1", b"2")
        cluster.kill(0, first)
        second = cluster.master()
        assert second != first
        send(cluster, b"3")
        cluster.restart(0, first)
        assert bodies(cluster) == {b"1", b"2", b"3"}
        cluster.pause(0)
        third = cluster.master()
        assert third not in (second,)
        send(cluster, b"4")
        cluster.resume(0)
        assert cluster.broker_address(0) == cluster.broker_address(0, cluster.master())
        assert bodies(cluster) == {b"1", b"2", b"3", b"4"}


def test_a_topic_is_made_when_enough_replicas_are_in_sync() -> None:
    with LocalCluster(replicas=3) as cluster:
        cluster.create_topic("first", queues=1)
        followers = [number for number in (1, 2, 3) if number != cluster.master()]
        for number in followers:
            cluster.kill(0, number)
        # The master takes them out of the set after two seconds.
        with Producer(cluster.namesrv) as producer, pytest.raises(AerobeeError):
            producer.send("first", b"refused", timeout=4)
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(cluster.create_topic, "orders", queues=1)
            assert not wait([made], 0.5).done, "the group cannot take it yet"
            for number in followers:
                cluster.restart(0, number)
            made.result(60)
        send(cluster, b"1")
        assert bodies(cluster) == {b"1"}


def test_time_moves_for_replicas_and_leases_do_not_end() -> None:
    with LocalCluster(replicas=2) as cluster:
        cluster.create_topic("orders", queues=1)
        send(cluster, b"later", delay=3600)
        master = cluster.master()
        cluster.advance(hours=2)
        assert bodies(cluster) == {b"later"}
        assert cluster.master() == master
        cluster.kill(0, master)
        assert cluster.master() != master
        assert bodies(cluster) == {b"later"}


def test_a_group_is_restarted_whole_and_goes_on_without_coordination() -> None:
    with LocalCluster(brokers=2, replicas=2) as cluster:
        cluster.create_topic("orders", queues=1)
        send(cluster, b"1")
        cluster.stop_coordination()
        send(cluster, b"2")
        cluster.restart_coordination()
        cluster.restart(0)
        cluster.restart(1)
        send(cluster, b"3")
        assert bodies(cluster) == {b"1", b"2", b"3"}


def test_consumers_go_on_with_the_new_master() -> None:
    async def main(cluster: LocalCluster) -> None:
        seen: list[bytes] = []
        consumer = aerobee.PushConsumer(cluster.namesrv, group="readers", consume_from="first")

        @consumer.listener("orders")
        async def handle(message: aerobee.Message) -> None:
            seen.append(message.body)

        async with consumer, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("orders", b"1", timeout=30)
            await eventually(lambda: b"1" in seen)
            await asyncio.to_thread(cluster.kill, 0)
            await producer.send("orders", b"2", timeout=30)
            await eventually(lambda: b"2" in seen)

    with LocalCluster(replicas=3) as cluster:
        cluster.create_topic("orders", queues=1)
        asyncio.run(main(cluster))


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        LocalCluster(replicas=0)
    with LocalCluster(replicas=2) as cluster:
        for number in (0, 3):
            with pytest.raises(InvalidArgumentError, match="no replica"):
                cluster.kill(0, number)
        cluster.kill(0, 1)
        cluster.kill(0, 2)
        with pytest.raises(AerobeeError, match="no master"):
            cluster.master(0, within_s=0.2)
