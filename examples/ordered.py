"""Keep messages that belong together in order with a sharding key, or choose the queue yourself."""

import asyncio
from collections.abc import Sequence

import aerobee
from aerobee import Message, MessageQueue, selectors


def smallest(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Return the queue to use. A selector is any function of the queues and the message."""
    return min(queues, key=lambda queue: queue.queue_id)


async def main() -> None:
    async with aerobee.Producer() as producer:
        steps = [await producer.send("orders", step, sharding_key="order-42") for step in (b"made", b"paid", b"sent")]
        print("one queue:", len({receipt.queue for receipt in steps}) == 1)
        print("chosen:", (await producer.send("orders", b"x", selector=smallest)).queue_id)
        await producer.send("orders", b"y", selector=selectors.by_hash("order-42"))  # without one: round robin


asyncio.run(main())
