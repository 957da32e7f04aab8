"""Handle messages as they come. Ctrl-C or SIGTERM: handlers end, offsets are saved, the group is left."""

import asyncio

import aerobee

consumer = aerobee.PushConsumer(group="billing", consume_from="first")


@consumer.listener("orders", tags="PAID || REFUND")
async def handle(message: aerobee.Message) -> None:
    print(f"{message.tags} {message.body.decode()}", flush=True)  # return = done, raise = again later


asyncio.run(consumer.run())
