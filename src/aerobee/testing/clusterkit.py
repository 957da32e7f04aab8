"""What tests of clients do on any cluster: send numbers as bodies, and wait for what handlers saw."""

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
    """As `fill`, for a test that runs in a loop."""
    async with Producer(namesrv) as producer:
        return [await producer.send(topic, b"%d" % number, **options) for number in range(start, start + count)]


async def send_stubbornly(namesrv: str, topic: str, number: int, **options: Any) -> None:
    """Until it is stored: a broker is away or busy with its start, or the route names its old place."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(TransportError, BrokerError):
                await send(namesrv, topic, 1, start=number, **options)
                return
            await asyncio.sleep(_RETRY_S)


class Seen:
    """What handlers saw, to be waited for."""

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
        """Until there are so many."""
        await self.until(lambda: len(self.messages) >= count)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def numbers(self) -> list[int]:
        """The bodies as `fill` and `send` make them, sorted."""
        return sorted(map(parse_int, self.bodies))


def collecting(namesrv: str, topic: str, seen: Seen, **options: Any) -> PushConsumer:
    """A consumer from the topic's first message on that does nothing but remember, of the group `g-<topic>`; `options`
    are the consumer's and its listener's."""
    listener = {name: options.pop(name) for name in ("tags", "sql92", "ordered") if name in options}
    consumer = PushConsumer(namesrv, group=f"g-{topic}", consume_from="first", **options)

    @consumer.listener(topic, **listener)
    async def handle(message: Message) -> None:
        seen.add(message)

    return consumer
