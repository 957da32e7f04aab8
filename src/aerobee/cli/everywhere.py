"""What `aerobee user` and `aerobee acl` share: which servers, the answers of all of them, passwords without echo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, TypeVar

import click

from aerobee.admin.everyserver import Changed, ServerAnswer, ServerOutcome
from aerobee.app.secure import new_secret
from aerobee.cli.output import DONE, REFUSED, UNREACHABLE, print_json
from aerobee.errors import InvalidArgumentError
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.smallfile import read_small

F = TypeVar("F", bound=Callable[..., Any])


class Where(TypedDict):
    """The values of `where_options`."""

    cluster: str | None
    server: str | None


_WHERE = (
    click.option("-c", "--cluster", help="Only the brokers of this cluster, and the name servers."),
    click.option(
        "-b", "--broker", "server", metavar="SERVER",
        help="Only this server: a broker by name, or any server by HOST:PORT.",
    ),
)  # fmt: skip


def where_options(command: F) -> F:
    """Add -c and -b. Without them a command concerns every name server and broker."""
    for option in reversed(_WHERE):
        command = option(command)
    return command


class SecretGiven(TypedDict):
    """The values of `secret_options`."""

    password_file: str | None
    generate: bool


def secret_options(command: F) -> F:
    """Add the ways to give a password. None of them puts it on the command line."""
    command = click.option(
        "--password-file", metavar="FILE", help="Read the password from a file; `-` is standard input."
    )(command)
    return click.option("--generate", is_flag=True, help="Make a password and print it, once.")(command)


def asked_secret(given: SecretGiven, *, needed: bool) -> str | None:
    """Return the password that was asked for, by file or at the terminal; None where none is to be set."""
    path, generate = given["password_file"], given["generate"]
    if path is not None and generate:
        raise click.UsageError("--password-file and --generate exclude each other")
    if generate:
        return new_secret(SystemEntropy())
    if path is not None:
        return _from_file(path)
    if not needed:
        return None
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("a password is needed: --password-file FILE (`-` is standard input), or --generate")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _from_file(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else read_small(path)
        if data is None:
            raise InvalidArgumentError(f"there is no file {path}")
        text = data.decode().rstrip("\r\n")
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{path} is not UTF-8") from None
    if not text.strip() or "\n" in text:
        raise InvalidArgumentError(f"{path} does not hold one line with a password")
    return text


def tell_changed(what: str, changed: Changed, *, as_json: bool, more: dict[str, object] | None = None) -> int:
    """Print what each server answered and return the exit code."""
    if as_json:
        print_json({**(more or {}), "complete": changed.is_complete, "answers": plain_answers(changed.answers)})
    else:
        for line in lines_of(what, changed):
            click.echo(line)
    return code_of(changed)


def lines_of(what: str, changed: Changed) -> list[str]:
    """Return a line for each server."""
    return [f"{what}: {_said(one)}" for one in changed.answers]


def plain_answers(answers: Iterable[ServerAnswer]) -> list[dict[str, object]]:
    """Return the answers as JSON."""
    return [
        {"server": one.server.role, "address": one.server.address, "outcome": one.outcome, "words": one.words}
        for one in answers
    ]


def _said(one: ServerAnswer) -> str:
    place = one.server.address if one.server.role == one.server.address else f"{one.server.role} {one.server.address}"
    return f"{one.outcome} at {place}" + (f" ({one.words})" if one.words else "")


def code_of(changed: Changed) -> int:
    """Return 0 if every server that keeps users did it, 1 if one refused, 3 if one could not be reached."""
    if changed.having(ServerOutcome.refused):
        return REFUSED
    if changed.having(ServerOutcome.unreachable):
        return UNREACHABLE
    return DONE if changed.is_complete else REFUSED
