"""Take messages for a time, and say when each is done."""

import asyncio

import aerobee


async def main() -> None:
    async with aerobee.Producer() as producer:
        await producer.send("freight", b"to the lake")
        await producer.send("freight", b"to the hill")
    subscribe = {"freight": "*"}
    async with aerobee.SimpleConsumer(group="carriers", subscribe=subscribe, consume_from="first") as consumer:
        done = 0
        while done < 2:
            for message in await consumer.receive(max_messages=16, invisible=30.0, wait=5.0):
                if message.body == b"to the hill" and message.delivery_attempt == 1:
                    await consumer.change_invisible(message, 0)  # not mine: give it back
                    continue
                print("delivered", message.body.decode(), "at attempt", message.delivery_attempt)
                await consumer.ack(message)
                done += 1


asyncio.run(main())
