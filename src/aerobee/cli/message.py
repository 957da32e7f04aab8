"""`aerobee message show|find|track|trace`: finds messages."""

from __future__ import annotations

import click

from aerobee.admin import messages
from aerobee.admin.connection import AdminConnection
from aerobee.admin.messages import FoundMessages, GroupTrack, find_at
from aerobee.admin.trace import TRACE_TOPIC, MessageTrace, trace_of
from aerobee.cli.messages import message_fields, message_line
from aerobee.cli.output import DONE, REFUSED, console, print_json, print_json_line, show_time, table, time_option
from aerobee.cli.remote import converse, ending, options, say_problems
from aerobee.cli.replay import span_of
from aerobee.model.message import Message, unfolded

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
@click.argument("message_id", metavar="[ID]", required=False)
@options(
    click.option("--offset", type=click.IntRange(min=0), help="Its place in that queue."),
    click.option("--queue", "queue_id", type=click.IntRange(min=0), help="The queue, where no ID is given."),
    click.option("-b", "--broker", help="The broker of the queue, by name, where the topic is on several."),
    click.option("-t", "--topic", help="The topic. It is needed to find a message by its unique id, or by its place."),
)
def show(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    message_id: str | None,
    topic: str | None,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
) -> int:
    """Show one message: by its offset id, by its unique id and topic, or by topic, queue and offset."""
    if message_id is not None and (queue_id is not None or offset is not None):
        raise click.UsageError("give an ID, or -t with --queue and --offset")

    async def ask(admin: AdminConnection) -> Message:
        if message_id is not None:
            return await messages.find_message(admin, message_id, topic=topic)
        if topic is None or queue_id is None or offset is None:
            raise click.UsageError("give an ID, or -t with --queue and --offset")
        return await find_at(admin, topic, queue_id, offset, broker=broker)

    found = converse(namesrv, timeout_s, ask)
    fields = all_fields(found)
    if as_json:
        print_json(fields)
    else:
        _print_fields(fields)
    return DONE


def all_fields(found: Message) -> dict[str, object]:
    return {**message_fields(unfolded(found), all_fields=True), "offset_id": found.offset_id}


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
            return await messages.find_by_unique_id(admin, message_id, topic, unfold=False)
        times = {"begin_ms": span.begin_ms, "end_ms": span.end_ms, "limit": limit}
        if key is not None:
            return await messages.find_by_key(admin, topic, key, **times, unfold=False)
        return await messages.find_by_time(admin, topic, **times, unfold=False)

    found = converse(namesrv, timeout_s, ask)
    say_problems(found.problems)
    for one in found.messages:
        if as_json:
            print_json_line(all_fields(one))
        else:
            click.echo(f"{one.message_id}  {message_line(one)}")
    if not found.messages:
        where = "in what could be asked" if found.problems else f"in topic {topic}"
        click.echo(f"there is no such message {where}", err=True)
        return ending(found.problems) or REFUSED
    return ending(found.problems)


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


@message.command()
@click.argument("key", metavar="ID")
@options(
    click.option("--limit", type=click.IntRange(1, 10_000), default=64, show_default=True, help="Trace messages read."),
    click.option("--to", "--until", "end_ms", callback=time_option, metavar="TIME", help="Traces stored before this."),
    click.option(
        "--from", "begin_ms", callback=time_option, metavar="TIME", help="Traces stored at this time or after."
    ),
    click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="The topic of the traces."),
    click.option("--key", "by_key", is_flag=True, help="ID is a key of the message, not its unique id."),
)
def trace(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    key: str,
    by_key: bool,
    trace_topic: str,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
) -> int:
    """Show what clients wrote about a message: who sent it, who received it, when, and how long that took.

    Clients write traces if tracing is on. The exit code is 1 if there is none.
    """
    span = span_of(begin_ms, end_ms)
    times = {"begin_ms": span.begin_ms, "end_ms": span.end_ms, "limit": limit}
    found = converse(namesrv, timeout_s, lambda admin: trace_of(admin, key, topic=trace_topic, by_key=by_key, **times))
    say_problems(found.problems)
    if as_json:
        print_json(found.to_json())
    elif found.events:
        _print_trace(found)
    if not found.events:
        click.echo(f"there is no trace of {key} in {trace_topic}: are traces turned on in the clients?", err=True)
        return ending(found.problems) or REFUSED
    return ending(found.problems)


_EVENTS = {
    "Pub": "sent",
    "SubBefore": "received",
    "SubAfter": "processed",
    "EndTransaction": "decided",
    "Recall": "recalled",
}


def _print_trace(found: MessageTrace) -> None:
    rows = table("", "time", "event", "group", "client", "ms", "outcome", "message", right=("ms",))
    for one in found.events:
        outcome = one.transaction_state or ("-" if one.success is None else "done" if one.success else "failed")
        cost = str(one.cost_ms) if one.kind in ("Pub", "SubAfter") else "-"
        event = _EVENTS.get(one.kind, one.kind) + (f", retry {one.retries}" if one.retries else "")
        rows.add_row(
            show_time(one.time_ms),
            event,
            *map(_printable, (one.group, one.host)),
            cost,
            outcome,
            _printable(one.message_id),
        )
    console().print(rows)
