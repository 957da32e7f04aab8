"""How every command that talks to a cluster connects: the profile, the TLS options, the environment.

The options reach the connection through click's context, so that commands need no arguments for them. No option holds
a secret: other users of a machine see command lines. Secrets come from a profile or from the environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from aerobee.admin.connection import AdminConnection
from aerobee.client.core import ClientTls, Credentials, credentials_of, tls_of, variables_of, with_profile
from aerobee.errors import ConfigError, InvalidArgumentError
from aerobee.runtime.process import environment, set_environment

F = TypeVar("F", bound=Callable[..., Any])

_META = "aerobee.tls"
_FILE = click.Path(exists=True, dir_okay=False)


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    name = str(option.name)
    if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
        context.meta.setdefault(_META, {})[name.removeprefix("tls_")] = value


def _option(*names: str, **rest: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=_keep, **rest)


def _use_profile(context: click.Context, option: click.Parameter, name: str | None) -> None:
    """Set the variables of the profile for the rest of the command. Commands that it starts inherit them."""
    before = environment()
    try:
        after = with_profile(name, before)
    except ConfigError as error:
        raise click.UsageError("; ".join(error.problems)) from None
    changed: dict[str, str | None] = {key: value for key, value in after.items() if before.get(key) != value}
    gone = {key: None for key in before if key not in after}
    if changed or gone:
        context.with_resource(set_environment({**changed, **gone}))


# It is read before the others, because it may name the name server too.
_PROFILE_OPTION = click.option(
    "--profile",
    metavar="NAME",
    expose_value=False,
    is_eager=True,
    callback=_use_profile,
    help="Credentials of ~/.aerobee/credentials.toml (AEROBEE_PROFILE; another file: AEROBEE_CREDENTIALS).",
)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _option("--tls/--no-tls", default=None, help="Use TLS and trust the CAs of the system (AEROBEE_TLS)."),
    _option("--tls-ca", type=_FILE, metavar="FILE", help="Use TLS and trust this CA, a PEM file (AEROBEE_TLS_CA)."),
    _option(
        "--tls-cert", type=_FILE, metavar="FILE", help="Certificate of this client, a PEM file (AEROBEE_TLS_CERT)."
    ),
    _option(
        "--tls-key", type=_FILE, metavar="FILE", help="Key of that certificate, if in another file (AEROBEE_TLS_KEY)."
    ),
    _option("--tls-any-host", is_flag=True, help="Accept certificates that were issued for other hosts."),
    _option("--tls-insecure", is_flag=True, help="Use TLS without checking the certificates of the servers."),
)


def connection_options(command: F) -> F:
    """Add --profile and the TLS options after those of the command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return _PROFILE_OPTION(command)


def asked_tls() -> ClientTls | None:
    """Return the TLS settings of the running command. Paths are absolute, since Spark changes directories."""
    try:
        found = tls_of(click.get_current_context().meta.get(_META, {}), environment())
    except InvalidArgumentError as error:
        raise click.UsageError(error.message) from None
    if found is None:
        return None
    return dataclasses.replace(found, ca=_whole(found.ca), cert=_whole(found.cert), key=_whole(found.key))


def _whole(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def tls_context() -> ssl.SSLContext | None:
    """Return the TLS context of the running command, or None for plain connections."""
    asked = asked_tls()
    return None if asked is None else asked.context()


def asked_credentials() -> Credentials | None:
    """Return the credentials of the running command."""
    try:
        return credentials_of(environment())
    except InvalidArgumentError as error:
        raise click.UsageError(error.message) from None


def admin_connection(namesrv: str, timeout_s: float = 5.0) -> AdminConnection:
    """Return a connection to a cluster with the credentials and the TLS of the running command."""
    return AdminConnection(namesrv, timeout_s=timeout_s, credentials=asked_credentials(), tls=tls_context())


@contextlib.contextmanager
def tls_environment(**more: str | None) -> Iterator[None]:
    """Set the environment for Spark's processes: the TLS settings, and the values of `more` that are not None."""
    wanted = {**variables_of(asked_tls()), **{name: value for name, value in more.items() if value is not None}}
    with set_environment(wanted):
        yield
