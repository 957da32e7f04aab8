"""What the tools report: problems with the file and byte where each begins, remarks, and how far they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aerobee.errors import StoreError

# Problems kept one by one; beyond it they are only counted.
LISTED_MAX: Final = 1000

# A function that is given (bytes looked at, bytes in all) now and then.
Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Show nothing: for callers without a bar."""


class CannotLookError(StoreError):
    """Nothing can be said about the store: there is no such directory, it is unreadable, or it is of a kind not read
    here.
    """

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One piece of damage. `offset` is the first bad byte of the file `path` (below the store's root)."""

    part: str  # log, queue, index, checkpoint, state
    path: str
    offset: int
    what: str
    # Whether `repair` mends it: only what is derived from the log can be built again.
    repairable: bool = False
    # How many records, units or entries it covers.
    count: int = 1
    # For damage of the log: the stretch without a sound record.
    physical_offset: int | None = None
    physical_end: int | None = None


@dataclass(slots=True)
class Findings:
    """Problems and remarks as they are found."""

    problems: list[Problem] = field(default_factory=list)
    # How many there are, listed or not.
    problem_count: int = 0
    # Remarks that are no damage.
    notes: list[str] = field(default_factory=list)
    # What could not be looked at, and why: no damage, and no proof that there is none.
    unseen: list[str] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Count it, and keep it unless there are far too many."""
        self.problem_count += 1
        if len(self.problems) < LISTED_MAX:
            self.problems.append(problem)

    @property
    def exit_code(self) -> int:
        """Return 0 for a sound store, 1 for damage, 2 where something could not be looked at."""
        if self.problem_count:
            return 1
        return 2 if self.unseen else 0
