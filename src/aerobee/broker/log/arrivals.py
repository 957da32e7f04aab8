"""Arrivals: which held pulls a message wakes, found out while it is dispatched, and run after its append has returned.

A pull that is run reads the log and writes to a connection, and both can fail. Inside the append that would be taken
for a failure of the append, and a producer would hear that its message is not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aerobee.broker.log.longpoll import LongPolls
from aerobee.hot.log.record import Draft
from aerobee.runtime.seams import File
from aerobee.store.dispatch import Sink

WOKEN_MAX: Final = 500


class Arrivals(Sink):
    """A sink that keeps nothing but the pulls to wake.

    Whoever appends and calls `drain` afterwards sets `is_drained` meanwhile; what a dispatch finds at any other time (a
    sync has ended) is drained in the loop's next turn.
    """

    name = "arrivals"

    def __init__(self, polls: LongPolls[Any]) -> None:
        self._polls = polls
        self._end = -1
        self._scheduled = False
        # Taken out of the held ones, not yet run.
        self.woken: list[Any] = []
        self.is_drained = False
        # Runs pulls again; set by whoever serves them.
        self.wake: Callable[[list[Any]], None] | None = None

    def recover(self, log_start: int, log_end: int) -> None:
        self._end = log_end

    def position(self) -> int:
        """Nothing is derived here, so nothing is ever missing."""
        return self._end

    def dispatch(self, drafts: list[Draft]) -> None:
        polls = self._polls
        if not polls.count or self.wake is None:
            return
        for draft in drafts:
            if polls.has_waiting(draft.topic):
                self.woken += polls.arrived(draft.topic, draft.queue_id, draft.queue_offset + 1, draft.tags_code)
        if self.woken and not self.is_drained and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.drain)

    def drain(self) -> None:
        """Run what was woken; where thousands waited for one message, a part in each turn of the loop."""
        self._scheduled = False
        woken = self.woken
        if not woken or self.wake is None:
            return
        if len(woken) > WOKEN_MAX:
            self.woken = woken[WOKEN_MAX:]
            woken = woken[:WOKEN_MAX]
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.drain)
        else:
            self.woken = []
        self.wake(woken)

    def flush(self) -> list[File]:
        return []

    def flushed(self) -> None:
        """Nothing to note."""

    def truncate(self, physical_offset: int) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to close."""
