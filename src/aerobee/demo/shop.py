"""The demo's traffic: producers, a group of consumers, and a reader of the aggregates that Spark sends back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.client.consumer import LitePullConsumer, PushConsumer
from aerobee.client.core import SelectorError
from aerobee.client.producer import Producer, SendOptions
from aerobee.demo.ledger import Ledger, Report, cents_of, shop_of
from aerobee.errors import AerobeeError
from aerobee.model.message import Message
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue

TOPIC = "orders"
GROUP = "billing"
# The topic of Spark's aggregates, and the group that reads it.
TOTALS = "totals"
REPORT_GROUP = "report"
CONSUMERS = 2
QUEUES = 8
_TASKS = 128
_BATCH = 32
# The pause before an order is sent again after all tries of a send failed.
_AGAIN_S = 0.05


def order_body(number: int) -> bytes:
    return json.dumps({"order": number, "shop": shop_of(number), "cents": cents_of(number)}).encode()


class Shop:
    """The shop, which sends orders, consumes them and notes both in the ledger."""

    def __init__(self, namesrv: str, orders: int) -> None:
        self.ledger = Ledger()
        self.report = Report()
        self.orders = orders
        # The last tenth of the orders is sent when this is set, so that Spark reads some while they are sent.
        self.may_finish = asyncio.Event()
        self._namesrv = namesrv
        self._numbers = iter(range(orders))
        self._awaited: dict[int, asyncio.Event] = {}
        self._milestone = (orders + 1, asyncio.Event())

    @asynccontextmanager
    async def consuming(self) -> AsyncIterator[None]:
        """Consume orders with a group of consumers, which share the topic's queues."""
        async with AsyncExitStack() as stack:
            for _ in range(CONSUMERS):
                consumer = PushConsumer(self._namesrv, group=GROUP, consume_from="first")
                consumer.listener(TOPIC, batch=_BATCH)(self._handle)
                await stack.enter_async_context(consumer)
            yield

    async def _handle(self, messages: list[Message]) -> None:
        for message in messages:
            place = (message.broker, message.queue_id, message.queue_offset)
            number = parse_int(message.keys)
            self.ledger.deliver(number, place)
            if number in self._awaited:
                self._awaited[number].set()

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Consume the aggregates that Spark sends."""
        consumer = PushConsumer(self._namesrv, group=REPORT_GROUP, consume_from="first")
        consumer.listener(TOTALS)(self._note)
        async with consumer:
            yield

    async def _note(self, message: Message) -> None:
        self.report.deliver(message.body, (message.broker, message.queue_id, message.queue_offset))

    async def open(self) -> None:
        """Create the topics on every broker. The first message would create each on one broker only."""
        async with AdminConnection(self._namesrv) as admin:
            await create_topic(admin, TOPIC, TopicChange(QUEUES, QUEUES))
            await create_topic(admin, TOTALS, TopicChange(1, 1))

    async def sell(self) -> None:
        """Send all orders; return when every one is acknowledged."""
        async with Producer(self._namesrv, group="shop") as producer, asyncio.TaskGroup() as tasks:
            for _ in range(_TASKS):
                tasks.create_task(self._sell(producer))

    async def _sell(self, producer: Producer) -> None:
        for number in self._numbers:
            if number >= self.orders * 9 // 10:
                await self.may_finish.wait()
            await self._send(producer, number)

    async def sell_through(self, broker: str, acknowledged: Callable[[], None]) -> None:
        """Send one order by this broker group, call `acknowledged`, and return when it is consumed."""
        number = next(self._numbers)
        consumed = self._awaited[number] = asyncio.Event()
        async with Producer(self._namesrv, group="shop") as producer:
            await self._send(producer, number, MessageQueue(TOPIC, broker, 0))
            acknowledged()
            await consumed.wait()

    async def _send(self, producer: Producer, number: int, queue: MessageQueue | None = None) -> None:
        """Send an order again and again until it is acknowledged, as a careful application does."""
        self.ledger.sent += 1
        options: SendOptions = {"keys": str(number), "tags": shop_of(number)}
        if queue is not None:
            options["queue"] = queue
        while True:
            try:
                await producer.send(TOPIC, order_body(number), **options)
            except AerobeeError as error:
                # The queue is missing from the route while its broker is away.
                if not error.retriable and not isinstance(error, SelectorError):
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                self._acknowledge(number)
                return

    def _acknowledge(self, number: int) -> None:
        self.ledger.acknowledged.add(number)
        count, reached = self._milestone
        if len(self.ledger.acknowledged) >= count:
            reached.set()

    async def acknowledged(self, count: int) -> None:
        """Wait until `count` orders are acknowledged."""
        self._milestone = (count, asyncio.Event())
        await self._milestone[1].wait()

    async def stored(self) -> int:
        """Return the number of messages in the topic: more than orders where a send was tried twice."""
        async with LitePullConsumer(self._namesrv, group="TOOLS_CONSUMER", auto_commit=False) as reader:
            return sum([await reader.end_offset(queue) for queue in await reader.queues(TOPIC)])
