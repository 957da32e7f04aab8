"""Messages as an Arrow record batch, with the columns that the Spark source has (pip install pyarrow)."""

import asyncio

import aerobee


async def main() -> None:
    consumer = aerobee.LitePullConsumer(group="columns", consume_from="first")
    consumer.subscribe("orders")
    async with consumer:
        batch = await consumer.poll_arrow(max=1000, timeout=5)
        print(batch.num_rows, "rows of", ", ".join(batch.schema.names))
        await consumer.commit()


asyncio.run(main())
