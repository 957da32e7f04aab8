"""Handlers of users: how they are declared and called, and what their answers mean."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aerobee.client.core import ConsumeContext, ConsumeHook, after_consume, before_consume, call_user_code
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.group import RETRY_DELAYS_MS
from aerobee.model.message import Message
from aerobee.model.numbers import INT32_MAX
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.listener")

# A function, plain or async, of a Message, or of a list of messages where batch is above 1. It returns None.
Handler = Callable[..., object]


class RetryLater(AerobeeError):  # noqa: N818 - what a handler says, not what went wrong
    """The exception that a handler raises to get its message again later.

    `delay_level` says how much later: RocketMQ has the levels 1 to 18 (1s 5s 10s 30s 1m ... 2h), and a broker can be
    configured with more (`messageDelayLevel`). A broker with fewer levels takes its highest one. Level 0 leaves the
    delay to the broker, which waits longer each time.

    An ordered queue stands still that long. The consumer counts by RocketMQ's 18 levels there, and a higher level is as
    long as the last one; level 0 stands still for the `suspend` of the consumer.
    """

    def __init__(self, message: str = "retry later", *, delay_level: int = 0) -> None:
        super().__init__(message)
        if not 0 <= delay_level <= INT32_MAX:
            raise InvalidArgumentError(f"delay_level={delay_level} is not a level: 0, or 1 for the first one")
        self.delay_level = delay_level


class DeadLetter(AerobeeError):  # noqa: N818 - see RetryLater
    """The exception that a handler raises to move its message to the dead letters of the group (`%DLQ%group`)."""


class HandlerVerdict(enum.IntEnum):
    """What a handler's answer means. The values are RocketMQ's ConsumeReturnType, which traces carry."""

    DONE = 0
    EXCEPTION = 2
    WRONG_RETURN = 3
    RETRY = 4
    DEAD = 5


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    """The answer of a handler."""

    verdict: HandlerVerdict
    delay_level: int = 0
    reason: str = ""

    @classmethod
    def dead_letter(cls, reason: str) -> HandlerOutcome:
        return cls(HandlerVerdict.DEAD, reason=reason)

    @classmethod
    def no_listener(cls) -> HandlerOutcome:
        """Return the outcome for a retried message whose topic has no listener here: another member may have one."""
        return cls(HandlerVerdict.RETRY, reason="no listener")

    @classmethod
    def too_long(cls) -> HandlerOutcome:
        """Return the outcome for a message held too long. RocketMQ: ProcessQueue.cleanExpiredMsg uses level 3."""
        return cls(HandlerVerdict.RETRY, 3, "took too long")

    @property
    def done(self) -> bool:
        return self.verdict is HandlerVerdict.DONE

    @property
    def dead(self) -> bool:
        return self.verdict is HandlerVerdict.DEAD

    @property
    def send_back_level(self) -> int:
        """The delay level as brokers take it. Below 0 it is a dead letter."""
        return -1 if self.dead else self.delay_level

    def halt_s(self, usual_s: float) -> float:
        """Return how long an ordered queue waits. RocketMQ: ConsumeOrderlyContext.setSuspendCurrentQueueTimeMillis."""
        if self.delay_level <= 0:
            return usual_s
        return RETRY_DELAYS_MS[min(self.delay_level, len(RETRY_DELAYS_MS)) - 1] / 1000

    @property
    def trace_code(self) -> int:
        """The value for traces. ConsumeReturnType has none for dead letters."""
        return HandlerVerdict.RETRY if self.dead else self.verdict


DONE = HandlerOutcome(HandlerVerdict.DONE)


@dataclass(frozen=True, slots=True)
class TopicListener:
    """The handler of a topic."""

    handler: Handler
    subscription: SubscriptionData
    ordered: bool = False
    batch: int = 1
    hooks: tuple[ConsumeHook, ...] = ()
    # What hooks are told of the consumer, for each call; None where there are no hooks.
    told: Callable[[Sequence[Message]], ConsumeContext] | None = None

    @property
    def name(self) -> str:
        return getattr(self.handler, "__qualname__", None) or type(self.handler).__name__

    async def call(self, messages: Sequence[Message], workers: Workers, stopping: Callable[[], bool]) -> HandlerOutcome:
        """Call the handler and return its answer, also where it raises. Cancelling it while `stopping` raises."""
        if self.told is None or not self.hooks:
            return await self._called(messages, workers, stopping)
        context = self.told(messages)
        before_consume(self.hooks, context)
        try:
            outcome = await self._called(messages, workers, stopping)
            context.verdict = "done" if outcome.done else "dead_letter" if outcome.dead else "retry"
            context.reason = outcome.reason
            return outcome
        except BaseException as error:
            context.verdict, context.reason = "retry", type(error).__name__
            raise
        finally:
            after_consume(self.hooks, context)

    async def _called(
        self, messages: Sequence[Message], workers: Workers, stopping: Callable[[], bool]
    ) -> HandlerOutcome:
        argument = list(messages) if self.batch > 1 else messages[0]
        result, error = await call_user_code(self.handler, argument, workers, stopping)
        if error is not None:
            return self._raised(error, messages)
        if result is not None:
            _log.error(
                "a handler must return None or raise; its messages will be handed out again",
                handler=self.name,
                returned=repr(result)[:100],
            )
            return HandlerOutcome(HandlerVerdict.WRONG_RETURN, reason=f"returned {type(result).__name__}")
        return DONE

    def _raised(self, error: BaseException, messages: Sequence[Message]) -> HandlerOutcome:
        if isinstance(error, RetryLater):
            _log.info("a handler asked for a retry", message=messages[0].message_id, reason=error.message)
            return HandlerOutcome(HandlerVerdict.RETRY, error.delay_level, error.message)
        if isinstance(error, DeadLetter):
            _log.warning("a handler made a dead letter", message=messages[0].message_id, reason=error.message)
            return HandlerOutcome.dead_letter(error.message)
        _log.error(
            "a handler raised; its messages will be handed out again",
            handler=self.name,
            topic=messages[0].topic,
            message=messages[0].message_id,
            retries=messages[0].reconsume_times,
            exc_info=error,
        )
        return HandlerOutcome(HandlerVerdict.EXCEPTION, reason=f"{type(error).__name__}: {error}")
