"""The synchronous producer, for scripts and notebooks. It has the names and arguments of the asyncio one.

It runs on a loop thread, so that it works where another loop already runs (Jupyter). After a fork the child makes a new
client with the same arguments.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from aerobee.client.core import SendReceipt, shown_defaults, takes
from aerobee.client.producer import (
    BATCH_MEANING,
    SEND_MEANING,
    BatchOptions,
    Body,
    ProducerConfig,
    ProducerOptions,
    SendOptions,
    check_send_options,
)
from aerobee.client.producer import Producer as AsyncProducer
from aerobee.client.producer import Transaction as AsyncTransaction
from aerobee.client.sync.client import SyncClient
from aerobee.model.message import Message


class Transaction:
    """A half message. Leaving the block commits it; an exception leaves it to `on_check`."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, object]], object], wrapped: AsyncTransaction) -> None:
        self._run = run
        self._wrapped = wrapped

    @property
    def receipt(self) -> SendReceipt:
        """The receipt of the half message."""
        return self._wrapped.receipt

    @property
    def message_id(self) -> str:
        """The id that `on_check` will see."""
        return self._wrapped.message_id

    def commit(self) -> None:
        """Decide that the message becomes readable when the block is left."""
        self._wrapped.commit()

    def rollback(self) -> None:
        """Decide that nobody will ever read the message."""
        self._wrapped.rollback()

    def __enter__(self) -> Self:
        self._run(self._wrapped.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._wrapped.__aexit__(kind, error, trace))


class Producer(SyncClient[AsyncProducer]):
    """A producer: `with Producer("localhost:9876") as producer: producer.send("orders", b"hi")`. Threads may share it.

    Selectors, hooks and an `async def` on_check are called on the loop thread, a plain on_check in a thread of its own.
    """

    @takes(ProducerOptions, shown_defaults(ProducerConfig))
    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(lambda: AsyncProducer(namesrv, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
    def send(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> SendReceipt:
        """Send a message and return its receipt once it is stored."""
        return self._run(lambda client: client.send(topic, body, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
    def send_nowait(
        self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin to send, and return a future of `concurrent.futures`. The send waits for room in `max_in_flight`.

        Wrong options raise here; the future raises any other error.
        """
        check_send_options("send_nowait", options)
        thread = self._running()
        return thread.submit(self._client.send(topic, body, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
    def send_oneway(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> None:
        """Send a message without an answer or a retry. It may be lost."""
        self._run(lambda client: client.send_oneway(topic, body, **options))

    @takes(BatchOptions, meaning=BATCH_MEANING)
    def send_batch(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> list[SendReceipt]:
        """Send messages of one topic together, and return one receipt for each. A large batch is split."""
        return self._run(lambda client: client.send_batch(messages, **options))

    def flush(self) -> None:
        """Wait until every send that was begun has its answer."""
        self._run(_flushed)

    def cancel(self, receipt: SendReceipt) -> str:
        """Recall a delayed message that was not delivered yet, and return its id."""
        return self._run(lambda client: client.cancel(receipt))

    @takes(SendOptions, meaning=SEND_MEANING)
    def request(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> Message:
        """Send a message and return the reply of a consumer."""
        return self._run(lambda client: client.request(topic, body, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
    def transaction(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> Transaction:
        """Return a transaction for `with producer.transaction(...) as tx:`."""
        thread = self._running()
        return Transaction(thread.run, self._client.transaction(topic, body, **options))


async def _flushed(client: AsyncProducer) -> None:
    # Sends that send_nowait submitted from this thread begin in the next turn of the loop.
    await asyncio.sleep(0)
    await client.flush()
