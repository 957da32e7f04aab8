"""The log as an ASYNC_MASTER's senders see it: a send is answered when this machine has stored it.

Readers still wait until the replicas have it. So a message that was answered may be lost with its machine, but nobody
has read it then, and its offset is not given to another.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.errors import StoreError
from aerobee.protocol.codes import ResponseCode
from aerobee.store.flush import Waiter, Waiters
from aerobee.store.messagestore import MessageStore


class LocalWrites:
    """Tells how far this machine has stored the log. `open` is called after the store was opened."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._waiters = Waiters()

    def open(self) -> None:
        """Hear from the store's flusher how far the log is synced."""
        self._store.flusher.on_synced = self._synced

    def _synced(self, end: int) -> None:
        if self._store.fenced is None:
            self._waiters.advance(self.confirmed_offset)

    @property
    def confirmed_offset(self) -> int:
        """Return how far this machine has stored the log as its flush promises."""
        return self._store.flusher.confirmed

    def on_safe(self, end_offset: int, callback: Callable[[StoreError | None], None], /) -> Waiter | None:
        """Call back once this machine has stored the log up to the offset, or with the error of the store."""
        if self._store.fenced is not None or end_offset <= self.confirmed_offset:
            callback(self._store.fenced)
            return None
        local = self._waiters.add(end_offset, callback)
        # The store tells of failures. A waiter calls back once, whoever finishes it first.
        self._store.on_safe(end_offset, local.finish)
        return local


def late_code(store: MessageStore, end: int) -> int:
    """Return the code for a record that is not safe in time: the disk's or the replicas' fault."""
    return ResponseCode.FLUSH_DISK_TIMEOUT if store.flusher.confirmed < end else ResponseCode.FLUSH_SLAVE_TIMEOUT
