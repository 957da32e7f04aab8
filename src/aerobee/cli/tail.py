"""`aerobee tail`: prints the messages that arrive at a topic, without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Literal, TypedDict, Unpack

import click

from aerobee.admin import pops
from aerobee.admin.messages import READER_GROUP
from aerobee.cli.connecting import tls_context
from aerobee.cli.messages import print_message
from aerobee.cli.output import console, print_json, show_time, table
from aerobee.cli.remote import converse, ending, options, say_problems
from aerobee.client.consumer import LitePullConsumer, PullResult
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import FlowControlError, NotLeaderError, ServiceNotAvailableError, SystemBusyError
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.runtime.clock import SystemClock

_BATCH = 32
_WAIT_S = 5.0
# How soon a broker that did not answer is asked again.
_AGAIN_S = 1.0
# What a broker that hangs, starts or stops brings about. Another error ends the command.
_NO_ANSWER = (TransportError, ServiceNotAvailableError, SystemBusyError, FlowControlError, NotLeaderError)


class _Held(TypedDict):
    """The options that ask for what is in flight."""

    group: str | None
    in_flight: bool


@click.command()
@options(
    click.option("--in-flight", is_flag=True, help="Print what consumers by POP hold, and when others get it."),
    click.option("-g", "--group", "group", help="With --in-flight: only this group."),
    click.option("--until-end", is_flag=True, help="Stop at the last message that is there at the start."),
    click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages."),
    click.option("--sql", "sql92", help="A SQL92 filter on properties, instead of tags."),
    click.option("--tag", "tags", default="*", show_default=True, help="Tags to show, such as A || B."),
    click.option(
        "--last",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        help="Begin with this many of the newest messages.",
    ),
    click.option("-t", "--topic", required=True, help="The topic."),
)
def tail(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    topic: str,
    last: int,
    tags: str,
    sql92: str | None,
    count: int | None,
    until_end: bool,
    **held: Unpack[_Held],
) -> int:
    """Print messages as they arrive, like `tail -f`. No group is created and no progress is saved. Ctrl-C stops it.

    A broker that does not answer is named on stderr, and the others are followed. Its messages come once it answers;
    with --until-end they are left out, and the exit code is 3.

    With --in-flight it prints instead what members of groups that pop hold of the topic, and ends.
    """
    if held["group"] is not None and not held["in_flight"]:
        raise click.UsageError("-g goes with --in-flight")
    if held["in_flight"]:
        return _show_in_flight(namesrv, timeout_s, topic, held["group"] or "", as_json)
    missing = converse(namesrv, timeout_s, lambda admin: admin.missing_from(topic))
    say_problems(missing)
    silent = asyncio.run(_Tail(namesrv, topic, (tags, sql92), count, as_json).run(last, until_end))
    return ending((*missing, *silent))


def _show_in_flight(namesrv: str, timeout_s: float, topic: str, group: str, as_json: bool) -> int:
    found = converse(namesrv, timeout_s, lambda admin: pops.in_flight(admin, topic=topic, group=group))
    if as_json:
        print_json(found.to_json())
        return ending(found.problems)
    say_problems(found.problems)
    held = [queue for queue in found.queues if queue.in_flight]
    if not held:
        click.echo(f"nothing of topic {topic} is in flight")
        return ending(found.problems)
    rows = table("", "group", "topic", "broker", "queue", "offset", "popped", "comes back", right=("queue", "offset"))
    for queue in held:
        for message in queue.messages:
            rows.add_row(
                queue.group, queue.topic, queue.broker, str(queue.queue_id), str(message.queue_offset),
                show_time(message.pop_timestamp), show_time(message.visible_timestamp),
            )  # fmt: skip
    out = console()
    out.print(rows)
    out.print(f"\n{found.in_flight} in flight")
    return ending(found.problems)


class _Tail:
    """Follows every queue of a topic with a task that waits in a long poll.

    A broker that does not answer is named on stderr. The others are followed meanwhile, and it is asked again.
    """

    def __init__(
        self, namesrv: str, topic: str, wanted: tuple[str, str | None], count: int | None, as_json: bool
    ) -> None:
        self._consumer = LitePullConsumer(namesrv, group=READER_GROUP, auto_commit=False, tls=tls_context() or False)
        self._topic = topic
        self._wanted = wanted
        self._left = count
        self._as_json = as_json
        self._enough = asyncio.Event()
        # The queues whose last request was not answered.
        self._silent: set[MessageQueue] = set()
        self._began_ms = SystemClock().now_ms()

    async def run(self, last: int, until_end: bool) -> list[str]:
        """Print messages until the end. Return the names of the brokers that are silent then."""
        async with self._consumer as consumer:
            queues = await consumer.queues(self._topic)
            spans = await self._spans(queues)
            await self._last(last, spans)
            ends = {queue: span.stop for queue, span in spans.items()}
            follows = [
                asyncio.create_task(self._follow(queue, ends.get(queue), ends[queue] if until_end else None))
                for queue in queues
                if queue in ends or not until_end
            ]
            enough = asyncio.create_task(self._enough.wait())
            try:
                await self._until_over(follows, enough)
            finally:
                for task in (*follows, enough):
                    task.cancel()
                await asyncio.gather(*follows, enough, return_exceptions=True)
        return sorted({queue.broker_name for queue in self._silent})

    @staticmethod
    async def _until_over(follows: Iterable[asyncio.Task[None]], enough: asyncio.Task[Literal[True]]) -> None:
        """Wait until enough was printed or every queue reached its end. Raise the error of a failed queue."""
        pending = set(follows)
        while pending and not enough.done():
            done, _ = await asyncio.wait({enough, *pending}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending & done:
                task.result()
            pending -= done

    async def _spans(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, range]:
        """Return the offsets of the queues whose brokers answer. Raise the error if none answers."""
        asked = await asyncio.gather(*map(self._span, queues))
        spans = {queue: span for queue, span in zip(queues, asked, strict=True) if isinstance(span, range)}
        for queue, span in zip(queues, asked, strict=True):
            if not isinstance(span, range):
                if not spans:
                    raise span
                self._lost(queue, span)
        return spans

    async def _span(self, queue: MessageQueue) -> range | AerobeeError:
        try:
            return range(await self._consumer.begin_offset(queue), await self._consumer.end_offset(queue))
        except _NO_ANSWER as error:
            return error

    async def _last(self, last: int, spans: dict[MessageQueue, range]) -> None:
        """Print the newest `last` messages of all queues, oldest first."""
        found = []
        for queue, span in spans.items():
            offset = max(span.start, span.stop - last)
            while offset < span.stop and not self._is_silent(queue.broker_name):
                try:
                    pulled = await self._pull(queue, offset, 0.0)
                except _NO_ANSWER as error:
                    self._lost(queue, error)
                    break
                found += pulled.messages
                if pulled.next_offset <= offset:
                    break
                offset = pulled.next_offset
        found.sort(key=lambda one: (one.store_timestamp, one.broker, one.queue_id, one.queue_offset))
        for message in found[-last:] if last else []:
            self._print(message)

    async def _follow(self, queue: MessageQueue, offset: int | None, end: int | None) -> None:
        """Print what arrives at a queue from an offset, or from the start of the command, up to an end."""
        while offset is None or end is None or offset < end:
            try:
                if offset is None:
                    offset = await self._consumer.offset_at(queue, self._began_ms)
                pulled = await self._pull(queue, offset, _WAIT_S)
            except _NO_ANSWER as error:
                self._lost(queue, error)
                if end is not None:
                    return
                await asyncio.sleep(_AGAIN_S)
                continue
            self._found(queue)
            for message in pulled.messages:
                self._print(message)
            offset = pulled.next_offset

    def _lost(self, queue: MessageQueue, error: AerobeeError) -> None:
        is_known = self._is_silent(queue.broker_name)
        self._silent.add(queue)
        if not is_known:
            say_problems([f"what {queue.broker_name} holds is missing until it answers: {error}"])

    def _found(self, queue: MessageQueue) -> None:
        if queue in self._silent:
            self._silent.discard(queue)
            if not self._is_silent(queue.broker_name):
                click.echo(f"{queue.broker_name} answers again", err=True)

    def _is_silent(self, broker_name: str) -> bool:
        return any(queue.broker_name == broker_name for queue in self._silent)

    async def _pull(self, queue: MessageQueue, offset: int, wait_s: float) -> PullResult:
        tags, sql92 = self._wanted
        return await self._consumer.pull(queue, offset, max=_BATCH, tags=tags, sql92=sql92, wait=wait_s, unfold=False)

    def _print(self, message: Message) -> None:
        if self._left == 0:
            return
        print_message(message, self._as_json)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._enough.set()
