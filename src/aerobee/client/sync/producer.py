"""The synchronous face: the same names and arguments for scripts and notebooks, on a loop thread of its own.

Works where another loop already runs (Jupyter). After a fork the child makes itself a new client with the same
arguments. `SyncClient` is what every synchronous client is built on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack

from aerobee.client.core.errors import ClientStateError
from aerobee.client.core.keywords import takes
from aerobee.client.core.receipt import SendReceipt
from aerobee.client.producer.options import ProducerConfig, ProducerOptions, shown_defaults
from aerobee.client.producer.outgoing import Body
from aerobee.client.producer.producer import Producer as AsyncProducer
from aerobee.client.producer.sendoptions import (
    BATCH_MEANING,
    MEANING,
    BatchOptions,
    SendOptions,
    check_send_options,
)
from aerobee.client.producer.transactions import Transaction as AsyncTransaction
from aerobee.errors import AerobeeError
from aerobee.model.message import Message
from aerobee.runtime import loopthread
from aerobee.runtime.process import fork_count

T = TypeVar("T")


class AsyncClient(Protocol):
    """A client as `SyncClient` drives it."""

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
        """Twice is once."""
        self._running()
        return self

    def close(self) -> None:
        """Twice is once. The last client of the process to close ends the loop thread."""
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
        """The loop thread, the client started on it; both new in a forked child."""
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
            # The interpreter ends: there is nobody left to tell.
            self._closed = True

    def _run(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """The result of what `work` makes of the asyncio client, on the loop thread."""
        thread = self._running()
        return thread.run(work(self._client))


class Transaction:
    """See aerobee.client.producer.transactions.Transaction."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, object]], object], wrapped: AsyncTransaction) -> None:
        self._run = run
        self._wrapped = wrapped

    @property
    def receipt(self) -> SendReceipt:
        """Of the half message."""
        return self._wrapped.receipt

    @property
    def message_id(self) -> str:
        """What `on_check` will see."""
        return self._wrapped.message_id

    def commit(self) -> None:
        """Decided: readable when the block is left."""
        self._wrapped.commit()

    def rollback(self) -> None:
        """Decided: nobody will ever read it."""
        self._wrapped.rollback()

    def __enter__(self) -> Self:
        self._run(self._wrapped.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._wrapped.__aexit__(kind, error, trace))


class Producer(SyncClient[AsyncProducer]):
    """`with Producer("localhost:9876") as producer: producer.send("orders", b"hi")`. Safe to share by threads.

    Selectors, hooks and an `async def` on_check are called on the loop thread, a plain on_check in a thread of its own.
    """

    @takes(ProducerOptions, shown_defaults(ProducerConfig))
    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(lambda: AsyncProducer(namesrv, **options))

    @takes(SendOptions, meaning=MEANING)
    def send(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> SendReceipt:
        """Stored when this returns."""
        return self._run(lambda client: client.send(topic, body, **options))

    @takes(SendOptions, meaning=MEANING)
    def send_nowait(
        self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin to send; the future belongs to `concurrent.futures`. Waits for room in `max_in_flight`. What the
        options cannot mean raises here, what else cannot be sent in the future."""
        check_send_options("send_nowait", options)
        thread = self._running()
        return thread.submit(self._client.send(topic, body, **options))

    @takes(SendOptions, meaning=MEANING)
    def send_oneway(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> None:
        """No answer, no retry: it may be lost."""
        self._run(lambda client: client.send_oneway(topic, body, **options))

    @takes(BatchOptions, meaning=BATCH_MEANING)
    def send_batch(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> list[SendReceipt]:
        """One receipt for each message."""
        return self._run(lambda client: client.send_batch(messages, **options))

    def flush(self) -> None:
        """Until everything begun has its answer."""
        self._run(_flushed)

    def cancel(self, receipt: SendReceipt) -> str:
        """Take back a delayed message."""
        return self._run(lambda client: client.cancel(receipt))

    @takes(SendOptions, meaning=MEANING)
    def request(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> Message:
        """Send, and wait for a consumer's reply."""
        return self._run(lambda client: client.request(topic, body, **options))

    @takes(SendOptions, meaning=MEANING)
    def transaction(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> Transaction:
        """`with producer.transaction(...) as tx:`."""
        thread = self._running()
        return Transaction(thread.run, self._client.transaction(topic, body, **options))


async def _flushed(client: AsyncProducer) -> None:
    # What send_nowait submitted from this thread begins in the loop's next turn.
    await asyncio.sleep(0)
    await client.flush()
