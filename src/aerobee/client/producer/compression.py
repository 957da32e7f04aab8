"""Compression of large bodies off the event loop: in threads, while the sends behind keep their order.

The sends of a topic go on in the order they were begun: who comes after one whose body is being compressed waits for
it, as it would have waited while the loop did that.
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
    """A send that waits to be begun."""

    @property
    def out(self) -> SendRequest: ...
    def begin(self) -> None: ...
    def fail(self, error: AerobeeError) -> None: ...


W = TypeVar("W", bound=CompressibleSend)


class Compressor(Generic[W]):
    """The sends that wait for a body, by topic."""

    def __init__(self, log: RateLimitedLog) -> None:
        self._workers = Workers(_THREADS, "aerobee-compress")
        self._lines: dict[str, deque[W]] = {}
        self._log = log

    def holds(self, out: SendRequest) -> bool:
        """Whether a send cannot begin at once."""
        return out.compression is not None or (bool(self._lines) and out.topic in self._lines)

    def join(self, waiter: W) -> None:
        """Begin it when its body is ready and those before it have begun."""
        out = waiter.out
        self._lines.setdefault(out.topic, deque()).append(waiter)
        if out.compression is not None:
            self._workers.run(out.compression.apply, out.body).add_done_callback(partial(self._compressed, waiter))

    def _compressed(self, waiter: W, done: asyncio.Future[tuple[bytes, int]]) -> None:
        out = waiter.out
        out.compression = None
        line = self._lines[out.topic]
        if done.cancelled():
            line.remove(waiter)
            waiter.fail(ClientStateError("the producer was closed before the message was sent"))
        elif (error := done.exception()) is not None:
            self._log.warning("fold", "a body could not be compressed, sent as it is", topic=out.topic, reason=error)
        else:
            out.body, flag = done.result()
            out.sys_flag |= flag
        while line and line[0].out.compression is None:
            line.popleft().begin()
        if not line:
            del self._lines[out.topic]

    def close(self) -> None:
        self._workers.close()
