"""Compression of large bodies in threads, off the event loop.

The sends of a topic keep the order in which they were begun: a send that comes after one whose body is being compressed
waits for it, as it would have waited while the loop did the work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from aerobee.client.core import ClientStateError
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.errors import AerobeeError
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import RateLimitedLog

_THREADS: Final = 2


class CompressibleSend(Protocol):
    """A send that waits until its body is ready."""

    @property
    def out(self) -> SendRequest: ...
    def begin(self) -> None: ...
    def fail(self, error: AerobeeError) -> None: ...


W = TypeVar("W", bound=CompressibleSend)


class Compressor(Generic[W]):
    """The sends that wait for a body to be compressed, by topic."""

    def __init__(self, log: RateLimitedLog) -> None:
        self._workers = Workers(_THREADS, "aerobee-compress")
        self._waiting: dict[str, deque[W]] = {}
        self._log = log

    def holds(self, out: SendRequest) -> bool:
        """Tell whether a send cannot begin at once."""
        return out.compression is not None or (bool(self._waiting) and out.topic in self._waiting)

    def join(self, waiter: W) -> None:
        """Begin a send when its body is ready and the sends before it have begun."""
        out = waiter.out
        self._waiting.setdefault(out.topic, deque()).append(waiter)
        if out.compression is not None:
            self._workers.run(out.compression.apply, out.body).add_done_callback(partial(self._compressed, waiter))

    def _compressed(self, waiter: W, done: asyncio.Future[tuple[bytes, int]]) -> None:
        out = waiter.out
        out.compression = None
        waiting = self._waiting[out.topic]
        if done.cancelled():
            waiting.remove(waiter)
            waiter.fail(ClientStateError("the producer was closed before the message was sent"))
        elif (error := done.exception()) is not None:
            self._log.warning(
                "compress", "a body could not be compressed and is sent as it is", topic=out.topic, reason=error
            )
        else:
            out.body, flag = done.result()
            out.sys_flag |= flag
        while waiting and waiting[0].out.compression is None:
            waiting.popleft().begin()
        if not waiting:
            del self._waiting[out.topic]

    def close(self) -> None:
        self._workers.close()
