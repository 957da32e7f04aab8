"""The synchronous consumers. They have the names and arguments of the asyncio ones.

consumer = LitePullConsumer("localhost:9876", group="billing")
consumer.subscribe("orders")
with consumer:
    for message in consumer: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

from aerobee.client.consumer import (
    PULL_BATCH_SIZE,
    Handler,
    LitePullConsumerConfig,
    LitePullConsumerOptions,
    PullResult,
    PushConsumerConfig,
    PushConsumerOptions,
)
from aerobee.client.consumer import LitePullConsumer as AsyncLitePullConsumer
from aerobee.client.consumer import PushConsumer as AsyncPushConsumer
from aerobee.client.core import shown_defaults, takes
from aerobee.client.sync.client import SyncClient
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.runtime.signals import stopping

H = TypeVar("H", bound=Handler)
T = TypeVar("T")


async def _on_loop(function: Callable[[], T]) -> T:
    return function()


class PushConsumer(SyncClient[AsyncPushConsumer]):
    """A push consumer: write `@consumer.listener("orders")` above a function, then call `consumer.run()`.

    `with consumer:` runs it beside other work. Plain handlers run in threads; `async def` handlers, on_assigned and
    on_revoked run on the loop thread.
    """

    @takes(PushConsumerOptions, shown_defaults(PushConsumerConfig))
    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, group: str, **options: Unpack[PushConsumerOptions]
    ) -> None:
        # Declared again on the client that a forked child makes.
        self._declared: list[Callable[[AsyncPushConsumer], object]] = []

        def make() -> AsyncPushConsumer:
            client = AsyncPushConsumer(namesrv, group=group, **options)
            for declare in self._declared:
                declare(client)
            return client

        super().__init__(make)

    def listener(
        self,
        topic: str,
        *,
        tags: str = "*",
        sql92: str | None = None,
        ordered: bool = False,
        batch: int = 1,
    ) -> Callable[[H], H]:
        """Declare the handler of a topic."""

        def declare(handler: H) -> H:
            def on(client: AsyncPushConsumer) -> object:
                return client.listener(topic, tags=tags, sql92=sql92, ordered=ordered, batch=batch)(handler)

            on(self._client)
            self._declared.append(on)
            return handler

        return declare

    def run(self) -> None:
        """Consume until SIGTERM, Ctrl-C or `stop()`. Then let handlers end, save offsets and leave the group."""
        with stopping(self.stop):
            try:
                self._run(lambda client: client.stopped())
            except KeyboardInterrupt:
                pass
            finally:
                self.close()

    def stop(self) -> None:
        """Make `run()` end. Any thread may call this."""
        self._client.stop()

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer has now."""
        return self._run(lambda client: _on_loop(client.assignment))

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out no more messages of these queues, or of all, until `resume`."""
        self._run(lambda client: _on_loop(lambda: client.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        self._run(lambda client: _on_loop(lambda: client.resume(*queues)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset, for the whole group."""
        self._run(lambda client: client.seek(queue, offset))


class LitePullConsumer(SyncClient[AsyncLitePullConsumer]):
    """A pull consumer for `for message in consumer` or `poll()`. One thread at a time may use it."""

    @takes(LitePullConsumerOptions, shown_defaults(LitePullConsumerConfig))
    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, group: str, **options: Unpack[LitePullConsumerOptions]
    ) -> None:
        self._declared: list[Callable[[AsyncLitePullConsumer], None]] = []

        def make() -> AsyncLitePullConsumer:
            client = AsyncLitePullConsumer(namesrv, group=group, **options)
            for declare in self._declared:
                declare(client)
            return client

        super().__init__(make)

    def _declare(self, declare: Callable[[AsyncLitePullConsumer], None]) -> None:
        if self._thread is None:
            declare(self._client)
        else:
            self._run(lambda client: _on_loop(lambda: declare(client)))
        self._declared.append(declare)

    def subscribe(self, topic: str, *, tags: str = "*", sql92: str | None = None) -> None:
        """Subscribe to a topic, whose queues the members of the group share."""
        self._declare(lambda client: client.subscribe(topic, tags=tags, sql92=sql92))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic and give its queues up."""
        self._declare(lambda client: client.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read just these queues, whatever others read."""
        chosen = list(queues)
        self._declare(lambda client: client.assign(chosen))

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """Return the next message; the one before counts as done."""
        try:
            return self._run(lambda client: client.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def poll(self, max: int = PULL_BATCH_SIZE, timeout: float | None = 5.0) -> list[Message]:  # noqa: A002
        """Return up to `max` messages as soon as there is one, or none in time. Earlier ones count as done."""
        return self._run(lambda client: client.poll(max, timeout))

    def poll_arrow(self, max: int = 1024, timeout: float | None = 5.0) -> Any:  # noqa: A002
        """Poll messages as a `pyarrow.RecordBatch`."""
        return self._run(lambda client: client.poll_arrow(max, timeout))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max: int = PULL_BATCH_SIZE,  # noqa: A002
        tags: str = "*",
        sql92: str | None = None,
        wait: float = 0.0,
    ) -> PullResult:
        """Pull the messages at an offset, without touching the progress of the group."""
        return self._run(lambda client: client.pull(queue, offset, max=max, tags=tags, sql92=sql92, wait=wait))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic."""
        return self._run(lambda client: client.queues(topic))

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer reads now."""
        return self._run(lambda client: _on_loop(client.assignment))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at an offset."""
        self._run(lambda client: client.seek(queue, offset))

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest message that is still there, in these queues or in all."""
        self._run(lambda client: client.seek_to_begin(*queues))

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go past the newest message, in these queues or in all."""
        self._run(lambda client: client.seek_to_end(*queues))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to be handed out, None while it is not known yet."""
        return self._run(lambda client: _on_loop(lambda: client.position(queue)))

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that is still there."""
        return self._run(lambda client: client.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        return self._run(lambda client: client.end_offset(queue))

    def offset_at(self, queue: MessageQueue, moment: datetime | int) -> int:
        """Return the offset of the first message that was stored at a time or after it."""
        return self._run(lambda client: client.offset_at(queue, moment))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the saved offset of the group, None where there is none."""
        return self._run(lambda client: client.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Save the offsets of all messages handed out so far, or just these offsets."""
        self._run(lambda client: client.commit(offsets))

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing more of these queues, or of all, until `resume`."""
        self._run(lambda client: _on_loop(lambda: client.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        self._run(lambda client: _on_loop(lambda: client.resume(*queues)))
