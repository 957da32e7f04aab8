"""The calls of handlers: a limited number runs at a time, in the order of their messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.dispatcher")

Step = Callable[[], Coroutine[Any, Any, None]]


class HandlerDispatcher:
    """The running and the waiting steps. A step is one call of a handler and what follows from its answer."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._ready: deque[Step] = deque()
        self._running = 0
        self._tasks = Tasks(failed=self._failed)
        # Whether nothing new starts, and running steps may be cancelled.
        self.closing = False
        # Set when nothing runs any more, or running steps are not waited for.
        self._over = asyncio.Event()

    def submit(self, step: Step) -> None:
        """Run a step now, or when a running one has ended. After `drain` began, nothing new runs."""
        if self.closing:
            return
        self._ready.append(step)
        self._fill()

    def _fill(self) -> None:
        while self._ready and self._running < self._concurrency and not self.closing:
            self._running += 1
            self._tasks.start(self._run(self._ready.popleft()), name="handler")

    async def _run(self, step: Step) -> None:
        try:
            await step()
        finally:
            self._running -= 1
            if not self._running and self.closing:
                self._over.set()
            self._fill()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    async def drain(self, timeout_s: float) -> int:
        """Start nothing new and let running steps end. Return how many did not end in time and were cancelled."""
        self.closing = True
        self._ready.clear()
        if self._running:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._over.wait()
            except TimeoutError:
                _log.warning("handlers did not end in time and are cancelled", handlers=self._running)
        left = self._running
        await self._tasks.close()
        return left

    def hurry(self) -> None:
        """Stop waiting for the running steps."""
        self._over.set()
