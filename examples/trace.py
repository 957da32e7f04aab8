"""See who sent a message, who consumed it, and when. Producers and consumers write this to RocketMQ's trace topic."""

import asyncio

import aerobee
from aerobee import Message


async def main() -> None:
    consumer = aerobee.PushConsumer(group="watched", consume_from="first", trace=True)

    @consumer.listener("traced")
    async def handle(message: Message) -> None:
        consumer.stop()

    async with aerobee.Producer(group="watchful", trace=True) as producer:
        await producer.send("traced", b"hi", keys="42")
    await consumer.run()

    reader = aerobee.LitePullConsumer(group="detective", consume_from="first")
    reader.subscribe("RMQ_SYS_TRACE_TOPIC")
    kinds: set[str] = set()
    async with reader:
        while not {"Pub", "SubBefore", "SubAfter"} <= kinds:
            for message in await reader.poll():
                kinds |= {entry.split("\x01")[0] for entry in message.body.decode().split("\x02") if entry}
    print(sorted(kinds))


asyncio.run(main())
