"""Handlers of users: how they are declared, called, and what their answer means."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aerobee.client.core import call_user_code
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.group import RETRY_DELAYS_MS
from aerobee.model.message import Message
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.listener")

# Takes a Message, or a list of them where batch is above 1; plain or async; returns None.
Handler = Callable[..., object]


class RetryLater(AerobeeError):  # noqa: N818 - what a handler says, not what went wrong
    """Raised by a handler: hand the message out again later.

    `delay_level` 1 to 18 is how much later (1s 5s 10s 30s 1m ... 2h); 0 leaves it to the broker, which waits longer
    each time. An ordered queue is halted that long, by RocketMQ's own levels; 0 halts it for the consumer's `suspend`.
    """

    def __init__(self, message: str = "retry later", *, delay_level: int = 0) -> None:
        super().__init__(message)
        if not 0 <= delay_level <= 18:
            raise InvalidArgumentError(f"delay_level={delay_level} is not 0 to 18")
        self.delay_level = delay_level


class DeadLetter(AerobeeError):  # noqa: N818 - see RetryLater
    """Raised by a handler: never hand the message out again; it goes to the group's dead letters (`%DLQ%group`)."""


class HandlerVerdict(enum.IntEnum):
    """What a handler's answer means; the values are RocketMQ's ConsumeReturnType, which traces carry."""

    DONE = 0
    EXCEPTION = 2
    WRONG_RETURN = 3
    RETRY = 4
    DEAD = 5


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    """A handler's answer."""

    verdict: HandlerVerdict
    delay_level: int = 0
    reason: str = ""

    @classmethod
    def dead_letter(cls, reason: str) -> HandlerOutcome:
        return cls(HandlerVerdict.DEAD, reason=reason)

    @classmethod
    def no_listener(cls) -> HandlerOutcome:
        """A retried message of a topic that is not listened to any more: somebody of the group may still be."""
        return cls(HandlerVerdict.RETRY, reason="no listener")

    @classmethod
    def too_long(cls) -> HandlerOutcome:
        """RocketMQ: ProcessQueue.cleanExpiredMsg uses level 3."""
        return cls(HandlerVerdict.RETRY, 3, "took too long")

    @property
    def done(self) -> bool:
        return self.verdict is HandlerVerdict.DONE

    @property
    def dead(self) -> bool:
        return self.verdict is HandlerVerdict.DEAD

    @property
    def send_back_level(self) -> int:
        """As brokers take it: below 0 is a dead letter."""
        return -1 if self.dead else self.delay_level

    def halt_s(self, usual_s: float) -> float:
        """How long an ordered queue waits. RocketMQ: ConsumeOrderlyContext.setSuspendCurrentQueueTimeMillis."""
        return RETRY_DELAYS_MS[self.delay_level - 1] / 1000 if self.delay_level > 0 else usual_s

    @property
    def trace_code(self) -> int:
        """ConsumeReturnType knows no dead letters."""
        return HandlerVerdict.RETRY if self.dead else self.verdict


DONE = HandlerOutcome(HandlerVerdict.DONE)


@dataclass(frozen=True, slots=True)
class TopicListener:
    """A handler and what it is for."""

    handler: Handler
    subscription: SubscriptionData
    ordered: bool = False
    batch: int = 1

    @property
    def name(self) -> str:
        return getattr(self.handler, "__qualname__", None) or type(self.handler).__name__

    async def call(self, messages: Sequence[Message], workers: Workers, stopping: Callable[[], bool]) -> HandlerOutcome:
        """The handler's answer; what it raises is part of it. A call that is cancelled while `stopping` has none and
        raises."""
        argument = list(messages) if self.batch > 1 else messages[0]
        result, error = await call_user_code(self.handler, argument, workers, stopping)
        if error is not None:
            return self._raised(error, messages)
        if result is not None:
            _log.error(
                "a handler must return None: done, or raise: again. Its messages will be handed out again",
                handler=self.name,
                returned=repr(result)[:100],
            )
            return HandlerOutcome(HandlerVerdict.WRONG_RETURN, reason=f"returned {type(result).__name__}")
        return DONE

    def _raised(self, error: BaseException, messages: Sequence[Message]) -> HandlerOutcome:
        if isinstance(error, RetryLater):
            _log.info("retry asked for", message=messages[0].message_id, reason=error.message)
            return HandlerOutcome(HandlerVerdict.RETRY, error.delay_level, error.message)
        if isinstance(error, DeadLetter):
            _log.warning("dead letter", message=messages[0].message_id, reason=error.message)
            return HandlerOutcome.dead_letter(error.message)
        _log.error(
            "a handler raised, its messages will be handed out again",
            handler=self.name,
            topic=messages[0].topic,
            message=messages[0].message_id,
            retries=messages[0].reconsume_times,
            exc_info=error,
        )
        return HandlerOutcome(HandlerVerdict.EXCEPTION, reason=f"{type(error).__name__}: {error}")
