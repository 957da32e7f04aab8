"""What a replica needs of the place where its group agrees. `aerobee.coordination` has the real forms.

Only the compare-and-swap of the state carries safety. Leases detect death and stop side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Protocol

from aerobee.replication.values import GroupState, GroupView, LiveReplica, ReplicaMember


class Outcome(Enum):
    """How a change ended."""

    # It is stored.
    DONE = "done"
    # It is not stored and never will be: the state was another one.
    REFUSED = "refused"
    # No answer came. It may be stored, now or later; only a view that shows a newer revision tells.
    UNKNOWN = "unknown"


class Coordinator(Protocol):
    """One group's place in the coordination store. Methods that do not say otherwise raise CoordinationError when the
    store cannot be reached in time."""

    async def join(self, member: ReplicaMember, starts: Collection[str] = ()) -> ReplicaMember:
        """Store a member and return it. An id of 0 asks for a new id, or for the one that the same incarnation got
        before: draw the incarnation and make it durable first. A replica that was removed is refused. So is a copy of
        one: the member that is stored names none of these starts."""

    async def view(self) -> GroupView:
        """Return the current view by a linearizable read.

        A state with an older epoch than the replica has seen, or none at all, means that the store was emptied or
        restored from a backup. The replica must refuse it in words and must not begin anew from it.
        """

    def watch(self, changed: Callable[[GroupView], None]) -> None:
        """Call back with a whole view whenever something changed, until `close`. A gap is closed by a new read."""

    async def replace(self, seen: GroupState, new: GroupState) -> Outcome:
        """Store a new state if the stored one still has the revision of `seen`. Never raise CoordinationError."""

    async def keep(self, live: LiveReplica) -> float:
        """Keep this process's lease alive, opening one where there is none, and publish `live` under it. Return the
        lease's time to live in seconds. The caller counts it from the moment at which it made the call."""

    async def remove(self, number: int) -> bool:
        """Delete a member. Return False if there is none, or if the group changed meanwhile."""

    async def let_go(self) -> None:
        """Revoke the lease, so that the others need not wait for its end."""

    async def close(self) -> None:
        """Stop watching and close the connections. The lease is left to end by itself."""
