"""What `aerobee broker` and `aerobee namesrv` share: options, printing settings, the ready line."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeVar

import click

from aerobee.cli.output import DONE, print_json, print_json_line
from aerobee.config.loader import Loaded
from aerobee.runtime.process import process_id

F = TypeVar("F", bound=Callable[..., Any])


def server_options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="The ready line, or the settings, as JSON."),
        click.option("-p", "every", is_flag=True, help="Print all settings, and exit."),
        click.option("--lenient-config", "lenient", is_flag=True, help="Go on where a key is unknown."),
        click.option("--insecure", is_flag=True, help="Serve other machines too: nobody is asked who they are."),
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting, before the file's. May be repeated.",
        ),
        click.option("-c", "--config", "conf", metavar="FILE", help="A .conf file of RocketMQ's."),
    ):
        command = option(command)
    return command


def print_settings(loaded: Loaded, as_json: bool, keys: Container[str] | None) -> int:
    """Every setting, or those of `keys`, with where it comes from as JSON."""
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    shown = {key: value for key, value in sorted(loaded.properties().items()) if keys is None or key in keys}
    if as_json:
        print_json(shown)
        return DONE
    for key, value in shown.items():
        click.echo(f"{key}={value}")
    return DONE


def tell_ready(what: str, as_json: bool) -> Callable[[str], None]:
    """Says on stdout that a server serves; people read the same in the log."""

    def ready(address: str) -> None:
        if as_json:
            print_json_line({what: address, "pid": process_id()})

    return ready
