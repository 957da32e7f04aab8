"""How far slaves hold the log, and who waits for that. A machine. RocketMQ: GroupTransferService."""

from __future__ import annotations

from aerobee.store.flush import Safe, Waiter, Waiters


class SlaveAcks:
    """The acknowledged offset of each connection, by a number that its owner gives."""

    def __init__(self, needed: int) -> None:
        """`needed` slaves must hold a record before its sender is told. 0 waits for none."""
        self.needed = needed
        self._acked: dict[int, int] = {}
        self._waiters = Waiters()

    @property
    def held(self) -> int:
        """Return the offset up to which as many slaves as needed hold the log."""
        if len(self._acked) < self.needed:
            return 0
        return sorted(self._acked.values(), reverse=True)[self.needed - 1]

    def holds(self, end: int) -> bool:
        """Tell whether enough slaves hold the log up to `end`."""
        return self.needed == 0 or self.held >= end

    def acked(self, link: int, offset: int) -> None:
        """Note what a connection acknowledged. An offset never moves back."""
        self._acked[link] = max(offset, self._acked.get(link, 0))
        if self.needed:
            self._waiters.advance(self.held)

    def lost(self, link: int) -> None:
        """Forget a connection. Whoever was told that it holds a record was told the truth."""
        self._acked.pop(link, None)

    def when_held(self, end: int, call: Safe) -> Waiter:
        """Call back when enough slaves hold the log up to `end`."""
        return self._waiters.add(end, call)
