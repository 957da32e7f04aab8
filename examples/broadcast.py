"""Every consumer receives every message. Each consumer keeps its offsets in a local file, not at the broker."""

import asyncio
import tempfile

import aerobee

place = tempfile.mkdtemp()
consumer = aerobee.PushConsumer(group="caches", broadcast=True, consume_from="first", offset_dir=place)


@consumer.listener("orders")
async def handle(message: aerobee.Message) -> None:
    print(f"invalidate {message.keys or message.body.decode()}", flush=True)


asyncio.run(consumer.run())
