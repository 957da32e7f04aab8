"""`aerobee group members|clone`: what the members of a group are doing, and the offsets of one group for another."""

from __future__ import annotations

import click

from aerobee.admin.members import ClonePlan, MemberState, clone_offsets, members_of, plan_clone
from aerobee.cli.changing import asked_first
from aerobee.cli.output import DONE, REFUSED, console, print_json, show_time, table
from aerobee.cli.remote import converse, dry_run_option, options, yes_option


@click.command()
@options(
    click.option("--stack", is_flag=True, help="Ask each member for the stacks of its threads, and print them."),
    click.option("-g", "--group", "name", required=True, help="The consumer group."),
)
def members(namesrv: str, timeout_s: float, as_json: bool, name: str, stack: bool) -> int:
    """Show the connected members of a group: their queues, what waits in them, and when they last moved.

    The exit code is 1 if no member is connected.
    """
    found = converse(namesrv, max(timeout_s, 15.0), lambda admin: members_of(admin, name, stack=stack))
    if as_json:
        print_json({"group": name, "members": [one.to_json() for one in found]})
    elif not found:
        click.echo(f"no member of group {name} is connected", err=True)
    for one in found if not as_json else ():
        _print_member(one)
    return DONE if found else REFUSED


def _print_member(one: MemberState) -> None:
    click.echo(f"{_printable(one.client_id)}  {one.address}  {one.language} {one.version}")
    if one.problem is not None:
        click.echo(f"warning: it does not tell more: {one.problem}", err=True)
    numbers = ("queue", "offset", "waiting")
    rows = table("", "topic", "broker", "queue", "offset", "waiting", "last pull", "last consumed", right=numbers)
    for queue in one.queues:
        rows.add_row(
            queue.topic, queue.broker, str(queue.queue_id), str(queue.offset), str(queue.waiting),
            show_time(queue.last_pull_ms), show_time(queue.last_consume_ms),
        )  # fmt: skip
    console().print(rows)
    if one.stack:
        click.echo("\n" + _printable(one.stack, kept="\n\t"))


def _printable(text: str, kept: str = "") -> str:
    """Return the text without control characters: it comes from the client."""
    return "".join(c if c.isprintable() or c in kept else "." for c in text)


@click.command()
@options(
    yes_option,
    dry_run_option,
    click.option("-t", "--topic", help="Only this topic."),
    click.option("--to", "target", required=True, metavar="GROUP", help="The group that gets the offsets."),
    click.option("-g", "--group", "name", required=True, help="The group whose offsets are taken."),
)
def clone(
    namesrv: str, timeout_s: float, as_json: bool, name: str, target: str, topic: str | None, **asking: bool
) -> int:
    """Save the offsets of one group for another, whose consumers must be stopped. The command asks first."""
    plan = converse(namesrv, timeout_s, lambda admin: plan_clone(admin, name, target, topic=topic))
    if not as_json and (asking["dry_run"] or not asking["yes"]):
        _print_plan(plan)
    if asking["dry_run"] or not asking["yes"]:
        words = f"set {len(plan.queues)} offsets of group {target} to those of {name}"
        ended = asked_first(
            words, f"{words[0].upper()}{words[1:]}?", plan.to_json(), dry_run=asking["dry_run"], as_json=as_json
        )
        if ended is not None:
            return ended
    converse(namesrv, timeout_s, lambda admin: clone_offsets(admin, plan))
    if as_json:
        print_json(plan.to_json())
    else:
        click.echo(f"{len(plan.queues)} offsets of group {target} are those of {name}")
    return DONE


def _print_plan(plan: ClonePlan) -> None:
    rows = table("", "topic", "broker", "queue", "from", "to", right=("queue", "from", "to"))
    for one in plan.queues:
        before = "-" if one.before is None else str(one.before)
        rows.add_row(one.topic, one.broker, str(one.queue_id), before, str(one.after))
    console().print(rows)
