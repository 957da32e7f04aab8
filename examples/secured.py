"""Credentials, TLS, a namespace, compression, trace and a hook."""

import asyncio
import os
import ssl

import aerobee
from aerobee import SendContext


class Audit:
    """A hook around every send. If before_send raises, the message is not sent."""

    def before_send(self, context: SendContext) -> None:
        if b"password" in context.message.body:
            raise ValueError("no secrets in messages, please")

    def after_send(self, context: SendContext) -> None:
        print("sent" if context.receipt else f"failed: {context.error}")


async def main() -> None:
    tls = ssl.create_default_context() if os.environ.get("USE_TLS") else None
    async with aerobee.Producer(
        access_key="shop",  # or $AEROBEE_ACCESS_KEY and $AEROBEE_SECRET_KEY
        secret_key="12345678",
        namespace="north",
        compression="zstd",
        trace=True,
        hooks=[Audit()],
        tls=tls,
    ) as producer:
        await producer.send("orders", b"x" * 10_000, keys="42")


asyncio.run(main())
