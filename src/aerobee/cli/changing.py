"""How the commands that change topics and groups ask before a change and report after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import click

from aerobee.admin.connection import AdminConnection
from aerobee.cli.output import DONE, REFUSED, print_json
from aerobee.cli.remote import confirmed, converse, say_problems


class Made(Protocol):
    """The settings of a topic or group on one broker."""

    @property
    def broker(self) -> str: ...

    def to_json(self) -> Mapping[str, object]: ...


M = TypeVar("M", bound=Made)
T = TypeVar("T")


def asked_first(would: str, question: str, facts: Mapping[str, object], *, dry_run: bool, as_json: bool) -> int | None:
    """Return the exit code of a dry run or of a refusal by the operator, or None to continue."""
    if not dry_run:
        return None if confirmed(question) else REFUSED
    if as_json:
        print_json({"dry_run": True, **facts})
    else:
        click.echo(f"would {would}")
    return DONE


def run_change(
    namesrv: str,
    timeout_s: float,
    work: Callable[[AdminConnection], Awaitable[T]],
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> T:
    """Run a change as `converse` does, and warn of each broker group that it did not reach."""

    async def run(admin: AdminConnection) -> tuple[T, tuple[str, ...]]:
        return await work(admin), await admin.away(cluster=cluster, broker=broker)

    done, missed = converse(namesrv, timeout_s, run)
    say_problems(f"{one}. The change does not hold there: repeat it when the broker is back" for one in missed)
    return done


def say_made(
    kind: str, name: str, made: tuple[M, ...], what: str, *, as_json: bool, show: Callable[[tuple[M, ...]], None]
) -> int:
    """Print a topic or group that was created or changed, with its settings."""
    if as_json:
        print_json({kind: name, "settings": [one.to_json() for one in made]})
        return DONE
    click.echo(f"{kind} {name} {what} on {', '.join(one.broker for one in made)}")
    show(made)
    return DONE


def say_deleted(kind: str, name: str, brokers: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        print_json({kind: name, "deleted_on": list(brokers)})
    else:
        click.echo(f"{kind} {name} deleted on {', '.join(brokers)}")
    return DONE
