"""The synchronous consumers: the same names and arguments as the asyncio ones.

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
    """`@consumer.listener("orders")` above a function, then `consumer.run()`; or `with consumer:` beside other work.

    Plain handlers run in threads, `async def` ones on the loop thread, where on_assigned and on_revoked run too.
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
        """Declares a topic's handler."""

        def declare(handler: H) -> H:
            def on(client: AsyncPushConsumer) -> object:
                return client.listener(topic, tags=tags, sql92=sql92, ordered=ordered, batch=batch)(handler)

            on(self._client)
            self._declared.append(on)
            return handler

        return declare

    def run(self) -> None:
        """Consume until SIGTERM, Ctrl-C or `stop()`; then let handlers end, save offsets and leave."""
        with stopping(self.stop):
            try:
                self._run(lambda client: client.stopped())
            except KeyboardInterrupt:
                pass
            finally:
                self.close()

    def stop(self) -> None:
        """Make `run()` end. From any thread."""
        self._client.stop()

    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now."""
        return self._run(lambda client: _on_loop(client.assignment))

    def pause(self, *queues: MessageQueue) -> None:
        """No more messages are handed out, of these queues or of all, until `resume`."""
        self._run(lambda client: _on_loop(lambda: client.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        self._run(lambda client: _on_loop(lambda: client.resume(*queues)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from there, for the whole group."""
        self._run(lambda client: client.seek(queue, offset))


class LitePullConsumer(SyncClient[AsyncLitePullConsumer]):
    """`for message in consumer`, or `poll()`; one thread at a time."""

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
        """Share the topic's queues with the others of the group."""
        self._declare(lambda client: client.subscribe(topic, tags=tags, sql92=sql92))

    def unsubscribe(self, topic: str) -> None:
        """Give its queues up."""
        self._declare(lambda client: client.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read just these queues, whoever else does."""
        chosen = list(queues)
        self._declare(lambda client: client.assign(chosen))

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """The next message; the one before is done."""
        try:
            return self._run(lambda client: client.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def poll(self, max: int = PULL_BATCH_SIZE, timeout: float | None = 5.0) -> list[Message]:  # noqa: A002
        """Up to `max` messages, as soon as there is one; none when the time is over. Those before are done."""
        return self._run(lambda client: client.poll(max, timeout))

    def poll_arrow(self, max: int = 1024, timeout: float | None = 5.0) -> Any:  # noqa: A002
        """As `poll`, as a `pyarrow.RecordBatch`."""
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
        """What lies at an offset, without touching the group's progress."""
        return self._run(lambda client: client.pull(queue, offset, max=max, tags=tags, sql92=sql92, wait=wait))

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        return self._run(lambda client: client.queues(topic))

    def assignment(self) -> list[MessageQueue]:
        """Those this consumer reads now."""
        return self._run(lambda client: _on_loop(client.assignment))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from there."""
        self._run(lambda client: client.seek(queue, offset))

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """To the oldest message still there, of these queues or of all."""
        self._run(lambda client: client.seek_to_begin(*queues))

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Past the newest message, of these queues or of all."""
        self._run(lambda client: client.seek_to_end(*queues))

    def position(self, queue: MessageQueue) -> int | None:
        """Where the next message comes from; None while that is being found out."""
        return self._run(lambda client: _on_loop(lambda: client.position(queue)))

    def begin_offset(self, queue: MessageQueue) -> int:
        """Of the oldest message still there."""
        return self._run(lambda client: client.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """That the next message will get."""
        return self._run(lambda client: client.end_offset(queue))

    def offset_at(self, queue: MessageQueue, moment: datetime | int) -> int:
        """Of the first message stored at a time or after it."""
        return self._run(lambda client: client.offset_at(queue, moment))

    def committed(self, queue: MessageQueue) -> int | None:
        """What is saved for the group; None where nothing is."""
        return self._run(lambda client: client.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Save: everything handed out so far, or just these offsets."""
        self._run(lambda client: client.commit(offsets))

    def pause(self, *queues: MessageQueue) -> None:
        """Nothing more of these queues, or of all, is handed out until `resume`."""
        self._run(lambda client: _on_loop(lambda: client.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        self._run(lambda client: _on_loop(lambda: client.resume(*queues)))
