"""Send a batch that is larger than one request: the client splits it and returns one receipt for each message."""

import asyncio

import aerobee
from aerobee import Message


async def main() -> None:
    async with aerobee.Producer(max_message_size=64 * 1024) as producer:
        messages = [Message("measurements", b"x" * 1000, keys=f"m{i}") for i in range(500)]
        try:
            receipts = await producer.send_batch(messages)
        except aerobee.AerobeeError as error:
            # A note says how many messages were stored before the request that failed.
            print(error, *getattr(error, "__notes__", ()))
            raise
        print(f"{len(receipts)} messages are stored in {len({receipt.queue for receipt in receipts})} queues")


asyncio.run(main())
