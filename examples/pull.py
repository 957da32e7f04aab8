"""Ask for messages when you want them: in a loop, in batches, or anywhere in a queue."""

import asyncio

import aerobee


async def main() -> None:
    consumer = aerobee.LitePullConsumer(group="reports", consume_from="first")
    consumer.subscribe("orders")
    async with consumer:
        async for message in consumer:  # each is committed when the next is asked for
            print("one:", message.body.decode())
            break
        messages = await consumer.poll(max=100, timeout=5)
        print("batch of", len(messages))
        await consumer.commit()
        queue = consumer.assignment()[0]
        result = await consumer.pull(queue, offset=0, max=10)
        print(f"{len(result.messages)} from the start of a queue that holds {result.max_offset}")
        await consumer.seek_to_begin(queue)
        print("again:", len(await consumer.poll(timeout=5)) > 0)


asyncio.run(main())
