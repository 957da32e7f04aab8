"""Waiting lines: sends that cannot be written at once keep the order they were begun in.

One line for each thing waited for (a topic's route, a broker's connection), served by one task. When the thing is
there, all go on in the order they came, in one step of the loop: whoever comes before that step joins the line, and
whoever comes after it follows them. Each keeps its own deadline, which disturbs nothing that the others wait for.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from aerobee.client.core import ClientStateError
from aerobee.errors import AerobeeError

# Of a thousand that came within a few milliseconds, each has another deadline: they are looked at together.
_GRAIN_S: Final = 0.01


class QueuedSend(Protocol):
    """Who stands in a line."""

    # How long it waits; loop time.
    until_s: float


W = TypeVar("W", bound=QueuedSend)
T = TypeVar("T")
# By what is waited for. A line that is in here takes those who come.
WaitQueues = dict[str, "WaitQueue[W, Any]"]


class WaitQueue(Generic[W, T]):
    """Those who wait for one thing. Its maker runs `serve` in a task, and calls `ended` when that is done."""

    def __init__(
        self,
        lines: WaitQueues[W],
        key: str,
        *,
        wait: Callable[[], Awaitable[T]],
        go_on: Callable[[W, T], None],
        fail: Callable[[W, AerobeeError], None],
        late: Callable[[], AerobeeError],
    ) -> None:
        self._lines = lines
        self._key = key
        self._wait = wait
        self._go_on = go_on
        self._fail = fail
        self._late = late
        self._waiting: deque[W] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        lines[key] = self

    def join(self, waiter: W) -> None:
        """At the end."""
        self._waiting.append(waiter)
        if self._timer is None or waiter.until_s < self._timer.when():
            self._look_at(waiter.until_s)

    async def serve(self) -> None:
        """Wait for the thing; then everyone goes on, or learns why not."""
        try:
            thing = await self._wait()
        except AerobeeError as error:
            self._leave()
            while self._waiting:
                self._fail(self._waiting.popleft(), _own(error))
        else:
            # Out of the way first: one that fails now and tries again may have to wait again.
            self._leave()
            while self._waiting:
                self._go_on(self._waiting.popleft(), thing)

    def ended(self, _: asyncio.Task[None]) -> None:
        """The task ended; where it was cancelled, perhaps before it began, its client is closing."""
        self._leave()
        while self._waiting:
            error = ClientStateError("the producer was closed before the message was sent")
            self._fail(self._waiting.popleft(), error)

    def _leave(self) -> None:
        if self._lines.get(self._key) is self:
            del self._lines[self._key]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._expire)

    def _expire(self) -> None:
        """Tell those whose time is over. The others, and those who come, go on waiting for what was begun."""
        self._timer = None
        now_s = self._loop.time()
        late = [waiter for waiter in self._waiting if waiter.until_s <= now_s]
        self._waiting = deque(waiter for waiter in self._waiting if waiter.until_s > now_s)
        if self._waiting:
            self._look_at(max(min(waiter.until_s for waiter in self._waiting), now_s + _GRAIN_S))
        for waiter in late:
            self._fail(waiter, self._late())


def _own(error: AerobeeError) -> AerobeeError:
    """A copy: each one's notes and hint are about its own message."""
    own = copy.copy(error)
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own.with_traceback(error.__traceback__)
