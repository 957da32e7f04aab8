"""What a sender waits for, besides the log of this machine: replicas, and the topics' file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aerobee.errors import StoreError


class Cancellable(Protocol):
    """A waiter that can be cancelled."""

    def cancel(self) -> None: ...


class EarlyLog(Protocol):
    """What tells that plain sends may be answered, where that is sooner than the log is safe."""

    @property
    def confirmed_offset(self) -> int: ...
    def on_safe(self, end_offset: int, callback: Callable[[StoreError | None], None], /) -> Cancellable | None: ...


class TopicSaves(Protocol):
    """The topics, which are saved off this thread."""

    # Topics that were made or changed and are not on disk yet.
    unsaved: dict[bytes, int]

    def when_saved(self, done: Callable[[StoreError | None], None], /) -> None: ...
    def tick(self) -> None: ...


class AfterSave:
    """A log that is safe when the topics are saved, too. It stands for one wait."""

    def __init__(self, log: EarlyLog, when_saved: Callable[[Callable[[StoreError | None], None]], None]) -> None:
        self._log = log
        self._when_saved = when_saved
        self._waiter: Cancellable | None = None
        self._is_cancelled = False

    @property
    def confirmed_offset(self) -> int:
        return -1

    def on_safe(self, end_offset: int, callback: Callable[[StoreError | None], None], /) -> Cancellable | None:
        def saved(error: StoreError | None) -> None:
            if self._is_cancelled:
                return
            if error is not None:
                callback(error)
            else:
                self._waiter = self._log.on_safe(end_offset, callback)

        self._when_saved(saved)
        return self

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._waiter is not None:
            self._waiter.cancel()
