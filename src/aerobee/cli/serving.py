"""What `aerobee broker`, `aerobee namesrv` and `aerobee up` share: options, printed settings, the ready line.

The commands import `aerobee.app` when they run, so that `--help` does not load a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from aerobee.cli.output import DONE, print_json, print_json_line
from aerobee.config.loader import Loaded
from aerobee.runtime.logfile import LOG_FILES, LOG_SIZE_MIB, LogFile
from aerobee.runtime.process import process_id

if TYPE_CHECKING:
    from aerobee.app.servers import ServerOptions

F = TypeVar("F", bound=Callable[..., Any])


class LogOptions(TypedDict):
    """The values of `log_options`."""

    log_path: str | None
    log_mib: int
    log_files: int


class HostGiven(TypedDict):
    """The values of `host_options`."""

    host: str
    insecure: bool
    plain_clients: bool


class ServerGiven(LogOptions, HostGiven):
    """The values of `server_options`."""

    conf: str | None
    settings: tuple[str, ...]
    lenient: bool
    every: bool
    as_json: bool


host_options = (
    click.option(
        "--insecure",
        is_flag=True,
        help="Let other machines reach a server without users and TLS: every client is let in.",
    ),
    click.option(
        "--plain-clients",
        is_flag=True,
        help="Let other machines reach a server with users, but without TLS.",
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
)
_LOG_OPTIONS = (
    click.option(
        "--log-files", type=click.IntRange(1, 1000), default=LOG_FILES, show_default=True, metavar="N",
        help="Number of full log files to keep.",
    ),
    click.option(
        "--log-size", "log_mib", type=click.IntRange(1, 65_536), default=LOG_SIZE_MIB, show_default=True,
        metavar="MIB", help="Size at which the log file is renamed and a new one is begun.",
    ),
    click.option("--log-file", "log_path", metavar="FILE", help="Write the log to this file, not to standard error."),
)  # fmt: skip
_SERVER_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print the ready line, or the settings, as JSON."),
    click.option("-p", "every", is_flag=True, help="Print all settings and exit."),
    click.option("--lenient-config", "lenient", is_flag=True, help="Warn about unknown settings instead of stopping."),
    *host_options,
    click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE",
        help="A setting; it overrides the file. May be repeated.",
    ),
    click.option("-c", "--config", "conf", metavar="FILE", help="A RocketMQ .conf file."),
)  # fmt: skip


def hosts(command: F) -> F:
    """Add --host and what it may need."""
    for option in host_options:
        command = option(command)
    return command


def log_options(command: F) -> F:
    """Add the options of the log file."""
    for option in _LOG_OPTIONS:
        command = option(command)
    return command


def server_options(command: F) -> F:
    """Add the options of a server that reads a .conf file."""
    command = log_options(command)
    for option in _SERVER_OPTIONS:
        command = option(command)
    return command


def log_file(given: LogOptions) -> LogFile | None:
    """Return the log file that the operator named, or None for standard error."""
    path = given["log_path"]
    return None if path is None else LogFile(path, given["log_mib"], given["log_files"])


def server_start(given: ServerGiven, flags: tuple[tuple[str, str], ...] = ()) -> ServerOptions:
    """Return what the command line says of a server. Raise InvalidArgumentError for a host without an address."""
    from aerobee.app.servers import ServerOptions
    from aerobee.runtime.machine import resolve

    return ServerOptions(
        host=resolve(given["host"]), insecure=given["insecure"], plain_clients=given["plain_clients"],
        config_file=given["conf"], settings=given["settings"], flags=flags, lenient=given["lenient"],
    )  # fmt: skip


def print_settings(loaded: Loaded, as_json: bool, keys: Container[str] | None) -> int:
    """Print every setting, or those of `keys`, and return the exit code."""
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
    """Return a function that prints the ready line for scripts. People read the same in the log."""

    def ready(address: str) -> None:
        if as_json:
            print_json_line({what: address, "pid": process_id()})

    return ready
