"""`aerobee dlq list|export|resend`: manages the dead letters of a group."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypedDict, Unpack

import click

from aerobee.admin import deadletters
from aerobee.admin.deadletters import DeadLetterEntry, ResendPlan
from aerobee.admin.messages import Span
from aerobee.cli.connecting import admin_connection
from aerobee.cli.message import all_fields
from aerobee.cli.messages import message_line
from aerobee.cli.output import DONE, REFUSED, print_json, print_json_line, time_option
from aerobee.cli.remote import confirmed, converse, dry_run_option, ending, options, say_problems, yes_option
from aerobee.cli.replay import count_bar, rate_option, say_copied, span_of
from aerobee.model.names import dlq_topic

_group_option = click.option("-g", "--group", required=True, help="The consumer group.")
_time_options = (
    click.option(
        "--to", "--until", "end_ms", callback=time_option, metavar="TIME", help="Only letters stored before this time."
    ),
    click.option(
        "--from", "begin_ms", callback=time_option, metavar="TIME", help="Only letters stored at this time or later."
    ),
)


class _Asked(TypedDict):
    """The options of `resend` beside the group."""

    message_ids: tuple[str, ...]
    every: bool
    begin_ms: int | None
    end_ms: int | None
    rate: float | None
    dry_run: bool
    yes: bool


@click.group()
def dlq() -> None:
    """Manage dead letters, the messages that a group gave up on."""


def _fields(letter: DeadLetterEntry) -> dict[str, object]:
    return {
        **all_fields(letter.message),
        "origin_topic": letter.origin_topic,
        "origin_message_id": letter.origin_message_id,
    }


async def _each(
    namesrv: str, timeout_s: float, group: str, span: Span, limit: int | None, as_json: bool
) -> tuple[int, tuple[str, ...]]:
    """Print letters while they are read, since there may be many. Return their number, and who could not be asked."""
    shown = 0
    async with admin_connection(namesrv, timeout_s) as admin:
        async with contextlib.aclosing(deadletters.read_letters(admin, group, span)) as letters:
            async for letter in letters:
                if as_json:
                    print_json_line(_fields(letter))
                else:
                    one = letter.message
                    origin = letter.origin_topic or "?"
                    click.echo(f"{one.message_id}  {origin} x{one.reconsume_times}  {message_line(one)}")
                shown += 1
                if limit is not None and shown >= limit:
                    break
        return shown, await admin.missing_from(dlq_topic(group))


@dlq.command("list")
@options(
    click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most this many."),
    *_time_options,
    _group_option,
)
def list_(
    namesrv: str, timeout_s: float, as_json: bool, group: str, begin_ms: int | None, end_ms: int | None, limit: int
) -> int:
    """List the letters, oldest first: id, original topic, number of retries, message.

    With --json, one JSON line is printed for each letter.
    """
    span = span_of(begin_ms, end_ms)
    shown, missing = asyncio.run(_each(namesrv, timeout_s, group, span, limit, as_json))
    say_problems(missing)
    if not shown:
        click.echo(f"group {group} has no dead letter" + (" of that time" if begin_ms or end_ms else ""), err=True)
    elif shown == limit:
        click.echo(f"these are the first {limit} letters; use --limit to see more", err=True)
    return ending(missing)


@dlq.command()
@options(*_time_options, _group_option)
def export(namesrv: str, timeout_s: float, as_json: bool, group: str, begin_ms: int | None, end_ms: int | None) -> int:
    """Print every letter as a JSON line, which `aerobee produce --json-in` can send."""
    shown, missing = asyncio.run(_each(namesrv, timeout_s, group, span_of(begin_ms, end_ms), None, as_json=True))
    say_problems(missing)
    click.echo(f"{shown} dead letters of group {group}", err=True)
    return ending(missing)


@dlq.command()
@options(
    yes_option,
    dry_run_option,
    rate_option,
    *_time_options,
    click.option("--all", "every", is_flag=True, help="Send all letters, or all of --from and --to."),
    click.option("--id", "message_ids", multiple=True, metavar="ID", help="Send this letter. May be repeated."),
    _group_option,
)
def resend(namesrv: str, timeout_s: float, as_json: bool, group: str, **asked: Unpack[_Asked]) -> int:
    """Send letters again to the topics they came from. Other groups of those topics get them, too.

    The letters also stay in the dead-letter topic, so a second run sends them a second time.
    """
    message_ids, begin_ms, end_ms = asked["message_ids"], asked["begin_ms"], asked["end_ms"]
    if bool(message_ids) == asked["every"]:
        raise click.UsageError("name the letters: --id ID, or --all (with --from and --to)")
    if message_ids and (begin_ms is not None or end_ms is not None):
        raise click.UsageError("--from and --to can be used with --all only, not with --id")
    span = span_of(begin_ms, end_ms)
    plan = converse(
        namesrv, timeout_s, lambda admin: deadletters.plan_resend(admin, group, message_ids=message_ids, span=span)
    )
    if asked["dry_run"]:
        return _say_plan(plan, as_json)
    if not plan.total:
        return _nothing(plan, as_json)
    if not asked["yes"] and not confirmed(f"Send again {_where(plan)}?"):
        return REFUSED
    with count_bar("dead letters") as progress:
        report = converse(
            namesrv,
            timeout_s,
            lambda admin: deadletters.resend(
                admin, group, plan.total, message_ids=message_ids, span=span, rate=asked["rate"], progress=progress
            ),
        )
    return say_copied(report, as_json, f"of group {group}'s dead letters sent again")


def _say_plan(plan: ResendPlan, as_json: bool) -> int:
    if as_json:
        print_json({"dry_run": True, **plan.to_json()})
    else:
        click.echo(f"would send again {_where(plan)}" if plan.total else "would send nothing")
        if plan.without_origin:
            click.echo(f"{plan.without_origin} letters do not name their original topic", err=True)
    return DONE


def _nothing(plan: ResendPlan, as_json: bool) -> int:
    if as_json:
        print_json(plan.to_json())
    else:
        lost = f": {plan.without_origin} letters do not name their original topic" if plan.without_origin else ""
        click.echo(f"there is nothing to send{lost}")
    return REFUSED if plan.without_origin else DONE


def _where(plan: ResendPlan) -> str:
    parts = []
    for topic, count in sorted(plan.topics.items()):
        others = plan.other_groups.get(topic, ())
        too = f" (where {', '.join(others)} will get them, too)" if others else ""
        parts.append(f"{count} to {topic}{too}")
    return ", ".join(parts)
