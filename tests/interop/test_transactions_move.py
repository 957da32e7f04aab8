"""Pending transactions in a store that changes hands: ours opened by Apache's broker, Apache's by ours, and back.

What was committed before stays, what was rolled back never comes, what was pending is asked about there and then
committed once; whoever opens the store after that asks about none of them again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aerobee import LitePullConsumer, Message, Producer
from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.testing.apache import STORE_SETTINGS, ApacheBroker, ApacheNameServer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT

TOPIC, GROUP = "T", "tx"
# Questions begin a second after the half message; a loaded machine has time to answer one before the next.
TIMES = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "4000",
    "transactionOpBatchInterval": "200",
    "flushConsumerOffsetInterval": "200",
}
# Log files of one size on both sides.
SIZES = {name: str(size) for name, size in STORE_SETTINGS.items() if name.startswith(("mapped", "max"))}
LIMIT_S = 120


class Asked:
    """The broker's questions, to be waited for."""

    def __init__(self, answer: bool | None) -> None:
        self.bodies: list[bytes] = []
        self._answer = answer
        self._changed = asyncio.Event()

    def __call__(self, half: Message) -> bool | None:
        self.bodies.append(half.body)
        self._changed.set()
        return self._answer

    async def until(self, *bodies: bytes) -> None:
        while not set(bodies) <= set(self.bodies):
            self._changed.clear()
            await self._changed.wait()


async def leave_open(producer: Producer, body: bytes) -> None:
    with pytest.raises(ZeroDivisionError):
        async with producer.transaction(TOPIC, body):
            1 / 0  # noqa: B018


async def begin(namesrv: str) -> None:
    """One of each kind: committed, rolled back, pending and asked about already, pending and not yet."""
    async with AdminConnection(namesrv) as admin:
        await create_topic(admin, TOPIC, TopicChange(read_queues=2, write_queues=2))
    asked = Asked(None)
    async with Producer(namesrv, group=GROUP, on_check=asked) as producer:
        async with producer.transaction(TOPIC, b"committed"):
            pass
        async with producer.transaction(TOPIC, b"rolled back") as transaction:
            transaction.rollback()
        await leave_open(producer, b"asked before")
        await asked.until(b"asked before")
        await leave_open(producer, b"pending")


async def finish(namesrv: str) -> None:
    """The other broker asks about both, and is told to commit."""
    asked = Asked(True)
    async with Producer(namesrv, group=GROUP, on_check=asked) as producer:
        # A producer is known to the brokers it has sent to.
        await producer.send(TOPIC, b"plain")
        await asked.until(b"asked before", b"pending")
        await until_readable(namesrv, b"committed", b"plain", b"asked before", b"pending")
        assert Counter(asked.bodies) == {b"asked before": 1, b"pending": 1}


async def find_nothing(namesrv: str) -> None:
    """A question about a newer one comes, and none about what has ended."""
    asked = Asked(False)
    async with Producer(namesrv, group=GROUP, on_check=asked) as producer:
        await leave_open(producer, b"newer")
        await asked.until(b"newer")
    assert set(asked.bodies) == {b"newer"}
    await until_readable(namesrv, b"committed", b"plain", b"asked before", b"pending")


async def until_readable(namesrv: str, *bodies: bytes) -> None:
    """The topic holds these, each once (the answer to a question goes one way)."""
    async with LitePullConsumer(namesrv, group="reader", consume_from="first") as reader:
        while len(found := await everything(reader)) < len(bodies):  # noqa: ASYNC110 - a server is waited for
            await asyncio.sleep(0.05)
    assert Counter(found) == Counter(bodies)


async def everything(reader: LitePullConsumer) -> list[bytes]:
    found: list[bytes] = []
    for queue in await reader.queues(TOPIC):
        offset = 0
        while offset < await reader.end_offset(queue):
            result = await reader.pull(queue, offset)
            found += [message.body for message in result.messages]
            offset = result.next_offset
    return found


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, LIMIT_S))


@contextmanager
def ours(data: Path, names: ApacheNameServer, killed: bool) -> Iterator[str]:
    with LocalCluster(data=data, settings={**SIZES, **TIMES, **PATIENT, "maxMessageSize": str(512 << 10)}) as cluster:
        yield cluster.namesrv
        if killed:
            cluster.kill(0)


@contextmanager
def apaches(data: Path, names: ApacheNameServer, killed: bool) -> Iterator[str]:
    with ApacheBroker(data / "work", data / "broker-a", names.address, settings=TIMES) as broker:
        yield names.address
        broker.kill() if killed else broker.stop()


@pytest.mark.parametrize(
    ("first", "second", "killed"),
    [(ours, apaches, False), (ours, apaches, True), (apaches, ours, False)],
    ids=["ours-to-apache", "ours-killed-to-apache", "apaches-to-ours"],
)
def test_pending_transactions_end_where_the_store_is_opened(
    tmp_path: Path, apache_namesrv: ApacheNameServer, first: Any, second: Any, killed: bool
) -> None:
    with first(tmp_path, apache_namesrv, killed) as namesrv:
        run(begin(namesrv))
    # In good order: a killed Apache broker loses its last op messages, and asks again (docs/formats/transactions.md).
    with second(tmp_path, apache_namesrv, False) as namesrv:
        run(finish(namesrv))
    with first(tmp_path, apache_namesrv, False) as namesrv:
        run(find_nothing(namesrv))
