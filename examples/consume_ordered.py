"""Handle the messages of a queue one after the other. The next one starts when the previous one is done."""

import asyncio

import aerobee

consumer = aerobee.PushConsumer(group="warehouse", consume_from="first", suspend=0.1)


@consumer.listener("orders", ordered=True)
async def handle(message: aerobee.Message) -> None:
    if message.reconsume_times == 0 and message.queue_offset == 0:
        raise RuntimeError("not ready: this queue is halted for a moment, the others go on")
    print(f"queue {message.broker}/{message.queue_id}: {message.queue_offset}", flush=True)


asyncio.run(consumer.run())
