"""Bugs of POP that the simulation must find: each breaks one promise, by a patch that a test takes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.broker.pop import entries, records, reviving
from aerobee.broker.pop.driver import Pop
from aerobee.broker.pop.entries import PopEntry
from aerobee.broker.pop.ledger import PopLedger
from aerobee.broker.pop.reviving import Reviver
from aerobee.broker.pop.snapshot import encode_picture
from aerobee.broker.pop.table import PopTable
from aerobee.broker.pop.window import Window

Plant = Callable[[pytest.MonkeyPatch], None]


def answered_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Answer an acknowledgement at once, and store it two seconds later."""
    said = PopLedger.said

    def wait(self: PopLedger, told: Any) -> None:
        told(0, "")
        asyncio.get_running_loop().call_later(2.0, lambda: said(self))

    patch.setattr(PopLedger, "wait", wait)


def copy_not_stored(patch: pytest.MonkeyPatch) -> None:
    """Say that a message is copied to its retry topic, and copy none."""
    store_with = PopLedger.store_with
    patch.setattr(PopLedger, "store_with", lambda self, drafts, told: store_with(self, [], told))


def copy_said_nowhere(patch: pytest.MonkeyPatch) -> None:
    """Copy a message to its retry topic, and do not tell the journal."""
    patch.setattr(entries.Writer, "done", lambda self, key, offsets, now_ms: None)


def acknowledgements_not_learnt(patch: pytest.MonkeyPatch) -> None:
    """Forget acknowledgements at a start."""
    learn = PopTable.learn

    def forgetful(self: PopTable, entry: PopEntry) -> None:
        if entry.kind != entries.ACK:
            learn(self, entry)

    patch.setattr(PopTable, "learn", forgetful)


def position_saved_as_handed_out(patch: pytest.MonkeyPatch) -> None:
    """Save how far messages were handed out, as Apache does, and forget the journal at a start."""
    patch.setattr(Window, "safe", property(lambda self: self.taken))
    patch.setattr(PopLedger, "open", lambda self, table: table)


def not_hidden(patch: pytest.MonkeyPatch) -> None:
    """Bring a message back as soon as it was handed out."""
    take = PopTable.take

    def now(self: PopTable, window: Window, start: int, following: int, offsets: Any, at: int, deadline: int) -> None:
        take(self, window, start, following, offsets, at, at)

    patch.setattr(PopTable, "take", now)


def shorter_time_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """Look for a message at its first time only, also where a change made it shorter."""

    def change(self: PopTable, window: Window, offset: int, pop_time: int, deadline: int, *, suspend: bool) -> bool:
        return window.change(offset, pop_time, deadline, suspend=suspend) >= 0

    patch.setattr(PopTable, "change", change)


def suspended_tries_counted(patch: pytest.MonkeyPatch) -> None:
    """Count a try although the consumer said that it is none."""
    copy = records.retry_copy

    def counted(*arguments: Any, suspended: bool) -> Any:
        return copy(*arguments, suspended=False)

    patch.setattr(reviving, "retry_copy", counted)


def unreadable_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Let every third message go that is due, as if it could not be read any more."""
    place = Reviver._place

    def gone(self: Reviver, window: Window, offset: int) -> Any:
        return None if offset % 3 == 2 else place(self, window, offset)

    patch.setattr(Reviver, "_place", gone)


def due_looked_for_rarely(patch: pytest.MonkeyPatch) -> None:
    """Bring messages back up to three seconds late, as Apache's broker does."""
    tick = Pop.tick

    def rarely(self: Pop, now_ms: int) -> None:
        if now_ms % 3_000 < 100:
            tick(self, now_ms)
        else:
            self.waits.expire(self.clock.monotonic())

    patch.setattr(Pop, "tick", rarely)


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        answered_before_it_is_stored, copy_not_stored, copy_said_nowhere, acknowledgements_not_learnt,
        position_saved_as_handed_out, not_hidden, shorter_time_not_looked_for,
        suspended_tries_counted, unreadable_forgotten, due_looked_for_rarely,
    )
}  # fmt: skip


def picture_of_what_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """Save a picture at a stop, whatever of it is in the log of the group."""

    def release(self: PopLedger, table: PopTable) -> None:
        self._picture = b"".join(encode_picture(table, self._journal.end_offset)), 0

    patch.setattr(PopLedger, "release", release)


def picture_ahead_of_what_a_follower_read(patch: pytest.MonkeyPatch) -> None:
    """Let the picture of a follower name all of the journal that is there."""
    patch.setattr(PopLedger, "is_following", property(lambda self: False, lambda self, value: None), raising=False)


def lost_takes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Do nothing about the acknowledgement of a message whose take was lost, and answer it."""
    patch.setattr(Pop, "_may_be_lost", lambda self, lease: False)


def leases_not_followed(patch: pytest.MonkeyPatch) -> None:
    """Let a follower learn of no change of a lease."""
    learn = PopTable.learn

    def forgetful(self: PopTable, entry: PopEntry) -> None:
        if entry.kind != entries.CHANGE:
            learn(self, entry)

    patch.setattr(PopTable, "learn", forgetful)


# The bugs that only a group of replicas has, and seeds of which one finds each.
PLANTED_IN_GROUPS: dict[str, tuple[Plant, tuple[int, ...]]] = {
    "picture_of_what_is_not_stored": (picture_of_what_is_not_stored, (213, 251)),
    "picture_ahead_of_what_a_follower_read": (picture_ahead_of_what_a_follower_read, (12, 157)),
    "lost_takes_forgotten": (lost_takes_forgotten, (250,)),
    "leases_not_followed": (leases_not_followed, (0, 1)),
    "acknowledgements_not_learnt": (acknowledgements_not_learnt, (0, 1)),
}
