"""Long work of a server, done in slices: one slice in each turn of the loop, so that other requests wait for one
slice only.

A handler whose work grows with the request, or with what the server holds, returns a generator that yields about
once a millisecond and returns the answer. The server runs it at once for the length of a turn. The rest waits here,
behind the work of other connections. Meanwhile the server does not read from that connection: a client has one such
piece of work at a time, and its later requests stay in order. The server does not notice either that the connection
has ended: what was sent before counts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from aerobee.protocol.command import Command
from aerobee.runtime.seams import Clock

# How long one turn may keep the loop. Other connections wait about as long, whatever a client asks for.
TURN_S: Final = 0.01
# The turn of each other connection once one has used a whole turn.
SHORT_TURN_S: Final = 0.001

Slices: TypeAlias = Generator[None, None, Command | None]
# Works until the given time, and returns whether there is more to do.
Work: TypeAlias = Callable[[float], bool]


class Sliced:
    """Work that a handler returns in place of an answer. Its result is the answer.

    `whole`: the work is done to its end even if its connection is gone, because half of it would be wrong.
    """

    __slots__ = ("slices", "whole")

    def __init__(self, slices: Slices, *, whole: bool = False) -> None:
        self.slices = slices
        self.whole = whole


# How many pieces of long work go on side by side. Each holds what it has made so far: of hundreds at once that would be
# hundreds of megabytes, in pieces so small that their memory is never given back.
SIDE_BY_SIDE_MAX: Final = 4


class Turns:
    """The work that waits. Short work is all done in one turn; of long work, a few pieces are done side by side, in
    the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Work] = deque()
        self._long: deque[Work] = deque()
        self._is_called = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._long)

    @property
    def is_crowded(self) -> bool:
        """Whether as much long work is under way as is allowed."""
        return len(self._long) >= SIDE_BY_SIDE_MAX

    def now_s(self) -> float:
        return self._clock.monotonic()

    def add(self, work: Work) -> None:
        """Continue this work in the next turn."""
        self._waiting.append(work)
        self._call()

    def add_long(self, work: Work) -> None:
        """Continue this work when it is among the first."""
        self._long.append(work)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        until_s = self.now_s() + TURN_S
        # Each piece gets one turn: while time stands still (in tests) there would be no end otherwise.
        self._do(self._waiting, len(self._waiting), until_s)
        # Long work gets some of the time, even if much short work waits.
        until_s = max(until_s, self.now_s() + SHORT_TURN_S)
        self._do(self._long, min(SIDE_BY_SIDE_MAX, len(self._long)), until_s)
        if self._waiting or self._long:
            self._call()

    def _do(self, works: deque[Work], count: int, until_s: float) -> None:
        """Do this many pieces of work from the front. Put those that are not finished behind them, before all
        others."""
        left: list[Work] = []
        while count > 0:
            count -= 1
            work = works.popleft()
            if work(until_s):
                left.append(work)
            if self.now_s() >= until_s:
                break
        # Work whose turn did not come is first in the next one.
        passed = [works.popleft() for _ in range(min(count, len(works)))]
        works.extendleft(reversed(passed + left))
