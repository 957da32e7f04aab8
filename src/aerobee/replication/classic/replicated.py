"""The log of a master as its writer sees it: what is appended goes to the slaves, and its sender waits for them.

Readers do not wait: they see a message at once, as Apache's do. RocketMQ: CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

from aerobee.errors import StoreError
from aerobee.hot.log.record import Draft
from aerobee.replication.classic.master import ClassicMaster
from aerobee.store.flush import Safe, Waiter


class ReplicatedLog:
    """A store and its slaves. A broker without slaves writes to its store and never meets this class."""

    def __init__(self, master: ClassicMaster) -> None:
        self._store = master.store
        self._master = master
        self._acks = master.acks

    @property
    def confirmed_offset(self) -> int:
        """Return how far the log is stored as promised: on this machine, and on as many slaves as are needed."""
        local = self._store.confirmed_offset
        return min(local, self._acks.held) if self._acks.needed else local

    def append(self, drafts: list[Draft]) -> int:
        """Store drafts as `MessageStore.append` does, and send them to the slaves."""
        end = self._store.append(drafts)
        self._master.wrote()
        return end

    def on_safe(self, end_offset: int, callback: Safe) -> _BothWaiters:
        """Call back once the log is stored as promised up to `end_offset`, or with the error that means it never is."""
        return _BothWaiters(self, end_offset, callback)

    def is_late_for_slaves(self, end_offset: int) -> bool:
        """Tell whether slaves are what a sender still waits for."""
        return not self._acks.holds(end_offset)

    def wait_local(self, end_offset: int, callback: Safe) -> Waiter | None:
        return self._store.on_safe(end_offset, callback)

    def wait_slaves(self, end_offset: int, callback: Safe) -> Waiter | None:
        if self._acks.holds(end_offset):
            callback(None)
            return None
        return self._acks.when_held(end_offset, callback)


class _BothWaiters:
    """One caller, which waits for this machine first and for the slaves then."""

    def __init__(self, log: ReplicatedLog, end: int, callback: Safe) -> None:
        self._callback: Safe | None = callback
        self._slaves: Waiter | None = None

        def stored(error: StoreError | None) -> None:
            if self._callback is None:
                return
            if error is not None:
                self._finish(error)
            else:
                self._slaves = log.wait_slaves(end, self._finish)

        self._local = log.wait_local(end, stored)

    def _finish(self, error: StoreError | None) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(error)

    def cancel(self) -> None:
        self._callback = None
        for waiter in (self._local, self._slaves):
            if waiter is not None:
                waiter.cancel()
