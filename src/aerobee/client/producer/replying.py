"""The answering side of request and reply: what `message.reply(body)` does. RocketMQ: MessageUtil."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator

from aerobee.client.core.clientcore import ClientCore
from aerobee.client.producer.request_reply import INNER_PRODUCER_GROUP, send_reply
from aerobee.client.producer.sender import Sender, SenderConfig
from aerobee.model.message import Message


class Replier:
    """Sends the replies of one consumer. Made on the loop it belongs to."""

    def __init__(self, core: ClientCore) -> None:
        self._sender = Sender(core, INNER_PRODUCER_GROUP, SenderConfig())
        self._loop = asyncio.get_running_loop()

    def topics(self) -> list[str]:
        """Reply topics used."""
        return self._sender.topics()

    def close(self) -> None:
        self._sender.close()

    def __call__(self, message: Message, body: bytes) -> Awaitable[object]:
        """On the loop: a coroutine. In a handler's thread: sent when this returns; to await it does nothing more."""
        sending = send_reply(self._sender, message, body)
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside:
            return sending
        return _Given(asyncio.run_coroutine_threadsafe(sending, self._loop).result())


class _Given:
    """A result that is there already, for who awaits it all the same."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[object, None, object]:
        return self._value
        yield
