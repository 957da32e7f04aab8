"""The same without asyncio: plain functions, up to `concurrency` of them at a time, each in a thread."""

from aerobee import Message
from aerobee.sync import PushConsumer

consumer = PushConsumer(group="billing-sync", consume_from="first", concurrency=4)


@consumer.listener("orders", batch=16)
def handle(messages: list[Message]) -> None:
    print("batch:", b" ".join(message.body for message in messages).decode(), flush=True)


consumer.run()
