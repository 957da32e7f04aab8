"""Reply to the requests of `examples/request.py`."""

import asyncio

import aerobee

consumer = aerobee.PushConsumer(group="price-list")


@consumer.listener("prices")
async def handle(message: aerobee.Message) -> None:
    await message.reply(b"an apple is 42 cents")
    print("answered", message.body.decode(), flush=True)


asyncio.run(consumer.run())
