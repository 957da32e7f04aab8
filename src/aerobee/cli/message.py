"""`aerobee message show|find|track`: finds messages."""

from __future__ import annotations

import click

from aerobee.admin import messages
from aerobee.admin.connection import AdminConnection
from aerobee.admin.messages import FoundMessages, GroupTrack
from aerobee.cli.messages import message_fields, message_line
from aerobee.cli.output import DONE, REFUSED, console, print_json, print_json_line, show_time, table, time_option
from aerobee.cli.remote import converse, options, say_problems
from aerobee.cli.replay import span_of
from aerobee.model.message import Message

_topic_option = click.option("-t", "--topic", required=True, help="The topic.")
_TRACKS = {
    "CONSUMED": "consumed",
    "CONSUMED_BUT_FILTERED": "filtered out",
    "NOT_CONSUME_YET": "not consumed yet",
    "NOT_ONLINE": "not online",
    "PULL": "pull consumer",
    "CONSUME_BROADCASTING": "broadcast",
}


@click.group()
def message() -> None:
    """Find messages by id, by key or by time."""


@message.command()
@click.argument("message_id", metavar="ID")
@options(click.option("-t", "--topic", help="The topic. It is needed to find a message by its unique id."))
def show(namesrv: str, timeout_s: float, as_json: bool, message_id: str, topic: str | None) -> int:
    """Show one message by its offset id, or by its unique id and topic."""
    found = converse(namesrv, timeout_s, lambda admin: messages.find_message(admin, message_id, topic=topic))
    fields = all_fields(found)
    if as_json:
        print_json(fields)
    else:
        _print_fields(fields)
    return DONE


def all_fields(found: Message) -> dict[str, object]:
    return {**message_fields(found, all_fields=True), "offset_id": found.offset_id}


def _print_fields(fields: dict[str, object]) -> None:
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        if name == "body":
            continue
        if isinstance(value, dict):
            text = " ".join(f"{key}={one}" for key, one in value.items()) or "-"
        else:
            text = show_time(value) if isinstance(value, int) and name.endswith("_timestamp") else str(value)
        click.echo(f"{name.ljust(width)}  {_printable(text) or '-'}")
    click.echo("\n" + _printable(str(fields["body"]), kept="\n\t"))


def _printable(text: str, kept: str = "") -> str:
    """Return the text without control characters, which could change the operator's terminal."""
    return "".join(one if one.isprintable() or one in kept else "." for one in text)


@message.command()
@options(
    click.option("--limit", type=click.IntRange(1, 10_000), default=64, show_default=True, help="At most this many."),
    click.option("--to", "--until", "end_ms", callback=time_option, metavar="TIME", help="Stored before this."),
    click.option("--from", "begin_ms", callback=time_option, metavar="TIME", help="Stored at this time or after."),
    click.option("--id", "message_id", metavar="ID", help="Find every copy with this unique id."),
    click.option("--key", help="Find messages with this key in the brokers' index."),
    _topic_option,
)
def find(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    topic: str,
    key: str | None,
    message_id: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
) -> int:
    """Find messages of a topic by key, by unique id or by time, oldest first.

    The exit code is 1 if there is none.
    """
    if key is not None and message_id is not None:
        raise click.UsageError("--key and --id exclude each other: choose one")
    if key is None and message_id is None and begin_ms is None and end_ms is None:
        raise click.UsageError("name what to look for: --key, --id, --from or --to")
    span = span_of(begin_ms, end_ms)

    async def ask(admin: AdminConnection) -> FoundMessages:
        if message_id is not None:
            return await messages.find_by_unique_id(admin, message_id, topic)
        times = {"begin_ms": span.begin_ms, "end_ms": span.end_ms, "limit": limit}
        if key is not None:
            return await messages.find_by_key(admin, topic, key, **times)
        return await messages.find_by_time(admin, topic, **times)

    found = converse(namesrv, timeout_s, ask)
    say_problems(found.problems)
    for one in found.messages:
        if as_json:
            print_json_line(all_fields(one))
        else:
            click.echo(f"{one.message_id}  {message_line(one)}")
    if not found.messages:
        click.echo(f"there is no such message in topic {topic}", err=True)
        return REFUSED
    return DONE


@message.command()
@click.argument("message_id", metavar="ID")
@options(_topic_option)
def track(namesrv: str, timeout_s: float, as_json: bool, message_id: str, topic: str) -> int:
    """Show which groups have consumed a message, will still get it, or gave it up."""

    async def ask(admin: AdminConnection) -> tuple[Message, tuple[GroupTrack, ...]]:
        found = await messages.find_message(admin, message_id, topic=topic)
        return found, await messages.track_message(admin, found)

    found, tracks = converse(namesrv, timeout_s, ask)
    if as_json:
        print_json({"message": all_fields(found), "groups": [one.to_json() for one in tracks]})
        return DONE
    click.echo(message_line(found))
    if not tracks:
        click.echo("no group consumes the topic")
        return DONE
    numbers = ("members", "group's offset", "message's offset", "retries")
    rows = table(
        "", "group", "state", "members", "group's offset", "message's offset", "retries", "dead", right=numbers
    )
    for one in tracks:
        rows.add_row(
            one.group, _state(one), str(one.members), "-" if one.consumer_offset is None else str(one.consumer_offset),
            str(found.queue_offset), str(one.retries), "yes" if one.dead_letter else "no",
        )  # fmt: skip
    console().print(rows)
    return DONE


def _state(one: GroupTrack) -> str:
    text = _TRACKS.get(one.track, one.track.lower())
    if one.track in ("NOT_ONLINE", "PULL"):
        text += ", offset beyond it" if one.passed else ", offset before it" if one.passed is not None else ""
    return text
