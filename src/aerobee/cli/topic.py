"""`aerobee topic list|show|create|update|delete|route|forward`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Unpack

import click

from aerobee.admin import replay, topics
from aerobee.admin.connection import AdminConnection
from aerobee.admin.pending import Pending
from aerobee.admin.topics import TopicChange, TopicDetails, TopicSettings
from aerobee.cli.changing import asked_first, run_change, say_deleted, say_made
from aerobee.cli.output import DONE, console, print_json, show_time, table
from aerobee.cli.remote import (
    Scope,
    attribute_option,
    broker_option,
    cluster_option,
    converse,
    dry_run_option,
    ending,
    on_off,
    options,
    perm_of,
    say_problems,
    words,
    yes_option,
)
from aerobee.cli.replay import count_bar, rate_option, say_copied, target_option
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.topic import perm_text

RETENTION: Final = "reserve.time"


def _hours_of(context: click.Context, option: click.Parameter, value: str | None) -> dict[str, str]:
    """Return the change of attributes that a retention means: whole hours, or `off`."""
    if value is None:
        return {}
    if value.lower() == "off":
        return {f"+{RETENTION}": "-1"}
    hours = int_or(value.lower().removesuffix("h"), None, 1, INT32_MAX)
    if hours is None:
        raise click.BadParameter(f"{value!r} is neither off nor a whole number of hours, 1 or more", context, option)
    return {f"+{RETENTION}": str(hours)}


topic_option = click.option("-t", "--topic", "name", required=True, help="The topic.")
_settings_options = (
    attribute_option,
    click.option(
        "--retention",
        callback=_hours_of,
        metavar="HOURS",
        help="Serve messages for so many hours only, though the log keeps them; off: as long as it keeps them.",
    ),
    click.option("--order/--no-order", default=None, help="Whether the messages are consumed in order."),
    click.option("-p", "--perm", callback=perm_of, help="Permission: R, W, RW or -, or 4, 2, 6, 0 as in mqadmin."),
    click.option("-w", "--write-queues", type=click.IntRange(0, 65_536), help="Number of queues that can be written."),
    click.option("-r", "--read-queues", type=click.IntRange(0, 65_536), help="Number of queues that can be read."),
    broker_option,
    cluster_option,
    topic_option,
)


class _Settings(Scope):
    """The values of `_settings_options`."""

    name: str
    read_queues: int | None
    write_queues: int | None
    perm: int | None
    order: bool | None
    attributes: dict[str, str]
    retention: dict[str, str]


@click.group()
def topic() -> None:
    """Manage topics on all brokers of a cluster."""


@topic.command("list")
@options(
    click.option("--all", "every", is_flag=True, help="Show system, retry and dead-letter topics, too."), cluster_option
)
def list_(namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, every: bool) -> int:
    """List the topics with their queues and brokers."""
    found = converse(namesrv, timeout_s, lambda admin: topics.list_topics(admin, cluster=cluster))
    shown = [one for one in found.topics if every or one.kind == "normal"]
    if as_json:
        print_json({"topics": [one.to_json() for one in shown], "problems": list(found.problems)})
        return ending(found.problems)
    say_problems(found.problems)
    rows = table("", "topic", "kind", "queues r/w", "perm", "brokers", "attributes")
    for one in shown:
        queues = f"{one.read_queues}/{one.write_queues}"
        marks = words([*one.attributes.items(), *((("order", "true"),) if one.order else ())])
        rows.add_row(one.topic, one.kind, queues, perm_text(one.perm), " ".join(one.brokers), marks)
    out = console()
    if shown:
        out.print(rows)
    hidden = len(found.topics) - len(shown)
    if hidden:
        none = "" if shown else "there is no topic yet; "
        out.print(f"({none}--all shows {hidden} topics of the system, for retries and for dead letters)")
    return ending(found.problems)


@topic.command()
@options(topic_option)
def show(namesrv: str, timeout_s: float, as_json: bool, name: str) -> int:
    """Show one topic: settings, queues with their offsets, consumer groups."""
    found = converse(namesrv, timeout_s, lambda admin: topics.topic_details(admin, name))
    if as_json:
        print_json(found.to_json())
        return ending(found.problems)
    say_problems(found.problems)
    _print_details(found)
    return ending(found.problems)


def retention_of(attributes: Mapping[str, str], sign: str = "") -> int | None:
    """Return how many hours a topic's messages are served; None where only the log decides."""
    return int_or(attributes.get(sign + RETENTION, ""), None, 1, INT32_MAX)


def _print_details(found: TopicDetails) -> None:
    out = console()
    out.print(f"topic     {found.topic}" + ("" if found.kind == "normal" else f" ({found.kind})"))
    out.print(f"messages  {found.messages}, {found.put_tps:.1f} a second in the last minute")
    out.print(f"groups    {' '.join(found.groups) or '-'}")
    hours = {retention_of(one.attributes) for one in found.settings} - {None}
    if hours:
        out.print(
            f"served    for {' or '.join(map(str, sorted(hours, key=str)))} h, though the log may keep messages longer"
        )
    out.print()
    _print_settings(found.settings)
    out.print()
    if found.pending:
        _print_pending(found.pending)
        out.print()
    numbers = ("queue", "min", "max", "messages")
    rows = table("", "broker", "queue", "min", "max", "messages", "last stored", right=numbers)
    for queue in found.queues:
        rows.add_row(
            queue.broker, str(queue.queue_id), str(queue.min_offset), str(queue.max_offset), str(queue.messages),
            show_time(queue.last_store_timestamp),
        )  # fmt: skip
    out.print(rows)


def _print_pending(pending: tuple[Pending, ...]) -> None:
    if all(one.level is None for one in pending):
        rows = table("", "broker", "pending", right=("pending",))
        for one in pending:
            rows.add_row(one.broker, str(one.pending))
    else:
        rows = table("", "broker", "level", "delay", "pending", right=("level", "delay", "pending"))
        for one in pending:
            rows.add_row(one.broker, str(one.level), one.delay or "-", str(one.pending))
    console().print(rows)


def _print_settings(settings: tuple[TopicSettings, ...]) -> None:
    rows = table("", "broker", "read", "write", "perm", "order", "attributes", right=("read", "write"))
    for one in settings:
        marks = words(one.attributes.items())
        rows.add_row(
            one.broker, str(one.read_queues), str(one.write_queues), perm_text(one.perm), on_off(one.order), marks
        )
    console().print(rows)


@topic.command()
@options(topic_option)
def route(namesrv: str, timeout_s: float, as_json: bool, name: str) -> int:
    """Show the route of a topic: brokers, addresses, queues."""
    found = converse(namesrv, timeout_s, lambda admin: topics.topic_route(admin, name))
    if as_json:
        print_json({"topic": name, "route": [one.to_json() for one in found]})
        return DONE
    rows = table("", "broker", "cluster", "addresses", "read", "write", "perm", right=("read", "write"))
    for one in found:
        places = " ".join(f"{broker_id}:{address}" for broker_id, address in sorted(one.addresses.items()))
        rows.add_row(one.broker, one.cluster, places, str(one.read_queues), str(one.write_queues), perm_text(one.perm))
    console().print(rows)
    return DONE


@topic.command()
@click.option(
    "-q", "--queues", type=click.IntRange(1, 65_536), help="Number of queues on each broker, for reading and writing."
)
@options(*_settings_options)
def create(namesrv: str, timeout_s: float, as_json: bool, queues: int | None, **wanted: Unpack[_Settings]) -> int:
    """Create a topic on every broker, or on those of -c or -b. It has 8 queues on each unless -q says otherwise."""
    name, place, change = _wanted(queues, wanted)
    made = run_change(namesrv, timeout_s, lambda admin: topics.create_topic(admin, name, change, **place), **place)
    return say_made("topic", name, made, "created", as_json=as_json, show=_print_settings)


@topic.command()
@click.option(
    "-q", "--queues", type=click.IntRange(0, 65_536), help="Number of queues on each broker, for reading and writing."
)
@options(yes_option, dry_run_option, *_settings_options)
def update(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    queues: int | None,
    dry_run: bool,
    yes: bool,
    **wanted: Unpack[_Settings],
) -> int:
    """Change settings of a topic. Settings that are not named stay. The command asks first.

    If the number of read queues shrinks, the messages of the other queues stay stored, but cannot be read until the
    number grows again.
    """
    name, place, change = _wanted(queues, wanted)
    if change == TopicChange(attributes={}):
        raise click.UsageError("name what to change: queues, permission, order, retention or an attribute")
    if dry_run or not yes:
        found = converse(namesrv, timeout_s, lambda admin: topics.plan_update(admin, name, change, **place))
        what = f"topic {name} on {', '.join(found.brokers)}: {', '.join(found.changes) or 'no change'}"
        loss = ""
        if found.out_of_reach:
            loss = f". {found.out_of_reach} messages are in queues that could no longer be read"
        if (hours := retention_of(change.attributes or {}, "+")) is not None:
            loss += f". Messages older than {hours} h are served to nobody from then on"
        ended = asked_first(
            f"change {what}{loss}", f"Change {what}{loss}. Go on?", found.to_json(), dry_run=dry_run, as_json=as_json
        )
        if ended is not None:
            return ended
    made = run_change(namesrv, timeout_s, lambda admin: topics.update_topic(admin, name, change, **place), **place)
    return say_made("topic", name, made, "changed", as_json=as_json, show=_print_settings)


def _wanted(queues: int | None, given: _Settings) -> tuple[str, Scope, TopicChange]:
    read, write = given["read_queues"], given["write_queues"]
    change = TopicChange(
        queues if read is None else read,
        queues if write is None else write,
        given["perm"],
        given["order"],
        given["attributes"] | given["retention"],
    )
    return given["name"], {"cluster": given["cluster"], "broker": given["broker"]}, change


@topic.command()
@options(yes_option, dry_run_option, cluster_option, topic_option)
def delete(
    namesrv: str, timeout_s: float, as_json: bool, name: str, cluster: str | None, dry_run: bool, yes: bool
) -> int:
    """Delete a topic and all its messages on every broker. The command asks first."""
    if dry_run or not yes:
        found = converse(namesrv, timeout_s, lambda admin: topics.topic_details(admin, name))
        brokers = [one.broker for one in found.settings]
        facts = {"topic": name, "brokers": brokers, "messages": found.messages}
        used = f", which {', '.join(found.groups)} consume," if found.groups else ""
        rest = f"with {found.messages} messages on {', '.join(brokers)}"
        would, question = f"delete topic {name} {rest}", f"Delete topic {name}{used} {rest}?"
        ended = asked_first(would, question, facts, dry_run=dry_run, as_json=as_json)
        if ended is not None:
            return ended
    deleted = run_change(
        namesrv, timeout_s, lambda admin: topics.delete_topic(admin, name, cluster=cluster), cluster=cluster
    )
    return say_deleted("topic", name, deleted, as_json=as_json)


@topic.command()
@options(
    yes_option,
    dry_run_option,
    rate_option,
    click.option("-g", "--group", required=True, help="The group whose unread messages are moved."),
    target_option,
    topic_option,
)
def forward(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    name: str,
    target: str,
    group: str,
    rate: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Move the unread messages of a group to a topic with more queues, so that more consumers can share them.

    Stop the consumers of the group first. The offsets of the group follow the copies, so run the command again if it
    stops.
    """
    if dry_run or not yes:

        async def count(admin: AdminConnection) -> int:
            await replay.require_target(admin, name, target)
            return await replay.backlog(admin, group, name)

        waiting = converse(namesrv, timeout_s, count)
        what = f"{waiting} messages of {name} to {target}"
        would, question = (
            f"move {what} for group {group}",
            f"Move {what}, and set the offsets of group {group} behind them?",
        )
        facts = {"source": name, "target": target, "group": group, "total": waiting}
        ended = asked_first(would, question, facts, dry_run=dry_run, as_json=as_json)
        if ended is not None:
            return ended
    with count_bar(f"{name} to {target}") as progress:
        report = converse(
            namesrv,
            timeout_s,
            lambda admin: replay.forward(admin, name, target, group, rate=rate, progress=progress),
        )
    return say_copied(report, as_json, f"of {name} moved to {target} for group {group}")
