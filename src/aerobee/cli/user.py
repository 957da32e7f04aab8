"""`aerobee user`: users of access control: create, update, delete, show, list, copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

import click

from aerobee.admin import users
from aerobee.admin.everyserver import Changed
from aerobee.admin.users import DISABLED, ENABLED, NORMAL, SUPER, UserChanges, UserListing
from aerobee.cli.changing import asked_first
from aerobee.cli.connecting import admin_connection
from aerobee.cli.everywhere import (
    SecretGiven,
    Where,
    asked_secret,
    code_of,
    lines_of,
    plain_answers,
    secret_options,
    tell_changed,
    where_options,
)
from aerobee.cli.output import DONE, REFUSED, CommandGroup, console, print_json, table
from aerobee.cli.remote import converse, dry_run_option, options, say_problems, yes_option

F = TypeVar("F", bound=Callable[..., Any])


class _Created(SecretGiven, Where):
    """The options of `create`."""

    is_super: bool
    is_disabled: bool


class _Updated(SecretGiven, Where):
    """The options of `update`."""

    is_super: bool | None
    is_enabled: bool | None


@click.group(cls=CommandGroup)
def user() -> None:
    """Manage the users of a cluster with access control. Every name server and broker keeps its own.

    A user's password is the secret key that the user's clients sign with. It is never given on the command line.
    """


@user.command()
@options(
    where_options,
    secret_options,
    click.option("--disabled", "is_disabled", is_flag=True, help="Make the user, but let nobody in with it yet."),
    click.option("--super", "is_super", is_flag=True, help="A user who may do everything."),
    click.argument("name"),
)
def create(namesrv: str, timeout_s: float, as_json: bool, name: str, **given: Unpack[_Created]) -> int:
    """Create a user on every server. Without rights (`aerobee acl grant`) a Normal user may do nothing."""
    secret = asked_secret(given, needed=True)
    change = UserChanges(secret, SUPER if given["is_super"] else NORMAL, DISABLED if given["is_disabled"] else ENABLED)
    where = Where(cluster=given["cluster"], server=given["server"])
    changed = converse(namesrv, timeout_s, lambda admin: users.create_user(admin, name, change, **where))
    return _tell(f"user {name} created", name, changed, given["generate"], secret, as_json=as_json)


@user.command()
@options(
    where_options,
    secret_options,
    click.option("--enable/--disable", "is_enabled", default=None, help="Let the user in, or nobody with this name."),
    click.option("--super/--normal", "is_super", default=None, help="Whether the user may do everything."),
    click.option("--password", "wants_secret", is_flag=True, help="Ask for a new password at the terminal."),
    click.argument("name"),
)
def update(
    namesrv: str, timeout_s: float, as_json: bool, name: str, wants_secret: bool, **given: Unpack[_Updated]
) -> int:
    """Change the password, the type or the status of a user on every server. It holds from the next request on."""
    secret = asked_secret(given, needed=wants_secret)
    kind = None if given["is_super"] is None else (SUPER if given["is_super"] else NORMAL)
    status = None if given["is_enabled"] is None else (ENABLED if given["is_enabled"] else DISABLED)
    change = UserChanges(secret, kind, status)
    where = Where(cluster=given["cluster"], server=given["server"])
    changed = converse(namesrv, timeout_s, lambda admin: users.update_user(admin, name, change, **where))
    return _tell(f"user {name} updated", name, changed, given["generate"], secret, as_json=as_json)


def _tell(what: str, name: str, changed: Changed, generated: bool, secret: str | None, *, as_json: bool) -> int:
    """Print the answers, and a secret that was made here: nobody else knows it."""
    more: dict[str, object] = {"user": name}
    if generated:
        more["password"] = secret
    code = tell_changed(what, changed, as_json=as_json, more=more)
    if generated and not as_json:
        click.echo(f"password: {secret}")
    return code


@user.command()
@options(yes_option, dry_run_option, where_options, click.argument("name"))
def delete(
    namesrv: str, timeout_s: float, as_json: bool, name: str, yes: bool, dry_run: bool, **where: Unpack[Where]
) -> int:
    """Delete a user and all rights of the user on every server."""
    if dry_run or not yes:
        found = converse(namesrv, timeout_s, lambda admin: users.show_user(admin, name, **where))
        servers = sorted({server for one in found.users for server in one.servers})
        code = asked_first(
            f"would delete the user {name} at {', '.join(servers)}",
            f"Delete the user {name} with all rights at {', '.join(servers)}?",
            {"user": name, "servers": servers}, dry_run=dry_run, as_json=as_json,
        )  # fmt: skip
        if code is not None:
            return code
    changed = converse(namesrv, timeout_s, lambda admin: users.delete_user(admin, name, **where))
    return tell_changed(f"user {name} deleted", changed, as_json=as_json, more={"user": name})


@user.command()
@options(where_options, click.argument("name"))
def show(namesrv: str, timeout_s: float, as_json: bool, name: str, **where: Unpack[Where]) -> int:
    """Show a user. The exit code is 1 if the servers do not know it alike."""
    return _print(converse(namesrv, timeout_s, lambda admin: users.show_user(admin, name, **where)), as_json)


@user.command(name="list")
@options(where_options, click.option("--filter", "part", default="", help="Only names that contain this."))
def list_users(namesrv: str, timeout_s: float, as_json: bool, part: str, **where: Unpack[Where]) -> int:
    """List the users. The exit code is 1 if the servers do not have the same ones."""
    return _print(converse(namesrv, timeout_s, lambda admin: users.list_users(admin, part, **where)), as_json)


def _print(found: UserListing, as_json: bool) -> int:
    if as_json:
        print_json(found.to_json())
    else:
        rows = table("", "user", "type", "status", "known to")
        for one in found.users:
            rows.add_row(one.name, one.type, one.status, ", ".join(one.servers))
        console().print(rows)
        say_problems(found.problems)
    return REFUSED if found.problems else DONE


_PLACES = (
    click.option("--to", "targets", multiple=True, required=True, metavar="HOST:PORT", help="May be repeated."),
    click.option("--from", "source", required=True, metavar="HOST:PORT", help="The server to copy from."),
)


def copy_options(command: F) -> F:
    """Add --from and --to."""
    for option in _PLACES:
        command = option(command)
    return command


@user.command(name="copy")
@options(copy_options, click.argument("names", nargs=-1, metavar="[NAME]..."))
def copy_users(
    namesrv: str, timeout_s: float, as_json: bool, names: tuple[str, ...], source: str, targets: tuple[str, ...]
) -> int:
    """Copy users with their passwords from one server to others: all of them, or the named ones.

    The servers may be Apache's or ours. The same user signs what both are asked, as a Super user of both.
    """

    async def work() -> tuple[tuple[str, Changed], ...]:
        async with admin_connection(namesrv, timeout_s) as admin:
            return await users.copy_users(admin, source, targets, names)

    return tell_copied("user", asyncio.run(work()), as_json=as_json)


def tell_copied(what: str, copied: tuple[tuple[str, Changed], ...], *, as_json: bool, done: str = "copied") -> int:
    """Print what became of each copy and return the exit code."""
    if as_json:
        print_json([{what: name, "answers": plain_answers(changed.answers)} for name, changed in copied])
    else:
        for name, changed in copied:
            for line in lines_of(f"{what} {name} {done}", changed):
                click.echo(line)
        if not copied:
            click.echo(f"there is no {what}: nothing was {done}", err=True)
    return max((code_of(changed) for _, changed in copied), default=DONE)
