"""A child process that is started again when it ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aerobee.runtime.children import Child
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import get_log

# The pause before a restart doubles from the first to the last while a child lives less than the third.
FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 30.0
_SOUND_S: Final = 60.0

_log = get_log("up")

# Starts the process. It is told the address that the process had before, or nothing.
Start = Callable[[str], Awaitable[Child]]


def next_pause(last_s: float, lived_s: float) -> float:
    """Return the pause before the next restart of a child that lived so long. `last_s` is 0 before the first one."""
    if last_s == 0 or lived_s >= _SOUND_S:
        return FIRST_PAUSE_S
    return min(2 * last_s, LAST_PAUSE_S)


class KeptChild:
    """One child. Its first line of output is its address."""

    def __init__(self, name: str, start: Start, clock: Clock, what: str = "broker") -> None:
        self.name = name
        self._what = what
        self.address = ""
        self._start = start
        self._clock = clock
        self._child: Child | None = None
        self._started_s = 0.0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    async def begin(self) -> str:
        """Start the process. Return the address that it says, or nothing if it ended before."""
        self._started_s = self._clock.monotonic()
        self._child = await self._start(self.address)
        line = await self._child.line()
        said = line.decode(errors="replace").strip()
        self.address = said or self.address
        return said

    async def keep(self) -> None:
        """Start the process again whenever it has ended, after a pause. This never returns."""
        pause_s = 0.0
        while True:
            assert self._child is not None
            code = await self._child.ended()
            pause_s = next_pause(pause_s, self._clock.monotonic() - self._started_s)
            _log.warning(f"a {self._what} ended and is started again", broker=self.name, exit_code=code, in_s=pause_s)
            await asyncio.sleep(pause_s)
            if await self.begin():
                _log.warning(f"a {self._what} runs again", broker=self.name, address=self.address, pid=self.pid)

    async def stop(self, patience_s: float) -> None:
        """Let the process end, and kill it if it does not."""
        if self._child is not None:
            await self._child.stop(patience_s)
