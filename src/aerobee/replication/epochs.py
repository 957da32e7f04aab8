"""The list of epochs of a log: who wrote which part of it, and where two logs part.

An epoch has one master, so its number is its identity: two logs that both hold a record of epoch 7 at an offset hold
the same record there. An equal start says nothing by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from aerobee.replication.values import Epoch

# Older entries are dropped: a follower that is so far behind that it needs one copies the log anew.
ENTRIES_MAX: Final = 1000


def _start_of(epoch: Epoch) -> int:
    return epoch.start


class Epochs:
    """The epochs of one log, oldest first. Numbers and starts increase from entry to entry."""

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        """Raise ValueError unless numbers and starts increase."""
        self._entries = tuple(entries)
        for one, following in zip(self._entries, self._entries[1:], strict=False):
            if one.number >= following.number or one.start >= following.start:
                raise ValueError(f"epoch {following.number} at {following.start} follows {one.number} at {one.start}")

    @property
    def entries(self) -> tuple[Epoch, ...]:
        return self._entries

    @property
    def last(self) -> int:
        """Return the newest epoch, 0 where there is none."""
        return self._entries[-1].number if self._entries else 0

    def append(self, number: int, start: int) -> None:
        """Add an epoch that begins at the log's end. Entries that begin at or behind it have no record: they go."""
        if number <= self.last:
            raise ValueError(f"epoch {number} cannot follow epoch {self.last}")
        kept = [one for one in self._entries if one.start < start]
        self._entries = tuple([*kept, Epoch(number=number, start=start)][-ENTRIES_MAX:])

    def cut(self, end: int) -> None:
        """Forget the epochs that begin at or behind the log's new end."""
        self._entries = tuple(one for one in self._entries if one.start < end)

    def drop_below(self, log_start: int) -> None:
        """Forget the epochs that lie wholly before the log's first record."""
        first = max(0, bisect_right(self._entries, log_start, key=_start_of) - 1)
        self._entries = self._entries[first:]

    def at(self, offset: int, log_end: int) -> tuple[int, int]:
        """Return the epoch of the record at an offset, and where that epoch ends in this log."""
        place = bisect_right(self._entries, offset, key=_start_of) - 1
        end = self._entries[place + 1].start if place + 1 < len(self._entries) else log_end
        return (self._entries[place].number if place >= 0 else 0), end

    def end_of(self, number: int, log_end: int) -> int | None:
        """Return where an epoch ends in this log, None where the log has no such epoch."""
        for place, one in enumerate(self._entries):
            if one.number == number:
                return self._entries[place + 1].start if place + 1 < len(self._entries) else log_end
        return None

    def parting(self, log_end: int, other: Epochs, other_end: int) -> int | None:
        """Return the offset up to which this log and another agree, None where they have no epoch in common."""
        for one in reversed(self._entries):
            there = other.end_of(one.number, other_end)
            if there is not None:
                here = self.end_of(one.number, log_end)
                assert here is not None
                return min(here, there)
        return None
