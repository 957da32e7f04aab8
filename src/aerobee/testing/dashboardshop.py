"""Fills a cluster with what the pages of a dashboard show: messages, dead letters, what waits, a user with rights."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aerobee.client.consumer import DeadLetter, PushConsumer, SimpleConsumer
from aerobee.client.producer import Producer
from aerobee.model.message import Message
from aerobee.runtime.loopthread import LoopThread
from aerobee.testing.cluster import LocalCluster

TOPIC: Final = "orders"
GROUP: Final = "billing"
DEAD: Final = 10
_ORDERS: Final = 60
_PATIENCE_S: Final = 60.0


def fill_shop(cluster: LocalCluster) -> None:
    """Make the topics and send the messages. Return when the dead letters are there."""
    for topic in (TOPIC, "payments", "shipments"):
        cluster.create_topic(topic, 4)
    if cluster.security is not None:
        cluster.add_user("anna", {f"Topic:{TOPIC}": "Pub,Sub", f"Group:{GROUP}": "Sub"})
    # Playwright runs a loop in the thread of the tests.
    thread = LoopThread("shop")
    try:
        thread.run(_fill(cluster))
    finally:
        thread.stop()


@contextmanager
def traffic(cluster: LocalCluster) -> Iterator[None]:
    """Let a shop trade meanwhile: its rate rises and falls, one group keeps up, and another one falls behind."""
    for topic in ("clicks", "invoices-eu-central-1-settled", "stock"):
        cluster.create_topic(topic, 4)
    thread = LoopThread("traffic")
    try:
        stop = thread.run(_stopper())
        running = asyncio.run_coroutine_threadsafe(_trade(cluster, stop), thread.loop)
        try:
            yield
        finally:
            thread.loop.call_soon_threadsafe(stop.set)
            running.result(_PATIENCE_S)
    finally:
        thread.stop()


async def _stopper() -> asyncio.Event:
    return asyncio.Event()


async def _trade(cluster: LocalCluster, stop: asyncio.Event) -> None:
    options = cluster.client_options
    shares = {TOPIC: 12, "clicks": 30, "payments": 8, "invoices-eu-central-1-settled": 4, "stock": 2}
    async with (
        Producer(cluster.namesrv, trace=True, **options) as producer,
        _worker(cluster, GROUP, TOPIC, 0.0),
        _worker(cluster, "fraud-check", "payments", 0.0),
        _worker(cluster, "recommendations", "clicks", 0.12),
    ):
        sent = turn = 0
        while not stop.is_set():
            turn += 1
            wave = 1 + 0.6 * math.sin(turn / 9)
            for topic, share in shares.items():
                for _ in range(round(share * wave)):
                    sent += 1
                    body = json.dumps(
                        {"order": sent, "amount": sent % 97 * 1.25, "country": "DE" if sent % 3 else "FR"}
                    )
                    tag = "PAID" if sent % 4 else "NEW"
                    await producer.send(topic, body.encode(), tags=tag, keys=f"o-{sent}")
            try:
                async with asyncio.timeout(0.5):
                    await stop.wait()
            except TimeoutError:
                continue


def _worker(cluster: LocalCluster, group: str, topic: str, pause_s: float) -> PushConsumer:
    """Return a consumer that needs some time for each message."""
    options = cluster.client_options
    consumer = PushConsumer(cluster.namesrv, group=group, consume_from="first", concurrency=2, trace=True, **options)

    @consumer.listener(topic)
    async def handle(message: Message) -> None:
        await asyncio.sleep(pause_s)

    return consumer


async def _fill(cluster: LocalCluster) -> None:
    options = cluster.client_options
    async with Producer(cluster.namesrv, **options) as producer:
        for number in range(_ORDERS):
            body = json.dumps({"order": number, "amount": number * 3.5, "lines": [{"sku": f"A-{number}", "count": 2}]})
            await producer.send(
                TOPIC, body.encode(), tags="PAID" if number % 3 else "NEW", keys=f"o-{number}",
                properties={"amount": str(number * 3)},
            )  # fmt: skip
        evil = {"<b>": "<img src=x onerror=alert(3)>"}
        await producer.send(TOPIC, b"<script>alert(1)</script>", tags="<script>", keys="evil", properties=evil)
        await producer.send("payments", bytes(range(256)), keys="bytes")
        for number in range(5):
            await producer.send("shipments", b"later", delay=3600 + number)
            await producer.send("shipments", b"held %d" % number)
    await _make_dead_letters(cluster)
    await _hold(cluster)


async def _make_dead_letters(cluster: LocalCluster) -> None:
    seen = 0
    done = asyncio.Event()
    consumer = PushConsumer(cluster.namesrv, group=GROUP, consume_from="first", **cluster.client_options)

    @consumer.listener(TOPIC)
    async def handle(message: Message) -> None:
        nonlocal seen
        seen += 1
        if seen > _ORDERS:
            done.set()
        if seen <= DEAD:
            raise DeadLetter("no such account")

    async with consumer, asyncio.timeout(_PATIENCE_S):
        await done.wait()
        while len(cluster.messages(f"%DLQ%{GROUP}")) < DEAD:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def _hold(cluster: LocalCluster) -> None:
    """Let a consumer by POP take messages that it does not acknowledge."""
    wanted = {"shipments": "*"}
    async with SimpleConsumer(cluster.namesrv, group="packers", subscribe=wanted, **cluster.client_options) as consumer:
        async with asyncio.timeout(_PATIENCE_S):
            while not await consumer.receive(3, 600):
                pass
