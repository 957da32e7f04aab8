"""`--tls` and its like, on every command that speaks to a cluster; what they and the environment say together.

They reach who connects through click's context and not as arguments: no command but that needs to know of them.
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

from aerobee.client.core import ClientTls, tls_of, variables_of
from aerobee.errors import InvalidArgumentError
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


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _option("--tls/--no-tls", default=None, help="TLS to the servers, trusting whom the system trusts; AEROBEE_TLS."),
    _option("--tls-ca", type=_FILE, metavar="FILE", help="TLS, trusting this CA (PEM); AEROBEE_TLS_CA."),
    _option("--tls-cert", type=_FILE, metavar="FILE", help="Our own certificate (PEM); AEROBEE_TLS_CERT."),
    _option("--tls-key", type=_FILE, metavar="FILE", help="Its key, if in another file; AEROBEE_TLS_KEY."),
    _option("--tls-any-host", is_flag=True, help="Servers' certificates may be for other hosts."),
    _option("--tls-insecure", is_flag=True, help="TLS without a look at the servers' certificates."),
)


def tls_options(command: F) -> F:
    """Puts them behind the command's own."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked_tls() -> ClientTls | None:
    """What the running command was told. Spark's processes have other working directories, so paths are whole."""
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
    """For the connections of the running command; None: plain ones."""
    asked = asked_tls()
    return None if asked is None else asked.context()


@contextlib.contextmanager
def tls_environment(**more: str | None) -> Iterator[None]:
    """What was told, and `more`, for code and processes that ask the environment: Spark's. None: as it was."""
    wanted = {**variables_of(asked_tls()), **{name: value for name, value in more.items() if value is not None}}
    with set_environment(wanted):
        yield
