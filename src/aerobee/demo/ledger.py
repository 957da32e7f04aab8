"""The demo's books: which orders were sent, acknowledged and consumed, kept apart from the cluster that is judged."""

from __future__ import annotations

from dataclasses import dataclass

# Where a message lies: broker, queue, offset.
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Totals:
    """What the table shows."""

    sent: int
    acknowledged: int
    consumed: int
    lost: int
    seen_twice: int

    @property
    def sound(self) -> bool:
        """Every order was acknowledged, and every acknowledged one was consumed."""
        return self.lost == 0 and self.acknowledged == self.sent


class Ledger:
    """Orders by their number, and the places they were read from."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.consumed: set[int] = set()
        self.places: set[Place] = set()
        self.deliveries = 0

    def deliver(self, order: int, place: Place) -> None:
        """A handler was called with the order."""
        self.deliveries += 1
        self.consumed.add(order)
        self.places.add(place)

    def missing(self) -> int:
        """Acknowledged and not consumed (yet)."""
        return len(self.acknowledged - self.consumed)

    def totals(self) -> Totals:
        consumed = len(self.consumed)
        return Totals(self.sent, len(self.acknowledged), consumed, self.missing(), self.deliveries - consumed)
