"""`aerobee consume`: prints messages as a member of a consumer group."""

from __future__ import annotations

import asyncio
from typing import Literal, TypedDict, Unpack

import click

from aerobee.cli.connecting import tls_context
from aerobee.cli.messages import print_message
from aerobee.cli.output import DONE
from aerobee.cli.remote import converse, ending, options, say_problems
from aerobee.client.consumer import LitePullConsumer
from aerobee.model.queue import MessageQueue
from aerobee.runtime.signals import on_stop

_BATCH = 100
_POLL_S = 0.5


class _Asked(TypedDict):
    """The options beside topic and group."""

    tags: str
    sql92: str | None
    consume_from: Literal["first", "last"]
    count: int | None
    until_end: bool


@click.command()
@options(
    click.option("--until-end", is_flag=True, help="Stop at the last message that is there at the start."),
    click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages."),
    click.option(
        "--from", "consume_from", type=click.Choice(["first", "last"]), default="first", show_default=True,
        help="Where a new group begins.",
    ),
    click.option("--sql", "sql92", help="A SQL92 filter on properties, instead of tags."),
    click.option("--tag", "tags", default="*", show_default=True, help="Tags to consume, such as A || B."),
    click.option("-g", "--group", required=True, help="The consumer group. Its progress is saved."),
    click.option("-t", "--topic", required=True, help="The topic."),
)  # fmt: skip
def consume(namesrv: str, timeout_s: float, as_json: bool, topic: str, group: str, **asked: Unpack[_Asked]) -> int:
    """Print the messages of a topic as a member of a consumer group, and save the progress.

    A second run continues where the first ended. Two runs at the same time share the queues. Ctrl-C and SIGTERM stop
    the command and save its progress.
    """
    tls = tls_context() or False
    consumer = LitePullConsumer(namesrv, group=group, consume_from=asked["consume_from"], tls=tls)
    consumer.subscribe(topic, tags=asked["tags"], sql92=asked["sql92"])
    missing = converse(namesrv, timeout_s, lambda admin: admin.missing_from(topic))
    say_problems(missing)
    got = asyncio.run(_consume(consumer, topic, as_json, asked["count"], asked["until_end"]))
    click.echo(f"{got} messages", err=True)
    return ending(missing) if asked["until_end"] else DONE


async def _consume(consumer: LitePullConsumer, topic: str, as_json: bool, count: int | None, until_end: bool) -> int:
    stop = asyncio.Event()
    restore = on_stop(asyncio.get_running_loop(), stop.set, interrupt=False)
    try:
        return await _until(stop, consumer, topic, as_json, count, until_end)
    finally:
        restore()


async def _until(
    stop: asyncio.Event, consumer: LitePullConsumer, topic: str, as_json: bool, count: int | None, until_end: bool
) -> int:
    got = 0
    async with consumer:
        # This raises an error if no server answers or the topic does not exist. A consumer would wait for both.
        queues = await consumer.queues(topic)
        ends: dict[MessageQueue, int] = {}
        if until_end:
            ends = {queue: await consumer.end_offset(queue) for queue in queues}
        while (count is None or got < count) and not stop.is_set():
            limit = _BATCH if count is None else min(_BATCH, count - got)
            for message in await consumer.poll(limit, timeout=_POLL_S):
                print_message(message, as_json)
                got += 1
            if until_end and _at_end(consumer, ends):
                break
        await consumer.commit()
    return got


def _at_end(consumer: LitePullConsumer, ends: dict[MessageQueue, int]) -> bool:
    """Return whether every queue of this member has reached the end that it had at the start."""
    mine = consumer.assignment()
    return bool(mine) and all((consumer.position(queue) or 0) >= ends.get(queue, 0) for queue in mine)
