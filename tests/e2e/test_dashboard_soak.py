"""Test 47: a dashboard that people use for long, over a broker that gets 1,000 messages a second: its memory.

`make dashboard-soak` runs it for 20 minutes; MINUTES=1440 is the whole day.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")

from aerobee.client.producer import Producer
from aerobee.model.message import Message
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import environment
from aerobee.testing.dashboardkit import Reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0), pytest.mark.skipif(sys.platform != "linux", reason="/proc")]

MINUTES = float(os.environ.get("MINUTES", "20"))
RATE, BATCH, TOPICS = 1_000, 50, 300
MEMORY_MAX = 150 << 20
# What the last quarter of the time may need more than the second one: rings fill, and the allocator keeps some.
GROWTH_MAX = 16 << 20
PAGES = ("/", "/topics", "/topics?sort=in_s&falls=1", "/topics/topic-7", "/groups", "/brokers", "/clients", "/waiting",
         "/messages?topic=busy", "/messages?topic=busy&text=nowhere", "/dead", "/spark", "/audit")  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"logMaxBytes": str(256 << 20), "cleanResourceInterval": "1000"}) as running:
        running.create_topic("busy", 4)
        for number in range(TOPICS):
            running.create_topic(f"topic-{number}", 1)
        yield running


@pytest.fixture
def dashboard(cluster: LocalCluster) -> Iterator[tuple[str, int]]:
    """Yield the address and the process id of a dashboard in a process of its own."""
    words = [sys.executable, "-m", "aerobee", "dashboard", "-n", cluster.namesrv, "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(), text=True) as running:
        assert running.stdout is not None
        told = json.loads(running.stdout.readline())
        try:
            yield told["dashboard"], running.pid
        finally:
            running.terminate()


def memory_of(pid: int) -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _send(namesrv: str, stop: threading.Event, sent: list[int]) -> None:
    """Send batches at the rate, and a message to one of the many topics with each."""
    body = b"x" * 200
    async with Producer(namesrv) as producer:
        began_s, number = time.monotonic(), 0
        while not stop.is_set():
            await producer.send_batch([Message("busy", body) for _ in range(BATCH)])
            await producer.send(f"topic-{number % TOPICS}", body)
            number += 1
            sent.append(BATCH)
            await asyncio.sleep(max(0.0, began_s + number * BATCH / RATE - time.monotonic()))


def test_dashboard_soak_24h(cluster: LocalCluster, dashboard: tuple[str, int]) -> None:
    address, pid = dashboard
    stop, following, sent = threading.Event(), threading.Event(), list[int]()
    tailed: list[str] = []
    reader = Reader(address)
    reader.meet()
    # A stream ends after an hour. A count that is never reached keeps this one until then.
    sending = threading.Thread(target=lambda: asyncio.run(_send(cluster.namesrv, stop, sent)))
    tailing = threading.Thread(
        target=lambda: reader.stream("/raw/tail?topic=busy", tailed, 1 << 60, following), daemon=True
    )
    tailing.start()
    assert following.wait(60)
    sending.start()
    looks: list[int] = []
    until_s, asked = time.monotonic() + MINUTES * 60, 0
    try:
        while time.monotonic() < until_s:
            for path in PAGES:
                reply = reader.get(path)
                assert reply.status == 200, (path, reply.text[-500:])
                asked += 1
            looks.append(memory_of(pid))
    finally:
        stop.set()
        sending.join(60)
    quarter = max(1, len(looks) // 4)
    early, late = statistics.median(looks[quarter : 2 * quarter]), statistics.median(looks[-quarter:])
    told = " then ".join(f"{size / (1 << 20):.0f}" for size in (early, late, max(looks)))
    print(f"\n{asked:,} pages, {sum(sent):,} messages, {len(tailed):,} tailed; MiB early, late, at most: {told}")
    assert max(looks) < MEMORY_MAX
    assert late - early < GROWTH_MAX
    assert tailed
