"""The synchronous simple consumer. It has the names and arguments of the asyncio one.

with SimpleConsumer("localhost:9876", group="billing", subscribe={"orders": "*"}) as consumer:
    for message in consumer.receive(max_messages=16, invisible=30.0, wait=15.0):
        consumer.ack(message)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from aerobee.client.consumer import PoppedMessage, SimpleConsumerConfig, SimpleConsumerOptions
from aerobee.client.consumer import SimpleConsumer as AsyncSimpleConsumer
from aerobee.client.core import shown_defaults, takes
from aerobee.client.sync.client import SyncClient


class SimpleConsumer(SyncClient[AsyncSimpleConsumer]):
    """A consumer that is asked for messages, each for a time. Several threads may use it."""

    @takes(SimpleConsumerOptions, shown_defaults(SimpleConsumerConfig))
    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Mapping[str, str | Mapping[str, str]],
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        super().__init__(lambda: AsyncSimpleConsumer(namesrv, group=group, subscribe=subscribe, **options))

    def receive(self, max_messages: int = 16, invisible: float = 30.0, wait: float = 15.0) -> list[PoppedMessage]:
        """Return up to `max_messages`, as soon as there is one; none after `wait` seconds."""
        return self._run(lambda client: client.receive(max_messages, invisible, wait))

    def ack(self, message: PoppedMessage) -> None:
        """Say that a message is done: it never comes again."""
        self._run(lambda client: client.ack(message))

    def ack_all(self, messages: Sequence[PoppedMessage]) -> None:
        """Say that messages are done, by one request to each broker."""
        self._run(lambda client: client.ack_all(messages))

    def change_invisible(self, message: PoppedMessage, invisible: float) -> None:
        """Hide a message for `invisible` seconds from now on; 0 gives it back."""
        self._run(lambda client: client.change_invisible(message, invisible))
