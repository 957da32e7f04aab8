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
from aerobee.runtime.clock import monotonic_of
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


class Turns:
    """The work that waits, first come, first served, each for one turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Work] = deque()
        self._is_called = False

    def __len__(self) -> int:
        return len(self._waiting)

    def now_s(self) -> float:
        return monotonic_of(self._clock)

    def add(self, work: Work) -> None:
        """Let it go on in the next turn."""
        self._waiting.append(work)
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        until_s = self.now_s() + TURN_S
        # Each waits for its turn once: with time that stands still (in tests) there would be no end.
        for _ in range(len(self._waiting)):
            work = self._waiting.popleft()
            if work(until_s):
                self._waiting.append(work)
            if self.now_s() >= until_s:
                break
        if self._waiting and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._turn)
