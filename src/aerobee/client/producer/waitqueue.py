"""Queues of sends that cannot be written at once, which keep the order they were begun in.

There is one queue for each thing that sends wait for (the route of a topic, the connection to a broker), and one task
serves it. When the thing is there, all sends go on in the order they came, in one step of the loop. A send that comes
before that step joins the queue, and one that comes later follows them. Each send keeps its own deadline, which does
not disturb the others.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from aerobee.client.core import ClientStateError
from aerobee.errors import AerobeeError

# A thousand sends that came within a few milliseconds have as many deadlines: they are looked at together.
_GRAIN_S: Final = 0.01


class QueuedSend(Protocol):
    """A send that waits."""

    # Until when it waits, in loop time.
    until_s: float


W = TypeVar("W", bound=QueuedSend)
T = TypeVar("T")
# By the thing that is waited for. A queue in this table takes the sends that come.
WaitQueues = dict[str, "WaitQueue[W, Any]"]


class WaitQueue(Generic[W, T]):
    """The sends that wait for one thing. Its maker runs `serve` in a task, and calls `ended` when the task ends."""

    def __init__(
        self,
        wait_queues: WaitQueues[W],
        key: str,
        *,
        wait: Callable[[], Awaitable[T]],
        go_on: Callable[[W, T], None],
        fail: Callable[[W, AerobeeError], None],
        late: Callable[[], AerobeeError],
    ) -> None:
        self._wait_queues = wait_queues
        self._key = key
        self._wait = wait
        self._go_on = go_on
        self._fail = fail
        self._late = late
        # Why the thing is not there yet, where that is known. Sends whose time is over fail with it.
        self.reason: AerobeeError | None = None
        # The task that runs `serve`, where its maker has set it.
        self.task: asyncio.Task[None] | None = None
        self._waiting: deque[W] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        wait_queues[key] = self

    def join(self, waiter: W) -> None:
        """Add a send at the end."""
        self._waiting.append(waiter)
        if self._timer is None or waiter.until_s < self._timer.when():
            self._look_at(waiter.until_s)

    async def serve(self) -> None:
        """Wait for the thing. Then every send goes on, or fails with the reason."""
        try:
            thing = await self._wait()
        except AerobeeError as error:
            self._leave()
            while self._waiting:
                self._fail(self._waiting.popleft(), _own(error))
        else:
            # The queue leaves the table first: a send that fails now and tries again may have to wait again.
            self._leave()
            while self._waiting:
                self._go_on(self._waiting.popleft(), thing)

    def ended(self, _: asyncio.Task[None]) -> None:
        """Fail the sends that are left when the task ends. It is cancelled when the client closes."""
        self._leave()
        while self._waiting:
            error = ClientStateError("the producer was closed before the message was sent")
            self._fail(self._waiting.popleft(), error)

    def _leave(self) -> None:
        if self._wait_queues.get(self._key) is self:
            del self._wait_queues[self._key]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._expire)

    def _expire(self) -> None:
        """Fail the sends whose time is over. The others go on waiting."""
        self._timer = None
        now_s = self._loop.time()
        late = [waiter for waiter in self._waiting if waiter.until_s <= now_s]
        self._waiting = deque(waiter for waiter in self._waiting if waiter.until_s > now_s)
        if self._waiting:
            self._look_at(max(min(waiter.until_s for waiter in self._waiting), now_s + _GRAIN_S))
        for waiter in late:
            self._fail(waiter, self._late() if self.reason is None else _own(self.reason))
        if not self._waiting and self.reason is not None and self.task is not None:
            # Nobody waits any more for what may never come.
            self._leave()
            self.task.cancel()


def _own(error: AerobeeError) -> AerobeeError:
    """Return a copy of an error: the notes and the hint of each send are about its own message."""
    own = copy.copy(error)
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own.with_traceback(error.__traceback__)
