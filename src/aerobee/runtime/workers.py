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
        """The function's result, from a thread. Cancelling the future does not stop a function that runs."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, lambda: context.run(function, *arguments))

    def close(self, *, idle: bool = False) -> None:
        """Nothing new starts. `idle`: nothing runs either, and no thread is left; else what runs ends by itself."""
        if self._executor is not None:
            self._executor.shutdown(wait=idle, cancel_futures=True)
            self._executor = None
