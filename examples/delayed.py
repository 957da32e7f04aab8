"""Deliver a message later, and cancel it (the broker needs timerWheelEnable and recallMessageEnable)."""

import asyncio
from datetime import UTC, datetime, timedelta

import aerobee


async def main() -> None:
    async with aerobee.Producer() as producer:
        await producer.send("reminders", b"in a minute", delay=timedelta(minutes=1))
        await producer.send("reminders", b"tomorrow", deliver_at=datetime.now(UTC) + timedelta(days=1))
        await producer.send("reminders", b"RocketMQ's level 3: ten seconds", delay_level=3)

        receipt = await producer.send("reminders", b"never mind", delay=3600)
        print("cancelled", await producer.cancel(receipt))


asyncio.run(main())
