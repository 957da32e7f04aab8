"""An event loop on a thread of its own, for callers that have none (scripts) or a busy one (notebooks).

One loop serves every synchronous client of the process. It starts with the first client and ends with the last one.
Clients that are still open when the interpreter exits are closed then. After a fork the child starts its own loop.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aerobee.runtime.process import fork_count

T = TypeVar("T")

# How long a waiting thread may miss a signal. A signal that comes just before the wait does not end it, and on Windows
# no signal does.
_WAIT_S = 0.2


class LoopThread:
    """A running loop and its thread."""

    def __init__(self, name: str = "aerobee-loop") -> None:
        self.loop = asyncio.new_event_loop()
        self.fork = fork_count()
        # Called when the interpreter exits, for users that did not close.
        self._closers: dict[object, Callable[[], None]] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    @property
    def thread_id(self) -> int:
        assert self._thread.ident is not None
        return self._thread.ident

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Interrupting the wait cancels the coroutine."""
        return self.wait(self.submit(work))

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a synchronous client was called from its own callback: use the asyncio one")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @staticmethod
    def wait(future: concurrent.futures.Future[T]) -> T:
        while True:
            try:
                return future.result(_WAIT_S)
            except TimeoutError:
                if future.done():
                    raise
            except BaseException:
                future.cancel()
                raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def join(self, user: object, close: Callable[[], None]) -> None:
        self._closers[user] = close

    def leave(self, user: object) -> bool:
        """Remove a user. Return whether it was the last one."""
        return self._closers.pop(user, None) is not None and not self._closers

    def close_all(self) -> None:
        for close in list(self._closers.values()):
            close()


_lock = threading.Lock()
_shared: LoopThread | None = None
# The parent's loop is kept in a child: collecting it would unregister sockets in the epoll that both share.
_inherited: list[LoopThread] = []


def acquire(user: object, close: Callable[[], None]) -> LoopThread:
    """Return the loop thread of the process, and start it where there is none. `close` is called at exit."""
    global _shared
    with _lock:
        if _shared is None or _shared.fork != fork_count():
            _shared = LoopThread()
        _shared.join(user, close)
        return _shared


def release(thread: LoopThread, user: object) -> None:
    """Release the loop thread. The last user stops it and waits for its end. A second call does nothing."""
    global _shared
    with _lock:
        is_last = thread.leave(user)
        if is_last and _shared is thread:
            _shared = None
    if is_last and thread.fork == fork_count():
        thread.stop()


def _at_exit() -> None:
    thread = _shared
    if thread is not None and thread.fork == fork_count():
        thread.close_all()


def _after_fork() -> None:
    # The thread that may have held the lock does not exist in the child.
    global _lock, _shared
    _lock = threading.Lock()
    if _shared is not None:
        _inherited.append(_shared)
    _shared = None


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
