"""`aerobee consume`: messages as a member of a consumer group, which remembers how far it got."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from aerobee.cli.messages import print_message
from aerobee.cli.output import DONE
from aerobee.cli.remote import options
from aerobee.cli.tls import tls_context
from aerobee.client.consumer import LitePullConsumer
from aerobee.model.queue import MessageQueue
from aerobee.runtime.signals import on_stop

_BATCH = 100
_POLL_S = 0.5


@click.command()
@options(
    click.option("-t", "--topic", required=True, help="The topic."),
    click.option("-g", "--group", required=True, help="The consumer group; its progress is kept."),
    click.option("--tag", "tags", default="*", show_default=True, help="Tags to take: A || B."),
    click.option("--sql", "sql92", help="A SQL92 filter on properties instead of tags."),
    click.option(
        "--from", "consume_from", type=click.Choice(["first", "last"]), default="first", show_default=True,
        help="Where a new group starts.",
    ),
    click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages."),
    click.option("--until-end", is_flag=True, help="Stop at what is the end now."),
)  # fmt: skip
def consume(namesrv: str, timeout_s: float, as_json: bool, topic: str, group: str, **asked: Any) -> int:
    """Print a topic's messages as a member of a group, and remember how far it got.

    A second run goes on where the first ended; two at the same time share the queues. Ctrl-C and SIGTERM stop it and
    save its progress.
    """
    tls = tls_context() or False
    consumer = LitePullConsumer(namesrv, group=group, consume_from=asked["consume_from"], tls=tls)
    consumer.subscribe(topic, tags=asked["tags"], sql92=asked["sql92"])
    got = asyncio.run(_consume(consumer, topic, as_json, asked["count"], asked["until_end"]))
    click.echo(f"{got} messages", err=True)
    return DONE


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
        # Raises where nobody answers or the topic does not exist: a consumer would wait for both.
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
    """Every queue of ours has reached the end it had at the start; queues of other members are theirs."""
    mine = consumer.assignment()
    return bool(mine) and all((consumer.position(queue) or 0) >= ends.get(queue, 0) for queue in mine)
