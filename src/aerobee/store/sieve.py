"""A filter by properties while records are read: what it takes, and when a pull has enough.

A queue unit does not tell a record's properties, so a filtered pull chooses many records, looks at each, and stops as
soon as its bounds are reached. RocketMQ: DefaultMessageStore.getMessage (isMatchedByCommitLog, isTheBatchFull).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from aerobee.store.recordhead import properties_of

# A function that decides about a record by its property block.
PropertyFilter: TypeAlias = Callable[[bytes], bool]

# No pull looks through more of the log than this, whatever its filter. The next pull goes on.
LOOKED_AT_BYTES_MAX: Final = 64 * 1024 * 1024
# No pull filters for longer than this, in microseconds as the filter estimates them: about one turn of the loop.
COST_MAX: Final = 20_000
COST_UNKNOWN: Final = 20
_BYTES_PER_COST: Final = 64


class Sieve:
    """The filter of one pull."""

    __slots__ = ("_accept", "_bytes_max", "_cost", "_count_max", "_spent", "count", "filtered", "size")

    def __init__(self, accept: PropertyFilter, count_max: int, bytes_max: int) -> None:
        self._accept = accept
        # What one look costs; see `broker/membership/filters.py`.
        self._cost: int = getattr(accept, "cost", COST_UNKNOWN)
        self._spent = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.size = 0
        self.filtered = 0

    def is_full(self, next_size: int) -> bool:
        """Tell whether a record of this size waits for the next pull. The first is taken whatever its size."""
        if self._spent >= COST_MAX:
            return True
        return self.count > 0 and (self.count >= self._count_max or self.size + next_size > self._bytes_max)

    def takes(self, record: bytes | memoryview) -> bool:
        """Tell whether a whole record passes."""
        properties = properties_of(record)
        self._spent += self._cost + len(properties) // _BYTES_PER_COST
        if not self._accept(properties):
            self.filtered += 1
            return False
        self.count += 1
        self.size += len(record)
        return True
