"""The log as a follower reads it: everything dispatched passes here, and features are told what concerns them.

A broker that follows writes nothing. Its features derive from the master's records what they must know to go on when
this broker leads: marks of deliveries, of ended transactions and of copied rows, and what idempotent producers sent.
Only confirmed records are dispatched, so nothing has to be taken back.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.log.tail import Mark
from aerobee.hot.log.record import Draft
from aerobee.model.producermark import PRODUCER_MARK
from aerobee.store.dispatch import Sink

_PRODUCER_MARK = PRODUCER_MARK.encode()


class FollowedLog(Sink):
    """A sink that joins the store while its broker follows."""

    name = "following"

    def __init__(self, sent: Callable[[Draft], None]) -> None:
        """`sent` takes the records of idempotent producers."""
        self._sent = sent
        self._marks: list[Mark] = []

    def position(self) -> int:
        """Return that nothing is kept: the sink joins after a start, and features read the log's tail by themselves."""
        return -1

    def dispatch(self, drafts: list[Draft]) -> None:
        for draft in drafts:
            if draft.prepared_transaction_offset:
                self._marks.append(Mark(draft.prepared_transaction_offset, draft.topic, draft.physical_offset))
            if _PRODUCER_MARK in draft.properties:
                self._sent(draft)

    def take(self) -> list[Mark]:
        """Return the marks found since the last call, in the order of the log."""
        marks, self._marks = self._marks, []
        return marks
