"""`aerobee acl`: rights of users: grant, revoke, show, list, copy, check, import."""

from __future__ import annotations

import asyncio
from typing import Unpack

import click

from aerobee.access.plainacl import SIZE_MAX, PlainAcls, read_plain_acl
from aerobee.access.refusal import AccessRefusedError
from aerobee.admin import acls
from aerobee.admin.acls import ALLOW, CUSTOM, DEFAULT, DENY, Right, RightListing
from aerobee.admin.everyserver import Changed
from aerobee.cli.changing import asked_first
from aerobee.cli.connecting import admin_connection
from aerobee.cli.everywhere import Where, code_of, plain_answers, tell_changed, where_options
from aerobee.cli.output import DONE, REFUSED, CommandGroup, console, print_json, table
from aerobee.cli.remote import converse, dry_run_option, options, say_problems, yes_option
from aerobee.cli.user import copy_options, tell_copied
from aerobee.runtime.smallfile import read_small

_default_option = click.option(
    "--default", "is_default", is_flag=True, help="A default entry: it counts only where no custom entry matches."
)


@click.group(cls=CommandGroup)
def acl() -> None:
    """Manage the rights of users. A resource is Topic:NAME, Group:NAME or Cluster:NAME; NAME* is every name that begins
    so, Topic:* every topic, * everything. Actions are Pub, Sub, Create, Update, Delete, Get, List and All.
    """


@acl.command()
@options(
    where_options,
    _default_option,
    click.option("--deny", is_flag=True, help="Forbid instead of allow."),
    click.option(
        "--source", "sources", multiple=True, metavar="ADDRESS",
        help="Only requests from this address or block, such as 10.0.0.0/8. May be repeated.",
    ),
    click.argument("actions"),
    click.argument("resource"),
    click.argument("user"),
)  # fmt: skip
def grant(
    namesrv: str, timeout_s: float, as_json: bool, user: str, resource: str, actions: str,
    sources: tuple[str, ...], deny: bool, is_default: bool, **where: Unpack[Where],
) -> int:  # fmt: skip
    """Allow USER the ACTIONS (separated by commas) on RESOURCE, on every server.

    An entry for the same resource is replaced: `grant alice Topic:orders Pub,Sub`.
    """
    right = Right(
        user, resource, tuple(word.strip() for word in actions.split(",")), DENY if deny else ALLOW,
        DEFAULT if is_default else CUSTOM, sources,
    )  # fmt: skip
    changed = converse(namesrv, timeout_s, lambda admin: acls.grant(admin, [right], **where))
    what = f"{right.decision.lower()} {user} {actions} on {resource}"
    return tell_changed(what, changed, as_json=as_json, more={"user": user, "resource": resource})


@acl.command()
@options(
    yes_option, dry_run_option, where_options, _default_option,
    click.argument("resource", required=False), click.argument("user"),
)  # fmt: skip
def revoke(
    namesrv: str, timeout_s: float, as_json: bool, user: str, resource: str | None,
    is_default: bool, yes: bool, dry_run: bool, **where: Unpack[Where],
) -> int:  # fmt: skip
    """Remove the entry of USER for RESOURCE, or without RESOURCE all rights of USER, on every server."""
    what = f"the right of {user} on {resource}" if resource else f"all rights of {user}"
    if dry_run or not (yes or resource):
        code = asked_first(
            f"would remove {what}", f"Remove {what}?", {"user": user, "resource": resource},
            dry_run=dry_run, as_json=as_json,
        )  # fmt: skip
        if code is not None:
            return code
    policy = DEFAULT if is_default else CUSTOM
    changed = converse(namesrv, timeout_s, lambda admin: acls.revoke(admin, user, resource, policy=policy, **where))
    return tell_changed(f"remove {what}", changed, as_json=as_json, more={"user": user, "resource": resource})


@acl.command()
@options(where_options, click.argument("user"))
def show(namesrv: str, timeout_s: float, as_json: bool, user: str, **where: Unpack[Where]) -> int:
    """Show the rights of a user. The exit code is 1 if the servers do not have the same ones."""
    found = converse(namesrv, timeout_s, lambda admin: acls.show_rights(admin, user, **where))
    return _print(found, as_json, f"{user} has no rights")


@acl.command(name="list")
@options(
    where_options,
    click.option("--resource", default="", help="Only resources that contain this."),
    click.option("--user", default="", help="Only users whose name contains this."),
)
def list_rights(namesrv: str, timeout_s: float, as_json: bool, user: str, resource: str, **where: Unpack[Where]) -> int:
    """List the rights of all users. The exit code is 1 if the servers do not have the same ones."""
    found = converse(namesrv, timeout_s, lambda admin: acls.list_rights(admin, user, resource, **where))
    return _print(found, as_json, "nobody has rights, except Super users")


def _print(found: RightListing, as_json: bool, none: str) -> int:
    if as_json:
        print_json(found.to_json())
    elif not found.rights:
        click.echo(none)
    else:
        rows = table("", "user", "policy", "decision", "actions", "resource", "from")
        for one in found.rights:
            rows.add_row(
                one.user, one.policy, one.decision, ",".join(one.actions), one.resource, ",".join(one.sources) or "-"
            )
        console().print(rows)
    if not as_json:
        say_problems(found.problems)
    return REFUSED if found.problems else DONE


@acl.command(name="copy")
@options(copy_options, click.argument("users", nargs=-1, metavar="[USER]..."))
def copy_rights(
    namesrv: str, timeout_s: float, as_json: bool, users: tuple[str, ...], source: str, targets: tuple[str, ...]
) -> int:
    """Copy rights from one server to others: of all users, or of the named ones. Copy the users first."""

    async def work() -> tuple[tuple[str, Changed], ...]:
        async with admin_connection(namesrv, timeout_s) as admin:
            return await acls.copy_rights(admin, source, targets, users)

    return tell_copied("subject", asyncio.run(work()), as_json=as_json)


@acl.command()
@options(
    where_options,
    click.option("--source", default="", metavar="ADDRESS", help="The address that the request comes from."),
    click.argument("action"),
    click.argument("resource"),
    click.argument("user"),
)
def check(
    namesrv: str, timeout_s: float, as_json: bool, user: str, resource: str, action: str, source: str,
    **where: Unpack[Where],
) -> int:  # fmt: skip
    """Tell whether USER may do ACTION on RESOURCE, and which entry decides: `check alice Topic:orders Pub`.

    The exit code is 1 if it is refused.
    """
    found = converse(
        namesrv, timeout_s, lambda admin: acls.explain(admin, user, resource, action, source=source, **where)
    )
    if as_json:
        print_json(found.to_json())
    else:
        for one in found.verdicts:
            word = "allowed" if one.allowed else "refused"
            place = "" if len(found.verdicts) == 1 else f" at {', '.join(one.servers)}"
            click.echo(f"{word}{place}: {one.user} {one.action} on {one.resource}: {one.rule}")
        say_problems(found.problems)
    return DONE if found.allowed else REFUSED


@acl.command(name="import")
@options(dry_run_option, where_options, click.argument("file", type=click.Path(exists=True, dir_okay=False)))
def import_file(
    namesrv: str, timeout_s: float, as_json: bool, file: str, dry_run: bool, **where: Unpack[Where]
) -> int:  # fmt: skip
    """Make the users and rights of a plain_acl.yml of RocketMQ 4 on every server.

    Users that exist stay as they are. A word that is not understood stops the import before anything is changed, with
    exit code 2. Lists of addresses have no counterpart; they are named.
    """
    plain = _read(file)
    if dry_run:
        return _print_plan(plain, as_json)
    found = converse(namesrv, timeout_s, lambda admin: acls.import_plain_acl(admin, plain, **where))
    if not as_json:
        for sentence in found.dropped:
            click.echo(f"warning: {sentence}", err=True)
        return tell_copied("user", found.answers, as_json=False, done="imported")
    users = [{"user": name, "answers": plain_answers(changed.answers)} for name, changed in found.answers]
    print_json({"users": users, "dropped": list(found.dropped)})
    return max((code_of(changed) for _, changed in found.answers), default=DONE)


def _read(file: str) -> PlainAcls:
    """Return what a file says. Raise UsageError, which ends with exit code 2, where it is not understood."""
    data = read_small(file) or b""
    if len(data) > SIZE_MAX:
        raise click.UsageError(f"{file} is larger than any plain_acl.yml ({SIZE_MAX} bytes)")
    try:
        return read_plain_acl(data.decode())
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not UTF-8") from None
    except AccessRefusedError as error:
        raise click.UsageError(f"{file}: {error.message}") from None


def _print_plan(plain: PlainAcls, as_json: bool) -> int:
    """Print users and rights, and no secret."""
    users = [
        {
            "user": change.name, "type": None if change.type is None else change.type.value,
            "rights": [f"{kind.value}: {entry}" for kind, entries in own.policies for entry in entries],
        }
        for change, own in plain.accounts
    ]  # fmt: skip
    if as_json:
        print_json({"users": users, "dropped": list(plain.dropped)})
        return DONE
    for one in users:
        click.echo(f"would make the {one['type']} user {one['user']}")
        for right in one["rights"] or ():
            click.echo(f"  {right}")
    for sentence in plain.dropped:
        click.echo(f"warning: {sentence}", err=True)
    return DONE
