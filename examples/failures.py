"""Errors, and what they tell you."""

import asyncio

import aerobee


async def main() -> None:
    # A send is tried twice more, on other brokers. Brokers that were slow or failed are avoided for a while.
    async with aerobee.Producer(timeout=5, attempt_timeout=2, retries=2, avoid_slow_brokers=True) as producer:
        try:
            await producer.send("orders", b"important")
        except aerobee.NotDurableError as error:
            print("stored, but not as safely as asked:", error.receipt.status.name)
        except aerobee.RequestTimeoutError as error:
            print("may or may not be stored:", error)
        except aerobee.AerobeeError as error:
            print("not stored:", error, "- try again later" if error.retriable else "- do not try again")
        else:
            print("stored")


asyncio.run(main())
