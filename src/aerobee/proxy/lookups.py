"""Questions that any of several servers can answer: each is asked once at a time, and no server that hangs is waited
for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, Final, TypeVar

from aerobee.errors import AerobeeError, TransportError

# A server that has not answered by then is late, and the next one is asked, too.
_NEXT_S: Final = 0.3
# For so long a server that was late is asked after the others.
_LATE_S: Final = 10.0
_LATE_MAX: Final = 1_000

T = TypeVar("T")


class Lookups:
    """The questions under way, and the servers that were late."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        # Until when an address is late.
        self.late_until: dict[str, float] = {}

    def late(self, address: str) -> None:
        """Take note that a server does not answer, or cannot be reached."""
        if len(self.late_until) >= _LATE_MAX:
            self.late_until.clear()
        self.late_until[address] = self._now_s() + _LATE_S

    def failed(self, address: str, error: AerobeeError) -> None:
        """Take note of why a server gave no answer."""
        if isinstance(error, TransportError):
            self.late(address)

    def late_s(self, address: str) -> float:
        """Return until when a server is late, 0.0 for one that is not."""
        until_s = self.late_until.get(address, 0.0)
        if until_s and self._now_s() >= until_s:
            del self.late_until[address]
            return 0.0
        return until_s

    async def first(self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T | None]]) -> T | None:
        """Return the first answer that is not None, None where nobody has one. Raise the last failure where one that
        failed may have had it. The next server is asked when one fails, has nothing, or is late."""
        left = sorted(dict.fromkeys(addresses), key=self.late_s)[::-1]
        asked: dict[asyncio.Future[T | None], str] = {}
        failure: AerobeeError | None = None
        newest = ""
        try:
            while left or asked:
                if left:
                    newest = left.pop()
                    asked[asyncio.ensure_future(ask(newest))] = newest
                done, _ = await asyncio.wait(
                    asked, timeout=_NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    self.late(newest)
                for one in done:
                    address = asked.pop(one)
                    try:
                        found = one.result()
                    except AerobeeError as error:
                        self.failed(address, error)
                        failure = error
                        continue
                    if found is not None:
                        return found
        finally:
            for one in asked:
                one.cancel()
        if failure is not None:
            raise failure
        return None

    async def together(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T | None]]) -> T | None:
        """Return the result of some work, of which one is under way for a key at a time. None found by work that had
        begun before is looked for again: what it looked for may be there since."""
        task: asyncio.Task[T | None] | None = self._under_way.get(key)
        if task is not None:
            found = await asyncio.shield(task)
            if found is not None:
                return found
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            # Everybody who asked may have gone.
            done.exception()

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
