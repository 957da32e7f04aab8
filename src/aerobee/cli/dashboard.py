"""`aerobee dashboard`: web pages over a cluster, in a process of its own."""

from __future__ import annotations

import functools
import getpass
import sys
from typing import Unpack

import click

from aerobee.cli.connecting import asked_credentials, connection_options, tls_context
from aerobee.cli.output import DONE
from aerobee.cli.serving import LogOptions, log_file, log_options, tell_ready
from aerobee.errors import ConfigError, InvalidArgumentError
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.smallfile import read_small, replace_small

_ROLES = ("viewer", "operator", "admin")


class _Given(LogOptions):
    """The options that are passed on as they are."""

    host: str
    port: int
    root_path: str
    public_url: str
    read_only: bool
    viewer_bodies: bool
    insecure: bool


@click.command()
@click.option("-n", "--namesrv", envvar="NAMESRV_ADDR", default="127.0.0.1:9876", show_default=True,
              help="Name servers, separated by semicolons. NAMESRV_ADDR sets them, too.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8088, show_default=True, help="0 takes a free port.")
@click.option("--root-path", default="", metavar="/PATH", help="Path below which a proxy serves the dashboard.")
@click.option("--public-url", default="", metavar="URL", help="What people type, where a proxy stands in front.")
@click.option("--users", metavar="FILE", help="People of the dashboard, for a cluster without users.")
@click.option("--add", metavar="NAME", help="With --users: ask for a password, write the person's line, and end.")
@click.option("--role", type=click.Choice(_ROLES), default="viewer", show_default=True, help="With --add: the role.")
@click.option("--read-only", is_flag=True, help="Nobody changes anything: every person is a viewer.")
@click.option("--viewer-bodies", is_flag=True, help="Viewers may read bodies and properties of messages.")
@click.option("--insecure", is_flag=True, help="Let other machines log in without TLS: secrets cross the network.")
@click.option("--audit-log", "audit_logs", multiple=True, metavar="FILE",
              help="Show the audit log of a server on this machine (its auditLogPath). May be repeated.")  # fmt: skip
@click.option("--pipeline", "pipelines", multiple=True, metavar="DIR",
              help="Show a project of `aerobee pipeline`, or a directory of checkpoints. May be repeated.")  # fmt: skip
@click.option("--archive", "archives", multiple=True, metavar="DIR",
              help="Show an archive of `aerobee archive`. May be repeated.")  # fmt: skip
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input ends.")
@connection_options
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print one ready line as JSON.")
def dashboard(
    namesrv: str,
    users: str | None,
    add: str | None,
    role: str,
    with_parent: bool,
    as_json: bool,
    audit_logs: tuple[str, ...],
    pipelines: tuple[str, ...],
    archives: tuple[str, ...],
    **given: Unpack[_Given],
) -> int:
    """Serve web pages over a cluster, Aerobee's or Apache's.

    Where the cluster has users, people log in as one of them, and the dashboard signs as that user. Where it has none,
    --users names a file of people; without it the dashboard serves loopback only, and nobody logs in.
    """
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        hint = "`pip install 'aerobee[dashboard]'` installs it."
        raise InvalidArgumentError(f"the dashboard needs the package {error.name}", hint=hint) from None
    if add is not None:
        return _add_person(users, add, role)
    from aerobee.app import process
    from aerobee.dashboard.options import DashboardOptions, LocalPlaces
    from aerobee.dashboard.serve import serve_dashboard
    from aerobee.runtime.machine import resolve

    options = DashboardOptions(
        namesrv=namesrv,
        host=resolve(given["host"]),
        port=given["port"],
        root_path=_path(given["root_path"]),
        public_url=_url(given["public_url"]),
        users=users,
        read_only=given["read_only"],
        viewer_bodies=given["viewer_bodies"],
        insecure=given["insecure"],
        credentials=asked_credentials(),
        tls=tls_context(),
        places=LocalPlaces(audit_logs, pipelines, archives),
    )
    log = log_file(given)
    tell = tell_ready("dashboard", as_json=True) if as_json else _tell_parent if with_parent else _tell
    serve = functools.partial(serve_dashboard, options, tell)
    return process.run(serve, log_level="WARN" if log is None else "INFO", log_file=log, with_parent=with_parent)


def _tell(address: str) -> None:
    click.echo(f"the dashboard is at {address}")
    sys.stdout.flush()


def _tell_parent(address: str) -> None:
    """Print the address alone, for the process that started this one."""
    click.echo(address)
    sys.stdout.flush()


def _path(text: str) -> str:
    path = text.rstrip("/")
    if path and (not path.startswith("/") or "//" in path or any(one in path for one in "?#% \\")):
        raise click.BadParameter(f"{text!r} is no path such as /mq", param_hint="--root-path")
    return path


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise click.BadParameter(f"{text!r} is no address such as https://mq.example.org", param_hint="--public-url")
    return text.rstrip("/")


def _add_person(users: str | None, name: str, role: str) -> int:
    """Write the line of a person into the users file, in place of an older one."""
    from aerobee.dashboard.security import Role
    from aerobee.dashboard.usersfile import line_of

    if users is None:
        raise click.UsageError("--add goes with --users FILE")
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if password != getpass.getpass("Once more: "):
            raise ConfigError(["the passwords differ"])
    else:
        password = sys.stdin.readline().rstrip("\n")
    line = line_of(name, Role[role], password, SystemEntropy().token)
    before = (read_small(users) or b"").decode().splitlines()
    kept = [one for one in before if not one.startswith(f"{name}:")]
    replace_small(users, "\n".join([*kept, line, ""]).encode())
    click.echo(f"{name} is in {users} as {role}")
    return DONE
