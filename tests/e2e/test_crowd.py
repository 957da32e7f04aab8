"""A crowd: a thousand connections and topics at once. Correct, heartbeats answered in time, memory printed."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.runtime.clock import SystemClock
from aerobee.testing.checkers import quantile
from aerobee.testing.processes import ProcessCluster, ServerProcess
from aerobee.testing.watch import Watch
from aerobee.testing.workload import RawClient

CLOCK = SystemClock()
# RocketMQ: a client's heartbeat must be answered in 3 s, and one in 120 s is enough to live.
HEARTBEAT_MAX_S = 3.0
AT_ONCE = 200
BUSY: list[str] = []


async def use_topic(client: RawClient, topic: str, number: int, messages: int, gate: asyncio.Semaphore) -> list[str]:
    """Send, then read back; what was not as it should be."""
    async with gate:
        await client.heartbeat(f"client-{number}", f"group-{number % 100}")
        sent = [f"{topic}-{count}" for count in range(messages)]
        for body in sent:
            answer = await send_until_taken(client, topic, body)
            if answer.code != ResponseCode.SUCCESS:
                return [f"{topic}: {answer.remark}"]
        found: list[str] = []
        while len(found) < messages:
            _, _, more = await client.pull(topic, 0, len(found), group=f"group-{number % 100}")
            if not more:
                return [f"{topic}: {len(found)} of {messages} came"]
            found += [body for _, body in more]
        return [] if found == sent else [f"{topic}: {found}"]


async def send_until_taken(client: RawClient, topic: str, body: str) -> Command:
    """As clients do: an answer "busy" (a slow disk held the broker for 200 ms) means later."""
    while True:
        answer = await client.send(topic, 0, body.encode(), timeout_s=30)
        if answer.code != ResponseCode.SYSTEM_BUSY:
            return answer
        BUSY.append(answer.remark or "")
        await asyncio.sleep(0.05)


async def crowd(directory: Path, connections: int, topics: int, messages: int) -> None:
    async with ProcessCluster(directory) as cluster:
        broker = cluster.brokers[0]
        BUSY.clear()
        watch = await Watch.start(broker.address)
        clients = [RawClient(broker.address) for _ in range(connections)]
        rss_empty = broker.rss_bytes()
        began_s = CLOCK.monotonic()
        await asyncio.gather(*(client.heartbeat(f"c-{n}", f"group-{n % 100}") for n, client in enumerate(clients)))
        connected_s, rss_connected = CLOCK.monotonic(), broker.rss_bytes()
        await make_topics(clients, topics)
        made_s = CLOCK.monotonic()
        gate = asyncio.Semaphore(AT_ONCE)
        found = await asyncio.gather(
            *(use_topic(clients[n % connections], f"topic-{n}", n, messages, gate) for n in range(topics))
        )
        used_s = CLOCK.monotonic()
        beats = await watch.stop()
        print(
            f"\n{connections} connections ({connected_s - began_s:.1f} s), {topics} topics made in "
            f"{made_s - connected_s:.1f} s, {topics * messages} messages sent and read in {used_s - made_s:.1f} s, "
            f"{len(BUSY)} answered busy first; "
            f"{len(beats)} heartbeats beside it: p50 {quantile(beats, 0.5) * 1000:.1f} p99 "
            f"{quantile(beats, 0.99) * 1000:.1f} max {max(beats) * 1000:.0f} ms; memory {rss_empty >> 20} MiB empty, "
            f"{rss_connected >> 20} with the connections, {broker.rss_bytes() >> 20} at the end"
        )
        assert [problem for problems in found for problem in problems] == []
        assert max(beats) < HEARTBEAT_MAX_S
        await asyncio.gather(*(client.close() for client in clients))
        await stop_and_start(broker, cluster.store_path(0), topics, messages)


async def make_topics(clients: list[RawClient], topics: int) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def make(number: int) -> None:
        async with gate:
            await clients[number % len(clients)].create_topic(f"topic-{number}", 1)

    await asyncio.gather(*(make(number) for number in range(topics)))


async def stop_and_start(broker: ServerProcess, store: Path, topics: int, messages: int) -> None:
    """Every topic is there again after a clean stop."""
    began_s = CLOCK.monotonic()
    assert await broker.stop() == 0
    assert not (store / "abort").exists()
    stopped_s = CLOCK.monotonic() - began_s
    started_s = await broker.start()
    client = RawClient(broker.address)
    ends = await asyncio.gather(*(client.max_offset(f"topic-{number}", 0) for number in range(topics)))
    await client.close()
    print(f"stopped in {stopped_s:.2f} s, started again in {started_s:.2f} s")
    assert ends == [messages] * topics


def require_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def test_a_thousand_connections_and_topics(tmp_path: Path) -> None:
    require_files(4_000)
    asyncio.run(crowd(tmp_path, connections=1_000, topics=1_000, messages=5))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_topics(tmp_path: Path) -> None:
    require_files(4_000)
    asyncio.run(crowd(tmp_path, connections=1_000, topics=10_000, messages=5))
