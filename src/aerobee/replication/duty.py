"""What a replica tells its broker about the role it has. The root of the process implements this."""

from __future__ import annotations

from typing import Protocol

from aerobee.replication.values import ReplicaMember


class Duty(Protocol):
    """A broker as its replica sees it. The calls are made on the event loop and return at once."""

    def lead(self, epoch: int) -> None:
        """Serve as master: everything that the log held at the election is confirmed and dispatched."""

    def follow(self, epoch: int, master: ReplicaMember | None) -> None:
        """Serve as follower, or wait where there is no master. Whoever waits for an answer to a change gets none or an
        error. The store may be cut after this returns."""
