"""The base of the synchronous clients: an asyncio client that runs on the loop thread of the process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from aerobee.client.core import ClientStateError
from aerobee.errors import AerobeeError
from aerobee.runtime import loopthread
from aerobee.runtime.process import fork_count

T = TypeVar("T")


class AsyncClient(Protocol):
    """An asyncio client, as `SyncClient` drives it."""

    async def start(self) -> object: ...
    async def close(self) -> None: ...


C = TypeVar("C", bound=AsyncClient)


class SyncClient(Generic[C]):
    """An asyncio client on the process's loop thread."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        # Made now, so that wrong arguments raise here and not at the first use.
        self._client = make()
        self._thread: loopthread.LoopThread | None = None
        self._fork = fork_count()
        self._closed = False

    def start(self) -> Self:
        """Start the client. A second call does nothing."""
        self._running()
        return self

    def close(self) -> None:
        """Close the client. The last one of the process ends the loop thread. A second call does nothing."""
        thread, self._closed = self._thread, True
        if thread is None or self._fork != fork_count():
            return
        self._thread = None
        try:
            thread.run(self._client.close())
        finally:
            loopthread.release(thread, self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> loopthread.LoopThread:
        """Return the loop thread, with the client started on it. A forked child makes both anew."""
        thread = self._thread
        if thread is not None and self._fork == fork_count():
            return thread
        if self._closed:
            raise ClientStateError("the client is closed", hint="make a new one")
        if self._fork != fork_count():
            self._inherited = (self._client, thread)
            self._client = self._make()
            self._fork = fork_count()
        thread = self._thread = loopthread.acquire(self, self._close_at_exit)
        try:
            thread.run(self._client.start())
        except BaseException:
            self._thread = None
            loopthread.release(thread, self)
            raise
        return thread

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except (AerobeeError, RuntimeError, OSError):
            # The interpreter ends, and nobody could handle the error.
            self._closed = True

    def _run(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the asyncio client on the loop thread, and return its result."""
        thread = self._running()
        return thread.run(work(self._client))
