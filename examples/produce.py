"""Send a message and see where it was stored. The name server comes from $NAMESRV_ADDR."""

import asyncio

import aerobee


async def main() -> None:
    async with aerobee.Producer() as producer:
        receipt = await producer.send("orders", b"hi", tags="PAID", keys="42", properties={"shop": "north"})
        print(f"{receipt.message_id} is message {receipt.queue_offset} of queue {receipt.queue_id}")


asyncio.run(main())
