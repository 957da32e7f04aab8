"""Answers that leave after their handler has returned: when something was read, stored, saved or said by a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.refusal import Refusal
from aerobee.errors import StoreError
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import Header
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.table import MetadataTable
from aerobee.store.steps import REST, Steps

T = TypeVar("T")
_STEPS_MAX = 100


class Saves(Protocol):
    """Tables that call back once everything changed so far is on disk."""

    def when_saved(self, done: Callable[[StoreError | None], None]) -> None: ...


class Confirming(Protocol):
    """Tables whose changes the replicas of a group confirm, if there are any."""

    is_alone: bool
    confirm: Callable[[Callable[[StoreError | None], None]], None]


def answer_later(channel: Channel, answer: Command, to: Command) -> None:
    """Send the answer, unless its client wants none or is gone."""
    if not to.is_oneway and not channel.closed:
        channel.send(answer)


def refuse_later(channel: Channel, to: Command, code: int, remark: str) -> None:
    """Send a refusal, unless its client wants no answer or is gone."""
    answer_later(channel, response(to, code, remark=remark), to)


def refused(command: Command, refusal: Refusal) -> Command:
    return response(command, refusal.code, remark=refusal.remark)


def when_saved(
    catalog: Saves,
    channel: Channel,
    command: Command,
    answer: Command | None = None,
    *,
    also: MetadataTable | None = None,
    then: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Answer an administrator once a restart would know the change. `also` is a table that changed with the catalog.

    `then` calls back when what else the answer promises is so.
    """
    done = answer if answer is not None else response(command)

    def saved(error: StoreError | None) -> None:
        if command.is_oneway:
            return
        if error is not None:
            channel.send(response(command, ResponseCode.SYSTEM_ERROR, remark=f"not saved: {error.message}"))
        elif then is not None:
            then(lambda: answer_later(channel, done, command))
        else:
            channel.send(done)

    def saved_also(error: OSError | StoreError | None) -> None:
        if error is None:
            catalog.when_saved(saved)
        else:
            saved(error if isinstance(error, StoreError) else StoreError(str(error)))

    if also is None:
        catalog.when_saved(saved)
    else:
        also.submit(saved_also)


def when_confirmed(
    catalog: Confirming, channel: Channel, command: Command, answer: Answer, *, also: MetadataTable | None = None
) -> Answer:
    """Return the answer to a change that is done; in a group of replicas, give it when they have the change.

    `also` is a table that was changed. Its change is answered when it is saved.
    """
    if catalog.is_alone and also is None:
        return answer

    def done(error: StoreError | None) -> None:
        if error is not None:
            answer_later(channel, response(command, ResponseCode.SYSTEM_ERROR, remark=error.message), command)
        elif isinstance(answer, Sliced):
            channel.work(command, answer)
        elif answer is not None:
            answer_later(channel, answer, command)

    def saved(error: OSError | StoreError | None) -> None:
        if error is None:
            catalog.confirm(done)
        else:
            done(StoreError(f"not saved: {error}"))

    if also is None:
        catalog.confirm(done)
    else:
        also.submit(saved)
    return None


def when_read(
    store: MessageStore,
    channel: Channel,
    command: Command,
    steps: Steps[T],
    answer: Callable[[T], Answer],
) -> None:
    """Run the steps through the reader thread, then answer with what `answer` returns, unless that is None.

    Later requests of the client wait meanwhile. The result can be large, so a connection has one at a time.
    """
    channel.begin_work()

    def done(outcome: T | StoreError) -> None:
        channel.end_work()
        if isinstance(outcome, StoreError):
            reply: Answer = response(command, ResponseCode.SYSTEM_ERROR, remark=outcome.message)
        else:
            reply = answer(outcome)
        if isinstance(reply, Sliced):
            channel.work(command, reply)
        elif reply is not None and not command.is_oneway:
            channel.send(reply)

    store.run(steps, done, channel.rest)


def encoded(command: Command, body: Body, header: Header | None = None) -> Sliced:
    """Return an answer whose body is written in slices."""

    def slices() -> Slices:
        return response(command, header=header, body=(yield from body.encode_slices()))

    return Sliced(slices())


def breath(number: int) -> Steps[None]:
    """Let the event loop turn after every hundredth step of a long read."""
    if number % _STEPS_MAX == _STEPS_MAX - 1:
        yield REST


def unless_busy(handler: Handler, flow: FlowControl, clock: Clock) -> Handler:
    """Return a handler of administrators that answers busy while the broker is."""

    def guarded(channel: Channel, command: Command) -> Answer:
        busy = flow.busy(Work.ADMIN, clock.monotonic())
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        return handler(channel, command)

    return guarded
