"""Read the messages that no consumer could handle. The dead letters of a group are an ordinary topic."""

import asyncio

import aerobee
from aerobee import DeadLetter, Message, RetryLater

consumer = aerobee.PushConsumer(group="shipping", consume_from="first")


@consumer.listener("parcels")
async def handle(message: Message) -> None:
    if message.reconsume_times == 0:
        raise RetryLater("the truck is full", delay_level=1)  # one second; any other exception works too
    print(f"tried {message.reconsume_times + 1} times: {message.body.decode()}")
    consumer.stop()
    raise DeadLetter("no such address")


async def main() -> None:
    async with aerobee.Producer() as producer:
        await producer.send("parcels", b"a parcel")
    await consumer.run()

    dead = aerobee.LitePullConsumer(group="undertaker", consume_from="first")
    dead.subscribe("%DLQ%shipping")
    async with dead:
        async for message in dead:
            print(f"dead letter: {message.body.decode()}")
            break


asyncio.run(main())
