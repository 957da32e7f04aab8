"""What a sender waits for, besides the log of this machine: replicas, and the topics' file."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, Protocol

from aerobee.errors import AerobeeError, DiskFullError, StoreError
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Draft
from aerobee.model.sysproperties import REAL_TOPIC
from aerobee.protocol.codes import ResponseCode

_REAL_TOPIC: Final = REAL_TOPIC.encode()


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
                # The message is in the log, where a start finds its topic again: nothing is refused.
                callback(StoreError(error.message, code=ResponseCode.FLUSH_DISK_TIMEOUT))
            else:
                self._waiter = self._log.on_safe(end_offset, callback)

        self._when_saved(saved)
        return self

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._waiter is not None:
            self._waiter.cancel()


def is_for_any(draft: Draft, topics: Container[bytes]) -> bool:
    """Tell whether a message is for one of these topics, or is kept for one until later."""
    if draft.topic in topics:
        return True
    topic = find_property(draft.properties, _REAL_TOPIC)
    return topic is not None and topic in topics


def refusal_of(error: AerobeeError) -> tuple[int, str]:
    """Return the code and the remark for a failed put. RocketMQ: SendMessageProcessor.handlePutMessageResult."""
    if error.code is not None:  # a write that the group of replicas does not allow
        return error.code, error.message
    if isinstance(error, DiskFullError):
        remark = f"service not available now: the broker's disk is full. {error.message}"
        return ResponseCode.SERVICE_NOT_AVAILABLE, remark
    if isinstance(error, StoreError):
        return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error.message}"
    return ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error.message}"
