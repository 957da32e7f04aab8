"""Every consumer gets every message. How far it came is kept in a file beside it, not at the broker."""

import asyncio
import tempfile

import aerobee

place = tempfile.mkdtemp()
consumer = aerobee.PushConsumer(group="caches", broadcast=True, consume_from="first", offset_dir=place)


@consumer.listener("orders")
async def handle(message: aerobee.Message) -> None:
    print(f"invalidate {message.keys or message.body.decode()}", flush=True)


asyncio.run(consumer.run())
