"""`aerobee group list|show|create|update|delete|lag|reset|producers`."""

from __future__ import annotations

from typing import NamedTuple, TypedDict, Unpack

import click

from aerobee.admin import groups, offsets, pops
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupChange, GroupDetails, GroupLag, GroupSettings
from aerobee.admin.offsets import FIRST, LAST, MemberOffset, ResetPlan, ResetTarget
from aerobee.cli.changing import asked_first, run_change, say_deleted, say_made
from aerobee.cli.groupmore import clone, members
from aerobee.cli.output import DONE, REFUSED, console, parse_time, print_json, show_time, table
from aerobee.cli.remote import (
    Scope,
    attribute_option,
    broker_option,
    cluster_option,
    confirmed,
    converse,
    dry_run_option,
    ending,
    on_off,
    options,
    say_problems,
    words,
    yes_option,
)

group_option = click.option("-g", "--group", "name", required=True, help="The consumer group.")
_settings_options = (
    attribute_option,
    click.option(
        "--retry-max", type=click.IntRange(-1, 1_000_000), help="Retries before a message becomes a dead letter."
    ),
    click.option("--retry-queues", type=click.IntRange(0, 65_536), help="Number of queues of the retry topic."),
    click.option("--orderly/--no-orderly", default=None, help="Whether the group consumes in order."),
    click.option("--broadcast/--no-broadcast", default=None, help="Whether the group may consume by broadcast."),
    click.option("--consume/--no-consume", default=None, help="Whether the group may consume."),
    broker_option,
    cluster_option,
    group_option,
)


class _Settings(Scope):
    """The values of `_settings_options`."""

    name: str
    consume: bool | None
    broadcast: bool | None
    orderly: bool | None
    retry_queues: int | None
    retry_max: int | None
    attributes: dict[str, str]


class _Reset(TypedDict):
    """The options of `reset` beside group and topic."""

    to: ResetTarget | None
    to_offset: int | None
    queue_id: int | None
    dry_run: bool
    yes: bool


@click.group()
def group() -> None:
    """Manage consumer groups on all brokers of a cluster."""


@group.command("list")
@options(click.option("--all", "every", is_flag=True, help="Show system groups, too."), cluster_option)
def list_(namesrv: str, timeout_s: float, as_json: bool, cluster: str | None, every: bool) -> int:
    """List the consumer groups."""
    found = converse(namesrv, timeout_s, lambda admin: groups.list_groups(admin, cluster=cluster, with_system=every))
    if as_json:
        print_json(found.to_json())
        return ending(found.problems)
    say_problems(found.problems)
    out = console()
    if not found.groups:
        out.print("there is no group yet (--all shows the system groups)")
        return ending(found.problems)
    rows = table("", "group", "members", "model", "consumes", "retries", "brokers", right=("members", "retries"))
    for one in found.groups:
        rows.add_row(
            one.group, str(one.members), (one.message_model or "-").lower(), on_off(one.consume_enabled),
            str(one.retry_max_times), " ".join(one.brokers),
        )  # fmt: skip
    out.print(rows)
    return ending(found.problems)


@group.command()
@options(group_option)
def show(namesrv: str, timeout_s: float, as_json: bool, name: str) -> int:
    """Show one group: settings, members, subscriptions, progress by topic."""
    found = converse(namesrv, timeout_s, lambda admin: groups.group_details(admin, name))
    if as_json:
        print_json(found.to_json())
        return ending(found.progress.problems)
    say_problems(found.progress.problems)
    _print_details(found)
    return ending(found.progress.problems)


@group.command()
@options(
    click.option("-g", "--group", "name", help="Only this producer group."),
    cluster_option,
)
def producers(namesrv: str, timeout_s: float, as_json: bool, name: str | None, cluster: str | None) -> int:
    """List the connected producers, as `mqadmin producerConnection` does.

    A producer is connected to the brokers of the topics it has sent to.
    """
    found = converse(namesrv, timeout_s, lambda admin: groups.list_producers(admin, group=name, cluster=cluster))
    if as_json:
        print_json(found.to_json())
        return ending(found.problems)
    say_problems(found.problems)
    if not found.producers:
        click.echo("no producer is connected" if name is None else f"no producer of group {name} is connected")
        return ending(found.problems)
    rows = table("", "group", "producer", "address", "language", "version", "brokers", right=("version",))
    for one in found.producers:
        rows.add_row(one.group, one.client_id, one.address, one.language, str(one.version), " ".join(one.brokers))
    console().print(rows)
    return ending(found.problems)


def _print_details(found: GroupDetails) -> None:
    out = console()
    out.print(f"group     {found.group}")
    lag = "unknown" if found.progress.lag is None else found.progress.lag
    out.print(f"lag       {lag}, consumes {found.progress.consume_tps:.1f} a second")
    if found.members:
        model, kind = (found.message_model or "-").lower(), (found.consume_type or "-").lower()
        out.print(f"consumes  {kind}, {model}, from {(found.consume_from_where or '-').lower()}")
    out.print()
    _print_settings(found.settings)
    if found.subscriptions:
        rows = table("", "topic", "expression", "type")
        for one in found.subscriptions:
            rows.add_row(one.topic, one.expression, one.expression_type)
        out.print()
        out.print(rows)
    if found.members:
        rows = table("", "member", "address", "language", "version", right=("version",))
        for member in found.members:
            rows.add_row(member.client_id, member.address, member.language, str(member.version))
        out.print()
        out.print(rows)
    else:
        out.print("\nno member is connected")
    if found.progress.queues:
        out.print()
        _print_lag(found.progress, by_topic=True)


def _print_settings(settings: tuple[GroupSettings, ...]) -> None:
    numbers = ("retry queues", "retries")
    rows = table(
        "", "broker", "consumes", "broadcast", "orderly", "retry queues", "retries", "attributes", right=numbers
    )
    for one in settings:
        rows.add_row(
            one.broker, on_off(one.consume_enabled), on_off(one.broadcast_enabled), on_off(one.orderly),
            str(one.retry_queues), str(one.retry_max_times), words(one.attributes.items()),
        )  # fmt: skip
    console().print(rows)


@group.command()
@options(
    click.option("--members", is_flag=True, help="Show the offsets that the connected members report. Needs -t."),
    click.option(
        "--queues/--topics", "each_queue", default=True, help="Print a line for each queue, or for each topic."
    ),
    click.option("-t", "--topic", help="Only this topic."),
    group_option,
)
def lag(
    namesrv: str, timeout_s: float, as_json: bool, name: str, topic: str | None, each_queue: bool, members: bool
) -> int:
    """Show how many messages the group has not consumed yet."""
    if members:
        if topic is None:
            raise click.UsageError("--members needs a topic: -t TOPIC")
        said = converse(namesrv, timeout_s, lambda admin: offsets.consumer_status(admin, name, topic))
        return _say_members(name, topic, said, as_json)

    async def ask(admin: AdminConnection) -> GroupLag:
        found = await groups.group_lag(admin, name, topic=topic)
        if not found.queues:
            await groups.require_group_exists(admin, name)
        return found

    found = converse(namesrv, timeout_s, ask)
    if as_json:
        print_json(found.to_json())
        return ending(found.problems)
    say_problems(found.problems)
    if not found.queues:
        click.echo(
            f"the lag of group {name} is unknown: it has no offset in any topic and no member that subscribes to one"
        )
        click.echo("To see the unread messages of a topic, add -t TOPIC.")
        return ending(found.problems)
    _print_lag(found, by_topic=not each_queue)
    return ending(found.problems)


def _say_members(name: str, topic: str, said: tuple[MemberOffset, ...], as_json: bool) -> int:
    if as_json:
        print_json({"group": name, "topic": topic, "members": [one.to_json() for one in said]})
        return DONE
    if not said:
        click.echo(f"no member of group {name} with queues of topic {topic} answers")
        return DONE
    rows = table("", "member", "broker", "queue", "offset", right=("queue", "offset"))
    for one in said:
        rows.add_row(one.client_id, one.broker, str(one.queue_id), str(one.offset))
    console().print(rows)
    return DONE


def _print_lag(found: GroupLag, *, by_topic: bool) -> None:
    out = console()
    if by_topic:
        rows = table("", "topic", "queues", "lag", "in flight", "last consumed", right=("queues", "lag", "in flight"))
        for topic in dict.fromkeys(queue.topic for queue in found.queues):
            several = [queue for queue in found.queues if queue.topic == topic]
            rows.add_row(
                topic, str(len(several)), str(sum(queue.lag for queue in several)),
                str(sum(queue.in_flight for queue in several)),
                show_time(max(queue.last_consumed_timestamp for queue in several)),
            )  # fmt: skip
        out.print(rows)
        return
    numbers = ("queue", "broker offset", "consumer offset", "lag", "in flight")
    rows = table(
        "", "topic", "broker", "queue", "broker offset", "consumer offset", "lag", "in flight", "last consumed",
        right=numbers,
    )  # fmt: skip
    for queue in found.queues:
        rows.add_row(
            queue.topic, queue.broker, str(queue.queue_id), str(queue.broker_offset), str(queue.consumer_offset),
            str(queue.lag), str(queue.in_flight), show_time(queue.last_consumed_timestamp),
        )  # fmt: skip
    out.print(rows)
    out.print(f"\nlag {found.lag}, consumes {found.consume_tps:.1f} a second")


@group.command()
@options(*_settings_options)
def create(namesrv: str, timeout_s: float, as_json: bool, **wanted: Unpack[_Settings]) -> int:
    """Create a group on every broker, or on those of -c or -b."""
    name, place, change = _wanted(wanted)
    made = run_change(namesrv, timeout_s, lambda admin: groups.create_group(admin, name, change, **place), **place)
    return say_made("group", name, made, "created", as_json=as_json, show=_print_settings)


@group.command()
@options(
    click.option("--mode", type=click.Choice(pops.MODES), help="How the group consumes a topic; needs -t."),
    click.option(
        "--share", type=click.IntRange(0, 10_000), default=0, help="Members that share queues by POP; 0: all."
    ),
    click.option("-t", "--topic", help="The topic of --mode."),
    yes_option,
    dry_run_option,
    *_settings_options,
)
def update(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    dry_run: bool,
    yes: bool,
    mode: str | None,
    topic: str | None,
    share: int,
    **wanted: Unpack[_Settings],
) -> int:
    """Change settings of a group. Settings that are not named stay. The command asks first.

    --mode pop lets consumers that leave balancing to the broker pop a topic, also while they run; --mode pull goes
    back.
    """
    name, place, change = _wanted(wanted)
    if mode is not None:
        if topic is None or change != GroupChange(attributes={}):
            raise click.UsageError("--mode needs a topic (-t TOPIC), and no other setting beside it")
        return _set_mode(namesrv, timeout_s, name, topic, _Mode(mode, share, dry_run, yes, as_json))
    if change == GroupChange(attributes={}):
        raise click.UsageError("name a setting or an attribute to change")
    if dry_run or not yes:
        found = converse(namesrv, timeout_s, lambda admin: groups.plan_update(admin, name, change, **place))
        what = (
            f"group {name} ({found.members} members connected) on {', '.join(found.brokers)}: "
            f"{', '.join(found.changes) or 'no change'}"
        )
        ended = asked_first(f"change {what}", f"Change {what}?", found.to_json(), dry_run=dry_run, as_json=as_json)
        if ended is not None:
            return ended
    made = run_change(namesrv, timeout_s, lambda admin: groups.update_group(admin, name, change, **place), **place)
    return say_made("group", name, made, "changed", as_json=as_json, show=_print_settings)


class _Mode(NamedTuple):
    """What `update --mode` was told."""

    mode: str
    share: int
    dry_run: bool
    yes: bool
    as_json: bool


def _set_mode(namesrv: str, timeout_s: float, name: str, topic: str, asked: _Mode) -> int:
    facts: dict[str, object] = {"group": name, "topic": topic, "mode": asked.mode, "share": asked.share}
    if asked.dry_run or not asked.yes:
        what = f"group {name} from now on {asked.mode}s topic {topic}"
        ended = asked_first(f"let {what}", f"Let {what}?", facts, dry_run=asked.dry_run, as_json=asked.as_json)
        if ended is not None:
            return ended
    brokers = run_change(
        namesrv, timeout_s, lambda admin: pops.set_mode(admin, name, topic, asked.mode, share=asked.share)
    )
    if asked.as_json:
        print_json({**facts, "brokers": list(brokers)})
    else:
        click.echo(
            f"group {name} {asked.mode}s topic {topic} on {', '.join(brokers)}; members follow within 20 seconds"
        )
    return DONE


def _wanted(given: _Settings) -> tuple[str, Scope, GroupChange]:
    change = GroupChange(
        given["consume"],
        given["broadcast"],
        given["orderly"],
        given["retry_queues"],
        given["retry_max"],
        given["attributes"],
    )
    return given["name"], {"cluster": given["cluster"], "broker": given["broker"]}, change


@group.command()
@options(
    click.option("--keep-offsets", is_flag=True, help="Keep the offsets for a later group of the same name."),
    yes_option,
    dry_run_option,
    cluster_option,
    group_option,
)
def delete(
    namesrv: str,
    timeout_s: float,
    as_json: bool,
    name: str,
    cluster: str | None,
    dry_run: bool,
    yes: bool,
    keep_offsets: bool,
) -> int:
    """Delete a group and its offsets on every broker. The command asks first."""
    if dry_run or not yes:
        found = converse(namesrv, timeout_s, lambda admin: groups.group_details(admin, name))
        brokers, members = [one.broker for one in found.settings], len(found.members)
        what = f"group {name} with {members} members on {', '.join(brokers)}"
        facts = {"group": name, "brokers": brokers, "members": members}
        ended = asked_first(f"delete {what}", f"Delete {what}?", facts, dry_run=dry_run, as_json=as_json)
        if ended is not None:
            return ended
    deleted = run_change(
        namesrv,
        timeout_s,
        lambda admin: groups.delete_group(admin, name, cluster=cluster, keep_offsets=keep_offsets),
        cluster=cluster,
    )
    return say_deleted("group", name, deleted, as_json=as_json)


def _reset_target(context: click.Context, option: click.Parameter, value: str | None) -> ResetTarget | None:
    if value is None:
        return None
    if value.lower() in (FIRST, LAST):
        return ResetTarget(edge=value.lower())
    try:
        return ResetTarget(time_ms=parse_time(value))
    except ValueError:
        text = f"{value!r} is not first, last, milliseconds or a time like 2026-11-15T10:00:00"
        raise click.BadParameter(text, context, option) from None


@group.command()
@options(
    yes_option,
    dry_run_option,
    click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only the queue with this id."),
    click.option(
        "--to-offset", type=click.IntRange(min=0), help="Set this offset, or the nearest one that a queue holds."
    ),
    click.option(
        "--to", callback=_reset_target, metavar="first|last|TIME", help="Set the oldest message, the end, or a time."
    ),
    click.option("-t", "--topic", required=True, help="The topic."),
    group_option,
)
def reset(namesrv: str, timeout_s: float, as_json: bool, name: str, topic: str, **asked: Unpack[_Reset]) -> int:
    """Set the offsets of a group in a topic: back to consume again, or forward to skip messages.

    The group may be connected or not. Connected consumers follow with their next pull. --dry-run shows each queue.
    """
    to, to_offset, dry_run, yes = asked["to"], asked["to_offset"], asked["dry_run"], asked["yes"]
    if (to is None) == (to_offset is None):
        raise click.UsageError("name one target: --to first|last|TIME or --to-offset N")
    target = to if to is not None else ResetTarget(offset=to_offset)

    async def ask(admin: AdminConnection) -> ResetPlan:
        return await offsets.plan_reset(admin, name, topic, target, queue_id=asked["queue_id"])

    plan = converse(namesrv, timeout_s, ask)
    if not as_json and (dry_run or not yes):
        _print_plan(plan)
    if not dry_run:
        if not yes and not confirmed(f"Reset group {name} in {topic}?"):
            return REFUSED
        converse(namesrv, timeout_s, lambda admin: offsets.reset_offsets(admin, plan, target))
    if as_json:
        print_json({"dry_run": dry_run, **plan.to_json()})
    elif not dry_run:
        click.echo(
            f"group {name} was reset in topic {topic}: {plan.replayed} messages come again, {plan.skipped} are skipped"
        )
    return DONE


def _print_plan(plan: ResetPlan) -> None:
    numbers = ("queue", "min", "max", "from", "to", "again", "skipped")
    rows = table("", "broker", "queue", "min", "max", "from", "to", "again", "skipped", right=numbers)
    for one in plan.queues:
        rows.add_row(
            one.broker, str(one.queue_id), str(one.min_offset), str(one.max_offset),
            "-" if one.from_offset is None else str(one.from_offset), str(one.to_offset),
            str(one.replayed), str(one.skipped),
        )  # fmt: skip
    out = console()
    out.print(rows)
    out.print(
        f"\n{plan.replayed} messages come again, {plan.skipped} are skipped; {plan.members} members are connected"
    )


group.add_command(clone)
group.add_command(members)
