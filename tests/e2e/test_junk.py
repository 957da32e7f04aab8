"""Junk on every port: refused in words, said once in the log, and not noticed by anybody else."""

from __future__ import annotations

import asyncio
import re
import resource
from collections import Counter
from pathlib import Path

import pytest

from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import encode_command
from aerobee.protocol.headers.topic import DeleteTopicRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.testing import junk
from aerobee.testing.checkers import quantile
from aerobee.testing.junk import JunkPeer, connect
from aerobee.testing.processes import ProcessCluster, ServerProcess, log_lines
from aerobee.testing.workload import RawClient, pull_header

CLOCK = SystemClock()
WINDOW = 100
# A loaded machine must not turn into busy answers here.
SETTINGS = {"brokerFastFailureEnable": "false"}
# A name server closes the connection of a broker that registers with a life of 0 ms, as it should.
MAY_CLOSE = {RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT}


async def junk_requests(server: ServerProcess, code: int, every: int) -> tuple[int, list[str]]:
    """Send the junk of one code; (how many, what went wrong)."""
    peer = await connect(server.address)
    assert peer.transport is not None
    waiting: set[int] = set()
    sent = 0
    for number, command in enumerate(junk.requests(code)):
        if number % every != code % every:
            continue
        command.opaque = number
        peer.transport.write(encode_command(command))
        waiting.add(number)
        sent += 1
        if len(waiting) >= WINDOW:
            waiting = await peer.until(waiting, 10)
            if waiting or peer.closed.is_set():
                break
    waiting = await peer.until(waiting, 10)
    problems = []
    if peer.closed.is_set() and code not in MAY_CLOSE:
        problems.append(f"{server.kind}, code {code}: the connection was closed")
    elif waiting and code not in MAY_CLOSE:
        problems.append(f"{server.kind}, code {code}: {len(waiting)} requests unanswered, first {min(waiting)}")
    problems += [
        f"{server.kind}, code {code}, request {opaque}: {answer.remark}"
        for opaque, answer in peer.answers.items()
        if answer.code == ResponseCode.SYSTEM_ERROR and re.match(r"\w*(Error|Exception)\b", answer.remark or "")
    ]
    peer.transport.close()
    return sent, problems


async def fuzz_requests(directory: Path, every: int) -> None:
    outside = directory / "outside"
    outside.mkdir()
    async with ProcessCluster(directory, settings=SETTINGS) as cluster:
        sent, problems = 0, []
        for server in (cluster.namesrv, cluster.brokers[0]):
            for code in junk.all_codes():
                count, found = await junk_requests(server, code, every)
                sent += count
                problems += found
        broker = RawClient(cluster.brokers[0].address)
        escape = DeleteTopicRequestHeader(topic="../../outside")
        assert (await broker.call(RequestCode.DELETE_TOPIC_IN_BROKER, escape)).code == ResponseCode.INVALID_PARAMETER
        assert (await broker.send("after", 0, b"x")).code == ResponseCode.SUCCESS
        await broker.close()
        logs = {server: server.log_text() for server in (cluster.namesrv, cluster.brokers[0])}
        warnings = sum(len(log_lines(text, "WARN")) for text in logs.values())
        print(f"\n{sent} wrong requests: {len(problems)} badly answered; {warnings} lines of warning in the logs")
        assert problems == []
        assert all("Traceback" not in text for text in logs.values())
        assert outside.is_dir(), "a topic's name led out of the store"


def test_every_request_code_refuses_wrong_fields_and_bodies_in_words(tmp_path: Path) -> None:
    asyncio.run(fuzz_requests(tmp_path, every=17))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_wrong_field_and_body_of_every_request_code(tmp_path: Path) -> None:
    asyncio.run(fuzz_requests(tmp_path, every=1))


async def fuzz_sends(directory: Path, seed: int, count: int) -> None:
    async with ProcessCluster(directory, settings=SETTINGS) as cluster:
        broker = cluster.brokers[0]
        client = RawClient(broker.address)
        await client.create_topic("wrong", 1)
        peer = await connect(broker.address)
        assert peer.transport is not None
        waiting: set[int] = set()
        for opaque, frame in junk.wrong_sends(seed, count):
            peer.transport.write(frame)
            waiting.add(opaque)
            if len(waiting) >= WINDOW:
                waiting = await peer.until(waiting, 10)
                assert not waiting, f"unanswered: {waiting}"
        assert not await peer.until(waiting, 10)
        peer.transport.close()
        codes = Counter(answer.code for answer in peer.answers.values())
        stored = await client.max_offset("wrong", 0)
        found = 0
        while found < stored:
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_header("wrong", 0, found, "g", 0))
            found = int(answer.ext["nextBeginOffset"])
        print(f"\n{count} sends with wrong bytes: {codes[0]} stored, {count - codes[0]} refused; {found} read back")
        assert codes[0] > 0 < count - codes[0]
        await client.close()
        assert await broker.stop() == 0
        await broker.start()
        assert "Traceback" not in broker.log_text()


def test_wrong_bytes_in_sends_are_stored_or_refused_and_never_stop_a_reader(tmp_path: Path) -> None:
    asyncio.run(fuzz_sends(tmp_path, seed=1, count=3_000))


# -- bytes that are no frames, and connections that do nothing


async def throw_streams(server: ServerProcess, seed: int, count: int) -> tuple[int, int]:
    """(connections the server closed, connections it still waits on for the rest of a frame)."""
    peers: list[JunkPeer] = []
    for data in junk.streams(seed, count):
        peer = await connect(server.address)
        assert peer.transport is not None
        peer.transport.write(data)
        peers.append(peer)
    await asyncio.wait([asyncio.ensure_future(peer.closed.wait()) for peer in peers], timeout=1)
    closed = sum(peer.closed.is_set() for peer in peers)
    for peer in peers:
        assert peer.transport is not None
        peer.transport.abort()
    return closed, len(peers) - closed


async def latencies(client: RawClient, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began_s = CLOCK.monotonic()
        assert (await client.send("normal", 0, b"x" * 100)).code == ResponseCode.SUCCESS
        taken.append(CLOCK.monotonic() - began_s)
    return taken


async def junk_streams(directory: Path, idle: int, half: int, count: int) -> None:
    async with ProcessCluster(directory, settings=SETTINGS) as cluster:
        broker = cluster.brokers[0]
        servers = (cluster.namesrv, broker)
        client = RawClient(broker.address)
        await latencies(client, 100)
        before = await latencies(client, 500)
        rss = broker.rss_bytes()
        quiet = [await connect(server.address) for server in servers for _ in range(idle // 2)]
        halves = [await connect(server.address) for server in servers for _ in range(half // 2)]
        for peer in halves:
            assert peer.transport is not None
            peer.transport.write((5_000).to_bytes(4, "big") + bytes(4) + b"{")
        during = await latencies(client, 500)
        grown = (broker.rss_bytes() - rss) / (len(quiet) + len(halves)) * 2
        thrown = [await throw_streams(server, seed, count) for seed, server in enumerate(servers)]
        sends = asyncio.ensure_future(latencies(client, 200))
        thrown += [await throw_streams(server, seed + 10, count) for seed, server in enumerate(servers)]
        await sends
        ratio = quantile(during, 0.99) / quantile(before, 0.99)
        print(
            f"\n{len(quiet)} idle connections and {len(halves)} with half a frame: a producer beside them has p50 "
            f"{quantile(before, 0.5) * 1e6:.0f} -> {quantile(during, 0.5) * 1e6:.0f} us, p99 "
            f"{quantile(before, 0.99) * 1e6:.0f} -> {quantile(during, 0.99) * 1e6:.0f} us (x{ratio:.2f}); "
            f"{grown / 1024:.1f} KiB for each connection; streams of junk: {sum(c for c, _ in thrown)} closed, "
            f"{sum(w for _, w in thrown)} waited for"
        )
        assert grown < 64 << 10
        # Two shared cores: a tenth of a second is what a neighbour may cost, never junk.
        assert quantile(during, 0.99) < max(2 * quantile(before, 0.99), 0.1)
        assert not any(peer.closed.is_set() for peer in quiet), "an idle connection was cut too early"
        for server in servers:
            text = server.log_text()
            assert "Traceback" not in text
            lines = [line for line in log_lines(text, "WARN") if "connection closed: not the remoting protocol" in line]
            assert 1 <= len(lines) <= 3, "one line for each ten seconds, not one for each connection"
        for peer in (*quiet, *halves):
            assert peer.transport is not None
            peer.transport.abort()
        await client.close()


def test_idle_connections_and_streams_of_junk_disturb_nobody(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 5_000:
        pytest.skip("needs 5,000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5_000), hard))
    asyncio.run(junk_streams(tmp_path, idle=2_000, half=200, count=200))
