"""The log of a SYNC_MASTER as its senders see it: a send is answered when as many slaves as needed have it.

Readers do not wait: they see a message at once, as Apache's do. RocketMQ: CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

from aerobee.errors import StoreError
from aerobee.replication.classic.acks import SlaveAcks
from aerobee.store.flush import Safe, Waiter
from aerobee.store.messagestore import MessageStore


class ReplicatedLog:
    """A store and its slaves. A broker that waits for no slave never meets this class."""

    def __init__(self, store: MessageStore, acks: SlaveAcks) -> None:
        self._store = store
        self._acks = acks

    @property
    def confirmed_offset(self) -> int:
        """Return how far the log is stored as promised: on this machine, and on as many slaves as are needed."""
        local = self._store.confirmed_offset
        return min(local, self._acks.held) if self._acks.needed else local

    def on_safe(self, end_offset: int, callback: Safe, /) -> BothWaiters:
        """Call back once the log is stored as promised up to `end_offset`, or with the error that means it never is."""
        return BothWaiters(self._store, self._acks, end_offset, callback)

    def is_late_for_slaves(self, end_offset: int) -> bool:
        """Tell whether slaves are what a sender still waits for."""
        return not self._acks.holds(end_offset)


class BothWaiters:
    """One caller, which waits for this machine first and for the slaves then."""

    def __init__(self, store: MessageStore, acks: SlaveAcks, end: int, callback: Safe) -> None:
        self._acks = acks
        self._end = end
        self._callback: Safe | None = callback
        self._slaves: Waiter | None = None
        self._local = store.on_safe(end, self._stored)

    def _stored(self, error: StoreError | None) -> None:
        if self._callback is None:
            return
        if error is not None or self._acks.holds(self._end):
            self._finish(error)
        else:
            self._slaves = self._acks.when_held(self._end, self._finish)

    def _finish(self, error: StoreError | None) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(error)

    def cancel(self) -> None:
        """Call back no more."""
        self._callback = None
        for waiter in (self._local, self._slaves):
            if waiter is not None:
                waiter.cancel()
