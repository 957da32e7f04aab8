"""How commands that change something ask first and tell after, for topics and groups alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import click

from aerobee.cli.output import DONE, REFUSED, print_json
from aerobee.cli.remote import confirmed


class Made(Protocol):
    """Something on one broker, as it is now."""

    @property
    def broker(self) -> str: ...

    def to_json(self) -> Any: ...


M = TypeVar("M", bound=Made)


def asked_first(would: str, question: str, facts: Mapping[str, Any], *, dry_run: bool, as_json: bool) -> int | None:
    """The exit code where this is all: a dry run, or an operator who said no. None: go on."""
    if not dry_run:
        return None if confirmed(question) else REFUSED
    if as_json:
        print_json({"dry_run": True, **facts})
    else:
        click.echo(f"would {would}")
    return DONE


def say_made(
    kind: str, name: str, made: tuple[M, ...], what: str, *, as_json: bool, show: Callable[[tuple[M, ...]], None]
) -> int:
    """A topic or group that was made or changed, with its settings."""
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
