"""Send a request over a topic and wait for a consumer that replies with `await msg.reply(...)`."""

import asyncio

import aerobee


async def main() -> None:
    async with aerobee.Producer() as producer:
        try:
            reply = await producer.request("prices", b"what is an apple?", timeout=3)
            print("answer:", reply.body.decode())
        except aerobee.NoReplyError as error:
            print("nobody answered:", error)


asyncio.run(main())
