"""The synchronous face: the same names and arguments for scripts and notebooks, on a loop thread of its own.

Works where another loop already runs (Jupyter). After a fork the child makes itself a new client with the same
arguments. `SyncClient` is what every synchronous client is built on.
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

    @takes(SendOptions, meaning=SEND_MEANING)
    def send(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> SendReceipt:
        """Stored when this returns."""
        return self._run(lambda client: client.send(topic, body, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
    def send_nowait(
        self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin to send; the future belongs to `concurrent.futures`. Waits for room in `max_in_flight`. What the
        options cannot mean raises here, what else cannot be sent in the future."""
        check_send_options("send_nowait", options)
        thread = self._running()
        return thread.submit(self._client.send(topic, body, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
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

    @takes(SendOptions, meaning=SEND_MEANING)
    def request(self, topic: str | Message, body: Body | None = None, **options: Unpack[SendOptions]) -> Message:
        """Send, and wait for a consumer's reply."""
        return self._run(lambda client: client.request(topic, body, **options))

    @takes(SendOptions, meaning=SEND_MEANING)
    def transaction(self, topic: str, body: Body, **options: Unpack[SendOptions]) -> Transaction:
        """`with producer.transaction(...) as tx:`."""
        thread = self._running()
        return Transaction(thread.run, self._client.transaction(topic, body, **options))


async def _flushed(client: AsyncProducer) -> None:
    # What send_nowait submitted from this thread begins in the loop's next turn.
    await asyncio.sleep(0)
    await client.flush()
