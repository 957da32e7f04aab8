"""The demo's own count of the orders that were sent, acknowledged and consumed. The cluster is checked against it."""

from __future__ import annotations

import json
from dataclasses import dataclass

# The place of a message: broker, queue, offset.
Place = tuple[str, int, int]
# Orders and cents by shop.
Shops = dict[str, tuple[int, int]]

_SHOPS = ("north", "east", "south", "west")


def shop_of(order: int) -> str:
    return _SHOPS[order % len(_SHOPS)]


def cents_of(order: int) -> int:
    return 100 + order * 37 % 9_900


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers that the table shows."""

    sent: int
    acknowledged: int
    consumed: int
    lost: int
    seen_twice: int

    @property
    def sound(self) -> bool:
        """Return whether every order was acknowledged and consumed."""
        return self.lost == 0 and self.acknowledged == self.sent


class Ledger:
    """The orders by their number, and the places from which they were read."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.consumed: set[int] = set()
        self.places: set[Place] = set()
        self.deliveries = 0

    def deliver(self, order: int, place: Place) -> None:
        """Note that a handler was called with the order."""
        self.deliveries += 1
        self.consumed.add(order)
        self.places.add(place)

    def missing(self) -> int:
        """Return the orders that were acknowledged and not consumed (yet)."""
        return len(self.acknowledged - self.consumed)

    def totals(self) -> Totals:
        consumed = len(self.consumed)
        return Totals(self.sent, len(self.acknowledged), consumed, self.missing(), self.deliveries - consumed)

    def by_shop(self) -> Shops:
        """Return what Spark must find, computed from the acknowledged numbers and not from messages."""
        found: Shops = {}
        for order in self.acknowledged:
            count, cents = found.get(shop_of(order), (0, 0))
            found[shop_of(order)] = count + 1, cents + cents_of(order)
        return found


class Report:
    """The aggregates that were read from Spark's topic, added up."""

    def __init__(self) -> None:
        self.places: set[Place] = set()
        self.shops: Shops = {}

    def deliver(self, body: bytes, place: Place) -> None:
        """Add a message. A repeated delivery counts once; a message that is stored twice would count twice."""
        if place in self.places:
            return
        self.places.add(place)
        added = json.loads(body)
        count, cents = self.shops.get(added["shop"], (0, 0))
        self.shops[added["shop"]] = count + added["orders"], cents + added["cents"]
