"""One of two broker groups is killed (or stopped) under load, again and again: nothing acknowledged is ever lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.testing.checkers import CheckResult, judge
from aerobee.testing.processes import ProcessCluster
from aerobee.testing.workload import Consumers, Producers, RawClient

TOPIC = "load"
QUEUES = 4
PRODUCERS = 8


async def kill_rounds(
    directory: Path, rounds: int, flush: str
) -> tuple[CheckResult, Producers, Consumers, list[float]]:
    restarts: list[float] = []
    async with ProcessCluster(directory, brokers=2, settings={"flushDiskType": flush}) as cluster:
        producers, consumers = await begin(cluster)
        for number in range(rounds):
            victim, other = number % 2, 1 - number % 2
            await producers.until(30, broker=cluster.broker_name(victim))
            await cluster.kill(victim)
            # Sends go on, on the other group.
            await producers.until(60, broker=cluster.broker_name(other))
            restarts.append(await cluster.restart(victim))
            await producers.until(1, broker=cluster.broker_name(victim))
        return await end(producers, consumers), producers, consumers, restarts


async def pause_rounds(directory: Path, rounds: int) -> tuple[CheckResult, Producers, Consumers]:
    async with ProcessCluster(directory, brokers=2) as cluster:
        producers, consumers = await begin(cluster)
        for number in range(rounds):
            victim, other = number % 2, 1 - number % 2
            await producers.until(30, broker=cluster.broker_name(victim))
            cluster.pause(victim)
            # Its connections stay open: senders learn from their attempts' time-outs.
            await producers.until(60, broker=cluster.broker_name(other))
            cluster.resume(victim)
            await producers.until(1, broker=cluster.broker_name(victim))
        return await end(producers, consumers), producers, consumers


async def begin(cluster: ProcessCluster) -> tuple[Producers, Consumers]:
    for broker in cluster.brokers:
        admin = RawClient(broker.address)
        await admin.create_topic(TOPIC, QUEUES)
        await admin.close()
    addresses = {cluster.broker_name(index): broker.address for index, broker in enumerate(cluster.brokers)}
    producers = Producers(cluster.namesrv.address, TOPIC, PRODUCERS, interval_s=0.002)
    consumers = Consumers(TOPIC, QUEUES, addresses)
    await producers.start()
    consumers.start()
    return producers, consumers


async def end(producers: Producers, consumers: Consumers) -> CheckResult:
    await producers.stop()
    await consumers.drain()
    verdict = judge(producers.acked, await consumers.read_all(), consumers.reads)
    await consumers.close()
    return verdict


def check(verdict: CheckResult, consumers: Consumers, duplicates_max: int) -> None:
    assert verdict.is_sound, f"{verdict}\n{verdict.lost[:3]}\n{verdict.misplaced[:3]}\n{verdict.changed[:3]}"
    assert consumers.problems == []
    # A duplicate comes from a send that was under way when its broker died, and from nothing else.
    assert verdict.duplicates <= duplicates_max


def run_kills(directory: Path, rounds: int, flush: str) -> None:
    verdict, producers, consumers, restarts = asyncio.run(kill_rounds(directory, rounds, flush))
    print(
        f"\n{flush}: {rounds} kills; {verdict}; failed sends={len(producers.failures)}, "
        f"refused as busy {producers.busy}; longest time without an "
        f"acknowledgement {producers.worst_gap_s * 1000:.0f} ms; restart {min(restarts) * 1000:.0f} to "
        f"{max(restarts) * 1000:.0f} ms"
    )
    check(verdict, consumers, rounds * PRODUCERS)
    assert producers.failures == []


@pytest.mark.parametrize(("flush", "rounds"), [("ASYNC_FLUSH", 5), ("SYNC_FLUSH", 2)])
def test_a_killed_broker_loses_nothing_acknowledged(tmp_path: Path, flush: str, rounds: int) -> None:
    run_kills(tmp_path, rounds, flush)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_fifty_kills(tmp_path: Path, flush: str) -> None:
    run_kills(tmp_path, 50, flush)


def run_pauses(directory: Path, rounds: int) -> None:
    verdict, producers, consumers = asyncio.run(pause_rounds(directory, rounds))
    print(
        f"\n{rounds} times SIGSTOP and SIGCONT; {verdict}; failed sends={len(producers.failures)}, "
        f"refused as busy {producers.busy}; longest time "
        f"without an acknowledgement {producers.worst_gap_s * 1000:.0f} ms"
    )
    assert verdict.is_sound, verdict
    assert consumers.problems == []
    assert producers.failures == []


def test_a_stopped_broker_that_goes_on_loses_nothing_acknowledged(tmp_path: Path) -> None:
    run_pauses(tmp_path, 1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fifty_stops(tmp_path: Path) -> None:
    run_pauses(tmp_path, 50)
