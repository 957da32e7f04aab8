"""Threads for user functions that block."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Workers:
    """At most `count` threads, started when first needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._executor: ThreadPoolExecutor | None = None

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run a function in a thread and return a future of its result. Cancelling the future does not stop the
        function."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, lambda: context.run(function, *arguments))

    def close(self, *, idle: bool = False) -> None:
        """Start nothing new. With `idle` nothing runs any more, and no thread is left; else running functions end by
        themselves."""
        if self._executor is not None:
            self._executor.shutdown(wait=idle, cancel_futures=True)
            self._executor = None
