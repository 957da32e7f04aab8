"""Owners of tasks. Every task is started by an owner and ends when its owner is left.

asyncio.TaskGroup keeps its children in a set, whose order depends on addresses. A simulation must cancel in the same
order in every process, so this class keeps them in a dict. And a server leaves by cancelling, not by waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType

from aerobee.runtime.seams import Timer

Failed = Callable[[str, BaseException], None]


class Tasks:
    """An owner of tasks. Leaving the `async with` (or `await close()`) cancels them, latest first, and waits for
    them.

    `failed(name, error)` is called for a task that fails. Without `failed`, the first failure ends the body of the
    `async with` and is raised from it (from `close()` if there is no body), all failures together as an
    ExceptionGroup.
    """

    def __init__(self, failed: Failed | None = None) -> None:
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failures: list[BaseException] = []
        self._body: asyncio.Task[object] | None = None
        self._is_body_cancelled = False
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def is_closing(self) -> bool:
        """Tell whether nothing can be started any more."""
        return self._is_closing

    def start(self, work: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Start a task. The caller may cancel it at any time, which is no failure."""
        if self._is_closing:
            work.close()
            raise RuntimeError(f"cannot start {name}: its owner is closing")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    async def close(self) -> None:
        """Cancel the tasks and wait for them. A second call does nothing. If the caller is cancelled while it waits,
        the cancellation is raised after the tasks have ended."""
        self._is_closing = True
        interrupted: asyncio.CancelledError | None = None
        for task in reversed(list(self._tasks)):
            task.cancel()
        while self._tasks:
            try:
                await asyncio.wait(list(self._tasks))
            except asyncio.CancelledError as error:
                interrupted = error
            # Done callbacks run one turn after the tasks have ended.
            for task in [task for task in self._tasks if task.done()]:
                self._on_done(task)
        if interrupted is not None:
            raise interrupted
        if self._failures:
            failures, self._failures = self._failures, []
            raise BaseExceptionGroup("tasks failed", failures)

    async def __aenter__(self) -> Tasks:
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        if self._is_body_cancelled and body is not None:
            body.uncancel()
            if error is not None and not isinstance(error, asyncio.CancelledError):
                self._failures.append(error)
        await self.close()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return
        del self._tasks[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._failed is not None:
            self._failed(task.get_name(), error)
            return
        self._failures.append(error)
        if self._body is not None and not self._is_body_cancelled:
            self._is_body_cancelled = True
            self._body.cancel()


class LoopTimers:
    """Timers on an asyncio loop, on its thread and in its time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_s, callback)
