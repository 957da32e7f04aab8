"""Helpers for tests of clients on any cluster: they send numbers as bodies and wait for what handlers saw."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from aerobee.client.consumer import PushConsumer
from aerobee.client.core import SendReceipt
from aerobee.client.producer import Producer
from aerobee.errors import BrokerError, TransportError
from aerobee.model.message import Message
from aerobee.model.numbers import parse_int
from aerobee.sync import Producer as SyncProducer

PATIENCE_S = 60.0
_RETRY_S = 0.05


def fill(namesrv: str, topic: str, count: int, start: int = 0, **options: Any) -> list[SendReceipt]:
    """Send the numbers from `start` on, one message each. `options` are Producer.send's (tags, keys, queue ...)."""
    with SyncProducer(namesrv) as producer:
        return [producer.send(topic, b"%d" % number, **options) for number in range(start, start + count)]


async def send(namesrv: str, topic: str, count: int, start: int = 0, **options: Any) -> list[SendReceipt]:
    """Send as `fill` does, in a test that runs in an event loop."""
    async with Producer(namesrv) as producer:
        return [await producer.send(topic, b"%d" % number, **options) for number in range(start, start + count)]


async def send_stubbornly(namesrv: str, topic: str, number: int, **options: Any) -> None:
    """Send a number until it is stored: a broker may be away or starting, or the route may be old."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(TransportError, BrokerError):
                await send(namesrv, topic, 1, start=number, **options)
                return
            await asyncio.sleep(_RETRY_S)


class Seen:
    """The messages that handlers saw. Tests wait for them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._changed = asyncio.Event()

    def add(self, *messages: Message) -> None:
        self.messages += messages
        self._changed.set()

    async def until(self, holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(within_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def count(self, count: int) -> None:
        """Wait until there are `count` messages."""
        await self.until(lambda: len(self.messages) >= count)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def numbers(self) -> list[int]:
        """Return the numbers that `fill` and `send` sent, sorted."""
        return sorted(map(parse_int, self.bodies))


def collecting(namesrv: str, topic: str, seen: Seen, **options: Any) -> PushConsumer:
    """Make a consumer of the group `g-<topic>` that adds everything from the topic's first message on to `seen`.

    `options` are those of the consumer and of its listener.
    """
    listener = {name: options.pop(name) for name in ("tags", "sql92", "ordered") if name in options}
    consumer = PushConsumer(namesrv, group=f"g-{topic}", consume_from="first", **options)

    @consumer.listener(topic, **listener)
    async def handle(message: Message) -> None:
        seen.add(message)

    return consumer
