"""What a replica tells its broker about the role it has. The root of the process implements this."""

from __future__ import annotations

from typing import Protocol

from aerobee.replication.values import ReplicaMember


class Duty(Protocol):
    """A broker as its replica sees it. The calls are made on the event loop and return at once."""

    def lead(self, epoch: int) -> None:
        """Serve as master: everything that the log held at the election is confirmed and dispatched."""

    def follow(self, epoch: int, master: ReplicaMember | None) -> bool:
        """Serve as follower, or wait where there is no master. Whoever waits for an answer to a change gets none or an
        error.

        Return True where the store can be used on: it may be cut as soon as this returns. Return False where the broker
        is being built anew with another `MessageStore`: the replica leaves the old one alone from now on, and goes on
        when `Replica.attach` brings the new one. A replica that never led is not asked to wait.
        """

    def stop(self, reason: str) -> None:
        """Stop the process: the replica cannot go on, and says why in words for the operator."""
