"""Consume without asyncio: plain functions run in threads, up to `concurrency` at a time."""

from aerobee import Message
from aerobee.sync import PushConsumer

consumer = PushConsumer(group="billing-sync", consume_from="first", concurrency=4)


@consumer.listener("orders", batch=16)
def handle(messages: list[Message]) -> None:
    print("batch:", b" ".join(message.body for message in messages).decode(), flush=True)


consumer.run()
