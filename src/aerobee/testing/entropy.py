"""Randomness that is the same in every run of a seed."""

from __future__ import annotations

import random  # noqa: TID251 - this is the seeded form of the Entropy seam
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class SeededEntropy:
    """An Entropy from a seed. It draws on getrandbits only, whose output no Python version has changed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        return self._random.getrandbits(size * 8).to_bytes(size, "big") if size else b""

    def below(self, limit: int) -> int:
        """Return an int in [0, limit)."""
        if limit <= 0:
            raise ValueError("limit must be positive")
        width = (limit - 1).bit_length()
        while True:
            value = self._random.getrandbits(width) if width else 0
            if value < limit:
                return value

    def uniform(self) -> float:
        """Return a float in [0, 1)."""
        return self._random.getrandbits(53) / (1 << 53)

    def chance(self, probability: float) -> bool:
        """Return True with this probability. Draw nothing if the answer is certain."""
        return probability > 0 and (probability >= 1 or self.uniform() < probability)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.uniform()

    def choose(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffle(self, items: list[T]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def fork(self) -> SeededEntropy:
        """Return an independent stream, so that drawing in one place does not change another."""
        return SeededEntropy(self._random.getrandbits(64))
