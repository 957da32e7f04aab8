"""A new group starts with messages that were stored at a given time or later."""

import asyncio
from datetime import UTC, datetime

import aerobee
from aerobee import Message


async def main() -> None:
    async with aerobee.Producer() as producer:
        await producer.send("diary", b"before")
        await asyncio.sleep(0.1)
        noon = datetime.now(UTC)
        await asyncio.sleep(0.1)
        await producer.send("diary", b"after")

    consumer = aerobee.PushConsumer(group="historians", consume_from="timestamp", consume_timestamp=noon)

    @consumer.listener("diary")
    async def handle(message: Message) -> None:
        print("first:", message.body.decode())
        consumer.stop()

    await consumer.run()


asyncio.run(main())
