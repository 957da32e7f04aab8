"""`aerobee tail`: prints the messages that arrive at a topic, without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal, TypedDict, Unpack

import click

from aerobee.admin import pops
from aerobee.admin.messages import READER_GROUP
from aerobee.cli.connecting import tls_context
from aerobee.cli.messages import print_message
from aerobee.cli.output import console, print_json, show_time, table
from aerobee.cli.remote import converse, ending, options, say_problems
from aerobee.client.consumer import LitePullConsumer, PullResult
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue

_BATCH = 32
_WAIT_S = 15.0


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

    With --in-flight it prints instead what members of groups that pop hold of the topic, and ends.
    """
    if held["group"] is not None and not held["in_flight"]:
        raise click.UsageError("-g goes with --in-flight")
    if held["in_flight"]:
        return _show_in_flight(namesrv, timeout_s, topic, held["group"] or "", as_json)
    missing = converse(namesrv, timeout_s, lambda admin: admin.missing_from(topic))
    say_problems(missing)
    asyncio.run(_Tail(namesrv, topic, (tags, sql92), count, as_json).run(last, until_end))
    return ending(missing)


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
    """Follows every queue of a topic with a task that waits in a long poll."""

    def __init__(
        self, namesrv: str, topic: str, wanted: tuple[str, str | None], count: int | None, as_json: bool
    ) -> None:
        self._consumer = LitePullConsumer(namesrv, group=READER_GROUP, auto_commit=False, tls=tls_context() or False)
        self._topic = topic
        self._wanted = wanted
        self._left = count
        self._as_json = as_json
        self._enough = asyncio.Event()

    async def run(self, last: int, until_end: bool) -> None:
        async with self._consumer as consumer:
            queues = await consumer.queues(self._topic)
            ends = {queue: await consumer.end_offset(queue) for queue in queues}
            begins = {queue: await consumer.begin_offset(queue) for queue in queues}
            starts = await self._last(last, begins, ends)
            follows = [
                asyncio.create_task(self._follow(queue, starts[queue], ends[queue] if until_end else None))
                for queue in queues
            ]
            enough = asyncio.create_task(self._enough.wait())
            try:
                await self._until_over(follows, enough)
            finally:
                for task in (*follows, enough):
                    task.cancel()
                await asyncio.gather(*follows, enough, return_exceptions=True)

    @staticmethod
    async def _until_over(follows: Iterable[asyncio.Task[None]], enough: asyncio.Task[Literal[True]]) -> None:
        """Wait until enough was printed or every queue reached its end. Raise the error of a failed queue."""
        pending = set(follows)
        while pending and not enough.done():
            done, _ = await asyncio.wait({enough, *pending}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending & done:
                task.result()
            pending -= done

    async def _last(
        self, last: int, begins: dict[MessageQueue, int], ends: dict[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Print the newest `last` messages of all queues, oldest first. Return the next offset of each queue."""
        found = []
        for queue, end in ends.items():
            offset = max(begins[queue], end - last)
            while offset < end:
                pulled = await self._pull(queue, offset, 0.0)
                found += pulled.messages
                if pulled.next_offset <= offset:
                    break
                offset = pulled.next_offset
        found.sort(key=lambda one: (one.store_timestamp, one.broker, one.queue_id, one.queue_offset))
        for message in found[-last:] if last else []:
            self._print(message)
        return ends

    async def _follow(self, queue: MessageQueue, offset: int, end: int | None) -> None:
        while end is None or offset < end:
            pulled = await self._pull(queue, offset, _WAIT_S)
            for message in pulled.messages:
                self._print(message)
            offset = pulled.next_offset

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
