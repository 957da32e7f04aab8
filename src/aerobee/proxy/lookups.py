"""Questions that any of several servers can answer, and which servers answer nothing: nobody waits long for those.

A server that is late may be slow, or hang. It is asked something that costs it nothing. Where it does not answer that
either, it hangs: whoever waits for it hears so at once, and so does everybody who asks it from then on, until it
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, Final, TypeVar

from aerobee.errors import AerobeeError, TransportError
from aerobee.telemetry.stdlog import get_log

# A server that has not answered by then is late, and the next one is asked, too.
_NEXT_S: Final = 0.3
# For so long a server that was late is asked after the others.
_LATE_S: Final = 10.0
_LATE_MAX: Final = 1_000
# What whoever waits for a server hears that hangs.
SILENT: Final = "the server does not answer; try again later, or another one"
# So long a server that is late has for an answer that costs it nothing, and so often it is asked; after so long it is
# asked again.
_PROBE_S: Final = 0.35
_PROBES: Final = 2
_AGAIN_S: Final = 1.0
# A server that hangs for longer is only late afterwards: whoever asks it next finds out.
_HUNG_MAX_S: Final = 120.0

T = TypeVar("T")
_log = get_log("grpc")


class Lookups:
    """The questions under way, and the servers that were late."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        # Until when an address is late.
        self.late_until: dict[str, float] = {}
        # Servers that hang, and those that are asked whether they do.
        self.hung: set[str] = set()
        self._probes: dict[str, asyncio.Task[None]] = {}
        # Asks a server for anything that costs it nothing; raises where it does not answer. None: nobody is asked.
        self.probe: Callable[[str], Awaitable[object]] | None = None
        # Called with the address of a server that hangs.
        self.on_hung: list[Callable[[str], None]] = []

    def late(self, address: str) -> None:
        """Take note that a server does not answer, or cannot be reached."""
        if len(self.late_until) >= _LATE_MAX:
            self.late_until.clear()
        self.late_until[address] = self._now_s() + _LATE_S

    def suspect(self, address: str) -> None:
        """Take note that a server does not answer, and find out whether it answers anything."""
        self.late(address)
        self.examine(address)

    def examine(self, address: str) -> None:
        """Find out whether a server answers anything."""
        if self.probe is not None and address not in self._probes:
            task = asyncio.get_running_loop().create_task(self._watch(address, self.probe))
            self._probes[address] = task
            task.add_done_callback(lambda _: self._probes.pop(address, None))

    def probes(self) -> list[asyncio.Task[None]]:
        """Return the work of finding out which servers hang."""
        return list(self._probes.values())

    async def _watch(self, address: str, probe: Callable[[str], Awaitable[object]]) -> None:
        """Ask a server until it answers."""
        until_s = self._now_s() + _HUNG_MAX_S
        try:
            while self._now_s() < until_s and not await self._answers(address, probe):
                self.late(address)
                is_new = address not in self.hung
                self.hung.add(address)
                if is_new:
                    _log.warning("a server does not answer; who asks it is refused until it does", address=address)
                    for told in self.on_hung:
                        told(address)
                await asyncio.sleep(_AGAIN_S)
        finally:
            if address in self.hung:
                self.hung.discard(address)
                self.late_until.pop(address, None)

    @staticmethod
    async def _answers(address: str, probe: Callable[[str], Awaitable[object]]) -> bool:
        """Tell whether a server answers. One that cannot be reached does not hang: who asks it hears that at once.

        It is asked twice. Where this process itself stood still meanwhile, the first answer seems to be late.
        """
        for _ in range(_PROBES):
            try:
                async with asyncio.timeout(_PROBE_S):
                    await probe(address)
            except TimeoutError:
                continue
            except AerobeeError:
                return True
            return True
        return False

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
                    self.suspect(newest)
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
        tasks = [*self._under_way.values(), *self.probes()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
