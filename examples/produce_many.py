"""Send many messages: several at a time, in batches, and one-way."""

import asyncio

import aerobee
from aerobee import Message


async def main() -> None:
    async with aerobee.Producer(max_in_flight=500) as producer:
        # A send waits while max_in_flight sends have no answer. 16 tasks keep the connection busy.
        async def worker(n: int) -> None:
            for i in range(100):
                await producer.send("orders", b"order %d of worker %d" % (i, n))

        await asyncio.gather(*(worker(n) for n in range(16)))

        # A batch is one request and one write to the log, with a receipt for each message.
        receipts = await producer.send_batch([Message("orders", b"part %d" % i, keys=f"k{i}") for i in range(50)])
        print(f"batch at offsets {receipts[0].queue_offset} to {receipts[-1].queue_offset}")

        # A one-way send has no answer. It is fast, and the message may be lost.
        await producer.send_oneway("metrics", b"cpu 12 %")


asyncio.run(main())
