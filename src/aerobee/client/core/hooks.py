"""Hooks of the client: calls around sends, around handlers, and where messages are handed out.

A client has the hooks that its options name, and those that were added for the whole process before it was made, as
instrumentation does (`aerobee.otel`). A client without hooks asks nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from aerobee.client.core.receipt import SendReceipt
from aerobee.errors import InvalidArgumentError
from aerobee.model import sysproperties as names
from aerobee.model.message import Message
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.hooks")


@dataclass(slots=True)
class SendContext:
    """What a hook is given. `receipt` or `error` is set when the hook is called after the send.

    What `before_send` puts into `added` is sent with the message as properties, except names that the user has set.
    """

    message: Message
    group: str
    receipt: SendReceipt | None = None
    error: BaseException | None = None
    client_id: str = ""
    namespace: str = ""
    # How many messages are sent together; 0 where the message is sent alone.
    batch: int = 0
    added: dict[str, str] = field(default_factory=dict)

    def added_text(self) -> str:
        """Return the added properties as they are sent. Raise InvalidArgumentError for names or values that cannot."""
        own = {name: value for name, value in self.added.items() if name not in self.message.properties}
        if not own:
            return ""
        names.require_user_properties(own)
        if any("\x02" in value for value in own.values()):
            raise InvalidArgumentError("a property that a hook added holds a separator character (0x02)")
        return "".join(f"{name}\x01{value}\x02" for name, value in own.items())


class SendHook(Protocol):
    """A hook around every send. What `before_send` raises refuses the send; what `after_send` raises is logged."""

    def before_send(self, context: SendContext) -> None: ...
    def after_send(self, context: SendContext) -> None: ...


@dataclass(slots=True)
class ConsumeContext:
    """What hooks of consumers are given. `verdict` is set after the handler: done, retry or dead_letter."""

    messages: Sequence[Message]
    group: str
    client_id: str = ""
    namespace: str = ""
    broadcast: bool = False
    verdict: str = ""
    # Why the messages are not done, in words.
    reason: str = ""


class ConsumeHook(Protocol):
    """A hook around every call of a handler, in the task that calls it. What it raises is logged."""

    def before_consume(self, context: ConsumeContext) -> None: ...
    def after_consume(self, context: ConsumeContext) -> None: ...


class ReceiveHook(Protocol):
    """A hook where a consumer without handlers hands messages out. What it raises is logged."""

    def received(self, context: ConsumeContext, seconds: float) -> None:
        """Learn of messages that are handed out now, after so many seconds of waiting."""


# The hooks of the whole process.
SEND_HOOKS: Final[list[SendHook]] = []
CONSUME_HOOKS: Final[list[ConsumeHook]] = []
RECEIVE_HOOKS: Final[list[ReceiveHook]] = []


def before_consume(hooks: Sequence[ConsumeHook], context: ConsumeContext) -> None:
    """Call the hooks before a handler."""
    for hook in hooks:
        try:
            hook.before_consume(context)
        except Exception as error:  # noqa: BLE001 - a hook must not change what is consumed
            _log.error("before_consume raised", hook=type(hook).__name__, exc_info=error)


def after_consume(hooks: Sequence[ConsumeHook], context: ConsumeContext) -> None:
    """Call the hooks after a handler, the last one first."""
    for hook in reversed(hooks):
        try:
            hook.after_consume(context)
        except Exception as error:  # noqa: BLE001 - see above
            _log.error("after_consume raised", hook=type(hook).__name__, exc_info=error)


def received(hooks: Sequence[ReceiveHook], context: ConsumeContext, seconds: float) -> None:
    """Call the hooks for messages that are handed out."""
    for hook in hooks:
        try:
            hook.received(context, seconds)
        except Exception as error:  # noqa: BLE001 - see above
            _log.error("received raised", hook=type(hook).__name__, exc_info=error)
