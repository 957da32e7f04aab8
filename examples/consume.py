"""Handle messages as they arrive. Ctrl-C or SIGTERM ends the handlers, saves the offsets and leaves the group."""

import asyncio

import aerobee

consumer = aerobee.PushConsumer(group="billing", consume_from="first")


@consumer.listener("orders", tags="PAID || REFUND")
async def handle(message: aerobee.Message) -> None:
    print(f"{message.tags} {message.body.decode()}", flush=True)  # to return means done; to raise means try again later


asyncio.run(consumer.run())
