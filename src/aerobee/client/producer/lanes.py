"""The order of the sends for one queue: a machine.

A lane counts the sends of one producer that must be stored in one queue in the order they were begun. While all is well
each goes at once, without waiting for the answers of those before it. After a try that failed and may be repeated the
lane is *held*: what comes waits, and the sends on their way get their answers or come back too. Then the first one goes
alone. When it is stored, all others follow.

A send that was overtaken must not be tried again: a later one is stored, or may be. Only a numbered send (of an
idempotent producer) may, because the broker refuses a later number while an earlier one is on its way.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class LaneSend(Protocol):
    """A send, as its lane sees it."""

    # Its place in the order of the lane. The lane sets it.
    turn: int


W = TypeVar("W", bound=LaneSend)


class Lane(Generic[W]):
    """The sends for one queue. One that joined is waiting or released until it is ended."""

    def __init__(self, *, numbered: bool) -> None:
        self.numbered = numbered
        self.is_held = False
        # Failed tries of the first send, since one was stored.
        self.failures = 0
        self.waiting: deque[W] = deque()
        self._released: dict[int, W] = {}
        # The address that those on their way were written to.
        self._address: str | None = None
        self._next_turn = 0
        # The highest turn that is stored, or may be.
        self._stored = -1

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self._released

    @property
    def is_idle(self) -> bool:
        """Whether the first of those that wait may be tried."""
        return bool(self.waiting) and not self._released

    def join(self, send: W) -> bool:
        """Add a send at the end. Return whether it may go at once; else it waits."""
        send.turn = self._next_turn
        self._next_turn += 1
        if self.is_held or self.waiting:
            self.waiting.append(send)
            return False
        self._released[send.turn] = send
        return True

    def may_use(self, send: W, address: str) -> bool:
        """Tell whether a released send may be written to an address: one after the others must not reach another broker
        before they have reached theirs."""
        if len(self._released) == 1 or self._address is None:
            self._address = address
        return self._address == address

    def before(self, send: W) -> W | None:
        """Return the released send just before this one."""
        released = self._released
        first = next(iter(released), send.turn)
        for turn in range(send.turn - 1, first - 1, -1):
            if turn in released:
                return released[turn]
        return None

    # -- how tries end

    def returned(self, send: W, *, failed: bool = True) -> None:
        """Take back a released send, which waits at its place for another try. `failed`: a try of it was made."""
        del self._released[send.turn]
        self.is_held = True
        waiting = self.waiting
        if failed and (not waiting or send.turn < waiting[0].turn):
            self.failures += 1
        at = len(waiting)
        while at and waiting[at - 1].turn > send.turn:
            at -= 1
        waiting.insert(at, send)

    def ended(self, send: W, *, stored: bool) -> None:
        """Forget a send, which was given up or, as far as is known, `stored`."""
        if self._released.pop(send.turn, None) is None:
            self.waiting.remove(send)
        if stored:
            self._stored = max(self._stored, send.turn)

    def goes_on(self) -> bool:
        """Note that the broker has stored a message. Return whether what waits may go now: not before the others that
        are on their way have their answers, and without those that were `overtaken`."""
        self.failures = 0
        self.is_held = self.is_held and bool(self._released)
        return not self.is_held

    # -- what goes next

    def overtaken(self) -> list[W]:
        """Return the sends that wait and must not be tried again."""
        if self.numbered:
            return []
        return [send for send in self.waiting if send.turn < self._stored]

    def next(self) -> W | None:
        """Release and return the next send that may go: any if nothing is held, else the first one alone."""
        if not self.waiting or (self.is_held and self._released):
            return None
        send = self.waiting.popleft()
        self._released[send.turn] = send
        return send
