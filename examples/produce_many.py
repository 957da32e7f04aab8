"""Many messages: without waiting for each, in batches, and without any answer."""

import asyncio

import aerobee
from aerobee import Message


async def main() -> None:
    async with aerobee.Producer(max_in_flight=500) as producer:
        # Awaited sends wait for room by themselves; 16 tasks keep the connection full.
        async def worker(n: int) -> None:
            for i in range(100):
                await producer.send("orders", b"order %d of worker %d" % (i, n))

        await asyncio.gather(*(worker(n) for n in range(16)))

        # One request, one write to the log, a receipt for each.
        receipts = await producer.send_batch([Message("orders", b"part %d" % i, keys=f"k{i}") for i in range(50)])
        print(f"batch at offsets {receipts[0].queue_offset} to {receipts[-1].queue_offset}")

        # Nobody answers: fast, and it may be lost.
        await producer.send_oneway("metrics", b"cpu 12 %")


asyncio.run(main())
