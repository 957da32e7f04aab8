"""One client of the cluster for the time of one write() or commit(), on a loop thread beside Spark's own."""

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

# Time, not tries, bounds a send: Spark does the whole task again where we give up.
_RETRIES: Final = 1_000
BODY_SIZE_MAX: Final = 4 << 20


class SinkClient:
    """`with SinkClient(options) as client:`; what it runs, runs on its own thread."""

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
        """The result, waited for."""
        return self._thread.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begun; the future is for the calling thread."""
        return self._thread.submit(work)

    def publish(self, topic: str) -> PublishInfo:
        """Where the topic's messages may go."""
        return self.sender.publish(topic) or self.run(self.sender.resolve(topic))

    def next_id(self) -> str:
        """A unique message id. Only the writing thread makes them."""
        return self.core.unique_ids.next(self.core.clock.now_ms())
