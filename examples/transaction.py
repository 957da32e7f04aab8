"""Send a message that becomes readable only if the local work was done. The broker asks `on_check` after a crash."""

import asyncio

import aerobee
from aerobee import Message

paid: set[str] = set()


def on_check(half: Message) -> bool | None:
    """Return True to commit, False to roll back, or None to be asked again later."""
    return half.keys in paid


async def main() -> None:
    async with aerobee.Producer(group="shop", on_check=on_check) as producer:
        async with producer.transaction("orders", b"order 42 is paid", keys="42"):
            paid.add("42")  # the database's transaction would stand here
        print("committed")

        async with producer.transaction("orders", b"order 43 is paid", keys="43") as tx:
            tx.rollback()
        print("rolled back")


asyncio.run(main())
