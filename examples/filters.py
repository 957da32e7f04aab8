"""Receive only some messages: by tags, or by a SQL expression over properties. The broker filters."""

import asyncio

import aerobee
from aerobee import Message

by_tag = aerobee.PushConsumer(group="refunds", consume_from="first")
by_sql = aerobee.PushConsumer(group="big-orders", consume_from="first")
seen: list[str] = []
done = asyncio.Event()


@by_tag.listener("sales", tags="REFUND || CHARGEBACK")
@by_sql.listener("sales", sql92="cents > 10000 AND shop IN ('north', 'east')")
async def handle(message: Message) -> None:
    seen.append(message.body.decode())
    if len(seen) == 2:
        done.set()


async def main() -> None:
    async with aerobee.Producer() as producer:
        await producer.send("sales", b"small", tags="PAID", properties={"cents": "500", "shop": "north"})
        await producer.send("sales", b"back again", tags="REFUND", properties={"cents": "500", "shop": "north"})
        await producer.send("sales", b"big", tags="PAID", properties={"cents": "90000", "shop": "east"})
        await producer.send("sales", b"big, far away", tags="PAID", properties={"cents": "90000", "shop": "west"})
    async with by_tag, by_sql:
        await done.wait()
    print(sorted(seen))


asyncio.run(main())
