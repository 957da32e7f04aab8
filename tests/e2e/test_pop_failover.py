"""POP at three replicas in processes of their own: kill -9 of the master in the middle of pop, ack and change."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest

import aerobee
from aerobee.testing.commands import PATIENCE_S, up

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")

_COUNT = 240
# What a consumer does with the messages that it gets before the kill, in turn.
_ACK, _CHANGE, _KEEP = 0, 1, 2


class _Worker:
    """One consumer, and what it was told."""

    def __init__(self, book: _Book, consumer: aerobee.SimpleConsumer) -> None:
        self._book = book
        self._consumer = consumer
        self._turn = 0

    async def run(self) -> None:
        book = self._book
        while len(book.acked) < _COUNT:
            try:
                messages = await self._consumer.receive(max_messages=8, invisible=5.0, wait=1.0)
            except aerobee.AerobeeError:
                await asyncio.sleep(0.1)
                continue
            for message in messages:
                book.came(message)
                try:
                    await self._handle(message)
                except aerobee.AerobeeError:
                    book.failed += 1

    async def _handle(self, message: aerobee.PoppedMessage) -> None:
        book, self._turn = self._book, self._turn + 1
        turn = _ACK if book.is_over else self._turn % 3
        if turn == _ACK:
            until = message.invisible_until
            await self._consumer.ack(message)
            if time.time() < until:
                book.acked.add(bytes(message.body))
        elif turn == _CHANGE:
            asked = time.time()
            await self._consumer.change_invisible(message, 9.0)
            book.hidden[bytes(message.body)] = asked + 9.0


class _Book:
    def __init__(self) -> None:
        self.acked: set[bytes] = set()
        # Until when messages whose change was answered are hidden.
        self.hidden: dict[bytes, float] = {}
        self.tries: dict[bytes, int] = {}
        self.failed = 0
        # The master is killed: everything is acknowledged from now on.
        self.is_over = False
        self.problems: list[str] = []

    def came(self, message: aerobee.PoppedMessage) -> None:
        body = bytes(message.body)
        popped = message.lease.pop_time / 1000 if message.lease is not None else 0.0
        if body in self.acked:
            self.problems.append(f"{body!r} was acknowledged with an answer, and came again")
        if popped < self.hidden.pop(body, 0.0) - 0.05:
            self.problems.append(f"{body!r} came before the time that a change was answered for")
        self.tries[body] = message.delivery_attempt


def test_leases_outlive_their_master() -> None:
    """Answered acknowledgements hold, answered changes hide, and everything else comes again."""

    async def scenario(ready: dict[str, Any]) -> _Book:
        namesrv, book = ready["namesrv"], _Book()
        async with aerobee.Producer(namesrv) as producer:
            for number in range(_COUNT):
                await producer.send("orders", b"%d" % number, timeout=30)
        consumers = [
            aerobee.SimpleConsumer(
                namesrv, group="billing", subscribe={"orders": "*"}, consume_from="first", request_timeout_ms=2_000
            )
            for _ in range(3)
        ]
        for consumer in consumers:
            await consumer.start()
        workers = [asyncio.create_task(_Worker(book, consumer).run()) for consumer in consumers]
        while len(book.acked) < 25 or len(book.hidden) < 25:  # noqa: ASYNC110 - the workers tell nobody
            await asyncio.sleep(0.005)
        (master,) = [one for one in ready["brokers"] if one["address"] == ready["broker"]]
        os.kill(master["pid"], signal.SIGKILL)
        book.is_over = True
        assert len(book.acked) < _COUNT / 2, "the kill came in the middle"
        await asyncio.wait_for(asyncio.gather(*workers), PATIENCE_S)
        for consumer in consumers:
            assert await consumer.receive(invisible=5.0, wait=0.5) == [], "everything is acknowledged"
            await consumer.close()
        return book

    with up("--replicas", "3", "--set", "flushDiskType=ASYNC_FLUSH") as running:
        running.json("topic", "create", "-t", "orders", "-q", "2")
        book = asyncio.run(scenario(running.ready))
    assert book.problems == []
    assert len(book.acked) == _COUNT
    assert max(book.tries.values()) >= 2, "what was held came again"
