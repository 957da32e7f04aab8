"""What the commands that talk to a cluster share: their options and their connection."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypedDict, TypeVar

import click

from aerobee.admin.connection import AdminConnection
from aerobee.cli.connecting import admin_connection, connection_options
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, UNREACHABLE
from aerobee.model.numbers import int_or
from aerobee.model.topic import PERM_READ, PERM_WRITE

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_PERMS = {"R": PERM_READ, "W": PERM_WRITE, "RW": PERM_READ | PERM_WRITE, "WR": PERM_READ | PERM_WRITE, "-": 0}


def options(*more: Callable[[Any], Any]) -> Callable[[F], F]:
    """Add -n, --timeout, --json and the TLS options after those of the command."""

    def decorate(command: F) -> F:
        every: tuple[Callable[[Any], Any], ...] = (
            connection_options,
            click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
            click.option(
                "--timeout", "timeout_s", type=NumberRange(min=0.1), default=5.0, show_default=True,
                help="Seconds that one request may take.",
            ),
            click.option(
                "-n", "--namesrv", envvar="NAMESRV_ADDR", default="127.0.0.1:9876", show_default=True,
                help="Name servers, separated by semicolons. NAMESRV_ADDR sets them, too.",
            ),
            *more,
        )  # fmt: skip
        for option in every:
            command = option(command)
        return command

    return decorate


class Scope(TypedDict):
    """The values of `cluster_option` and `broker_option`."""

    cluster: str | None
    broker: str | None


cluster_option = click.option("-c", "--cluster", help="Only this cluster.")
broker_option = click.option("-b", "--broker", help="Only this broker, by name or address.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would be done.")


def converse(namesrv: str, timeout_s: float, work: Callable[[AdminConnection], Awaitable[T]]) -> T:
    """Connect to a cluster, run `work`, and return its result."""

    connection = admin_connection(namesrv, timeout_s)

    async def run() -> T:
        async with connection as admin:
            return await work(admin)

    return asyncio.run(run())


def confirmed(question: str) -> bool:
    """Return whether the operator agrees. Raise UsageError if standard input gives no answer."""
    try:
        if click.confirm(question, err=True):
            return True
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        click.echo("", err=True)
        raise click.UsageError(
            "this command asks before it changes anything, but standard input gives no answer: "
            "add --yes to do it, or --dry-run to see what it would do"
        ) from None
    click.echo("nothing was changed", err=True)
    return False


def say_problems(problems: Iterable[str]) -> None:
    """Print warnings on stderr, such as brokers that could not be asked."""
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)


def ending(problems: Collection[str]) -> int:
    """Return the exit code of an answer: 3 if a part of the cluster could not be asked, so that it is not complete."""
    return UNREACHABLE if problems else DONE


def perm_of(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Return the permission of an option: R, W, RW, - or the number that mqadmin uses."""
    if value is None:
        return None
    text = value.upper()
    if text in _PERMS:
        return _PERMS[text]
    number = int_or(text, None, 0, 7)
    if number is not None:
        return number
    raise click.BadParameter(f"{value!r} is not R, W, RW, - or a number below 8", context, option)


def attributes_of(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return attribute changes: `name=value` sets and `name-` removes. mqadmin's +name=value and -name work, too."""
    found: dict[str, str] = {}
    for word in values:
        name, equals, value = word.partition("=")
        name = name.strip()
        if equals and name.lstrip("+"):
            found["+" + name.lstrip("+")] = value.strip()
        elif not equals and name.strip("-") and (name.startswith("-") or name.endswith("-")):
            found["-" + name.strip("-")] = ""
        else:
            raise click.BadParameter(f"{word!r} is neither name=value nor name-", context, option)
    return found


attribute_option = functools.partial(
    click.option, "-a", "--attribute", "attributes", multiple=True, callback=attributes_of, metavar="NAME=VALUE"
)(help="Set an attribute, e.g. message.type=FIFO; NAME- removes it. May be repeated.")


def on_off(value: bool) -> str:
    return "yes" if value else "no"


def words(attributes: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in attributes) or "-"
