"""Three ways to say that a message is not done: an exception, RetryLater with a delay, and DeadLetter."""

import asyncio

import aerobee

consumer = aerobee.PushConsumer(group="payments", consume_from="first", max_reconsume_times=3)


@consumer.listener("orders")
async def handle(message: aerobee.Message) -> None:
    if message.reconsume_times == 0:
        print(f"{message.message_id}: in a second again", flush=True)
        raise aerobee.RetryLater(delay_level=1)
    print(f"{message.message_id}: to %DLQ%payments", flush=True)
    raise aerobee.DeadLetter("cannot be booked")


asyncio.run(consumer.run())
