"""The CPU time that a server's loop spends in one callback: nothing that a client sends may keep the loop for long.

    with LocalCluster() as cluster, Watchdog(cluster.loop) as dog:
        ...  # send the worst
        dog.check()

The CPU time of the loop's own thread counts, because on a busy machine a callback that does little can last long. Only
asyncio's own loops can be watched (uvloop's callbacks do not pass through Python).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, TracebackType
from typing import Any, Final

from aerobee.hot.wire.frame import scan

IS_COMPILED: Final = not isinstance(scan, FunctionType)
# The most CPU time of one callback.
LIMIT_S: Final = 0.05 if IS_COMPILED else 0.3
# The most CPU time that the loop may spend before it serves others.
WAIT_S: Final = 0.1 if IS_COMPILED else 0.6
_KEPT_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Slow:
    """A callback that took too long."""

    cpu_s: float
    callback: str

    def __str__(self) -> str:
        return f"{self.cpu_s * 1000:.0f} ms of CPU: {self.callback}"


class Watchdog:
    """A measurement of every callback of one loop for the length of a `with`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self.longest = Slow(0.0, "nothing")
        self.slow: list[Slow] = []
        self._loop = loop
        self._run: Callable[[asyncio.Handle], None] | None = None

    def __enter__(self) -> Watchdog:
        handle: Any = asyncio.Handle
        run = self._run = handle._run
        loop = self._loop

        def measured(one: Any) -> None:
            if one._loop is not loop:
                run(one)
                return
            callback = one._callback
            began_s = time.thread_time()
            run(one)
            self._note(time.thread_time() - began_s, callback)

        handle._run = measured
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle: Any = asyncio.Handle
        handle._run = self._run

    def _note(self, cpu_s: float, callback: object) -> None:
        if cpu_s > self.longest.cpu_s:
            self.longest = Slow(cpu_s, _name_of(callback))
        if cpu_s > self.limit_s and len(self.slow) < _KEPT_MAX:
            self.slow.append(Slow(cpu_s, _name_of(callback)))

    def check(self, what: str = "") -> None:
        """Raise AssertionError where a callback took longer than the limit; then start to measure again.

        Call it from another thread than the loop's: an answer arrives before the callback that wrote it has ended.
        """
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(60)
        slow, self.slow = self.slow, []
        self.longest = Slow(0.0, "nothing")
        if slow:
            told = "; ".join(map(str, slow))
            raise AssertionError(f"{what or 'the loop'} was kept for more than {self.limit_s * 1000:.0f} ms: {told}")


class LoopTime:
    """The CPU time that a loop's thread has spent, as seen from another thread."""

    def __init__(self, thread_id: int) -> None:
        self._clock = time.pthread_getcpuclockid(thread_id)

    def spent_s(self) -> float:
        return time.clock_gettime(self._clock)

    @contextlib.contextmanager
    def within(self, limit_s: float = WAIT_S, what: str = "an answer") -> Iterator[None]:
        """Raise AssertionError where the loop spends more than the limit before the block ends."""
        began_s = self.spent_s()
        yield
        spent_s = self.spent_s() - began_s
        if spent_s > limit_s:
            raise AssertionError(f"{what} waited for {spent_s * 1000:.0f} ms of the loop's time")


def _name_of(callback: object) -> str:
    """Return the name of what a callback runs; for a task, of its coroutine."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_name()}"
    return getattr(callback, "__qualname__", None) or repr(callback)
