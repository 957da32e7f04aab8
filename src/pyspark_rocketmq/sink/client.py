"""The client of a sink for the time of one write() or commit(), on a loop thread beside Spark's own thread."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aerobee.client.core import ClientCore, acquire_core, release_core
from aerobee.client.producer import PublishInfo, Sender, SenderConfig
from aerobee.runtime.loopthread import LoopThread
from pyspark_rocketmq.sinkoptions import SinkOptions

T = TypeVar("T")

# Only time limits a send, not the number of tries: Spark runs the whole task again when a send fails.
_RETRIES: Final = 1_000
BODY_SIZE_MAX: Final = 4 << 20


class SinkClient:
    """An asyncio core and a sender on a thread of their own, for `with SinkClient(options) as client:`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._thread: LoopThread
        self.core: ClientCore
        self.sender: Sender

    def __enter__(self) -> Self:
        self._thread = LoopThread("rocketmq-sink")
        try:
            self.run(self._open())
        except BaseException:
            self._thread.stop()
            raise
        return self

    async def _open(self) -> None:
        endpoint = self.options.endpoint
        self.core = await acquire_core(endpoint.client_config())
        sending = SenderConfig(
            timeout_s=max(endpoint.retry_timeout_ms, endpoint.request_timeout_ms) / 1000,
            attempt_timeout_s=endpoint.request_timeout_ms / 1000,
            retries=_RETRIES,
        )
        self.sender = Sender(self.core, self.options.group, sending)
        self.core.add_producer(self.options.group, self.sender)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        self.sender.close()
        try:
            await self.core.remove_producer(self.options.group, self.sender)
        finally:
            await release_core(self.core)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return self._thread.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine, and return a future for the calling thread."""
        return self._thread.submit(work)

    def publish(self, topic: str) -> PublishInfo:
        """Return the queues that the messages of a topic may go to."""
        return self.sender.publish(topic) or self.run(self.sender.resolve(topic))

    def next_id(self) -> str:
        """Return a unique message id. Only the writing thread calls this."""
        return self.core.unique_ids.next(self.core.clock.now_ms())
