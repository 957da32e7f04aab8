"""Long work of a server, a slice of it in each turn of the loop, so that whoever else asks waits for one slice only.

A handler whose work grows with what it was sent, or with what the server holds, is a generator that yields about once
a millisecond and returns its answer. It is run at once for as long as a turn lasts; what is left waits here, behind
the work of other connections. While it does, its own connection is not read on: one client has one such piece of work
at a time, and what it sent behind stays in order. (Nor is its end heard meanwhile: what was sent before it counts.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from aerobee.protocol.command import Command
from aerobee.runtime.seams import Clock

# How long the loop may be kept in one go. Others wait about as long, whatever a client asks for.
TURN_S: Final = 0.01
# What is left for each of the others, once somebody has used a whole turn.
SHORT_TURN_S: Final = 0.001

Slices: TypeAlias = Generator[None, None, Command | None]
# Works until the given time; whether there is more to do.
Work: TypeAlias = Callable[[float], bool]


class Sliced:
    """What a handler returns in place of an answer: the work that leads to it.

    `whole`: it is done to its end even when its connection is gone, because half of it would be wrong.
    """

    __slots__ = ("slices", "whole")

    def __init__(self, slices: Slices, *, whole: bool = False) -> None:
        self.slices = slices
        self.whole = whole


# How many pieces of long work go on side by side. Each holds what it has made so far: of hundreds at once that would be
# hundreds of megabytes, in pieces so small that their memory is never given back.
SIDE_BY_SIDE_MAX: Final = 4


class Turns:
    """The work that waits, first come, first served: what is short all in one turn, what is long a few side by side."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Work] = deque()
        self._long: deque[Work] = deque()
        self._is_called = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._long)

    @property
    def is_crowded(self) -> bool:
        """Whether as much long work is under way as may be."""
        return len(self._long) >= SIDE_BY_SIDE_MAX

    def now_s(self) -> float:
        return self._clock.monotonic()

    def add(self, work: Work) -> None:
        """Let it go on in the next turn."""
        self._waiting.append(work)
        self._call()

    def add_long(self, work: Work) -> None:
        """Let it go on when it is among the first."""
        self._long.append(work)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        until_s = self.now_s() + TURN_S
        # Each waits for its turn once: with time that stands still (in tests) there would be no end.
        self._do(self._waiting, len(self._waiting), until_s)
        # Some of the time is theirs, also where much else waits.
        until_s = max(until_s, self.now_s() + SHORT_TURN_S)
        self._do(self._long, min(SIDE_BY_SIDE_MAX, len(self._long)), until_s)
        if self._waiting or self._long:
            self._call()

    def _do(self, works: deque[Work], count: int, until_s: float) -> None:
        """Do so many of the first. What is not at its end then comes behind those, and before all others."""
        left: list[Work] = []
        while count > 0:
            count -= 1
            work = works.popleft()
            if work(until_s):
                left.append(work)
            if self.now_s() >= until_s:
                break
        # Those whose turn did not come are first in the next one.
        passed = [works.popleft() for _ in range(min(count, len(works)))]
        works.extendleft(reversed(passed + left))
