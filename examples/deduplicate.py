"""Handle each order once, although delivery is at least once: the key and the effect share one database transaction."""

import asyncio
import sqlite3

import aerobee
from aerobee import Message

database = sqlite3.connect(":memory:")  # your own database, which survives a restart
database.execute("CREATE TABLE booked (order_key TEXT PRIMARY KEY, cents INTEGER)")
consumer = aerobee.PushConsumer(group="booking", consume_from="first")
repeats = []


@consumer.listener("payments-in", ordered=True)
async def book(message: Message) -> None:
    try:
        with database:  # commits at the end, rolls back after an exception
            database.execute("INSERT INTO booked VALUES (?, ?)", (message.keys, int(message.body)))
    except sqlite3.IntegrityError:
        repeats.append(message.keys)  # it is booked already: return, so that it counts as consumed
    if message.keys == "order-3":
        consumer.stop()


async def main() -> None:
    async with aerobee.Producer() as producer:
        # order-1 is sent twice, as after a time-out. One sharding key keeps the three orders in one queue.
        for key in ("order-1", "order-2", "order-1", "order-3"):
            await producer.send("payments-in", b"500", keys=key, sharding_key="demo")
    await consumer.run()
    orders, cents = database.execute("SELECT count(*), sum(cents) FROM booked").fetchone()
    database.close()
    print(f"{orders} orders, {cents} cents, repeats: {repeats}")


asyncio.run(main())
