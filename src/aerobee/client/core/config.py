"""The settings of every client: name servers, identity, credentials, TLS, intervals."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypedDict

from aerobee.client.core.keywords import require_at_least, require_types, unexpected_arguments, wrong_type
from aerobee.client.core.profiles import (
    ACCESS_KEY_VARIABLE,
    NAMESRV_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
    with_profile,
)
from aerobee.client.core.tls import tls_of
from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import int_or
from aerobee.protocol.codes import BINARY, JSON

NAMESRV_PORT: Final = 9876

_CODECS: Final = {"JSON": JSON, "ROCKETMQ": BINARY}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of a client for brokers with access control. `repr` hides the secret."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of every client."""

    # The prefix of a tenant's topics and groups. The client adds it on the wire and removes it again.
    namespace: str
    # Give both or none. The default is $AEROBEE_ACCESS_KEY and $AEROBEE_SECRET_KEY.
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    # A profile of ~/.aerobee/credentials.toml, or of the file that $AEROBEE_CREDENTIALS names: keys, TLS files and name
    # servers under one name. It overrides the environment. The default is $AEROBEE_PROFILE.
    profile: str | None
    # True: with the files that $AEROBEE_TLS_... name, or with what the system trusts. The default is $AEROBEE_TLS.
    tls: ssl.SSLContext | bool | None
    instance_name: str | None
    client_ip: str | None
    unit_name: str | None
    vip_channel: bool
    # The codec of headers: JSON, or ROCKETMQ for the binary one.
    serialize: str
    request_timeout_ms: int
    connect_timeout_ms: int
    heartbeat_interval_ms: int
    route_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of a client, with RocketMQ's defaults (ClientConfig). Clients with equal settings share a core."""

    namesrv: tuple[str, ...]
    # A part of the client id. Where it is not given, the process id and a counter are used.
    instance_name: str | None = None
    client_ip: str | None = None
    unit_name: str | None = None
    namespace: str = ""
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    # Send to the port two below the broker's own, which Apache's broker keeps for sends.
    vip_channel: bool = False
    codec: int = JSON
    request_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 30_000
    route_interval_ms: int = 30_000


def client_config(
    namesrv: str | Sequence[str] | None,
    environ: Mapping[str, str],
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    security_token: str | None = None,
    profile: str | None = None,
    tls: ssl.SSLContext | bool | None = None,
    serialize: str = "JSON",
    **rest: object,
) -> ClientConfig:
    """Return the settings that a user's arguments ask for. The environment fills what they leave out."""
    if serialize.upper() not in _CODECS:
        raise InvalidArgumentError(f"serialize={serialize!r} is none of {', '.join(_CODECS)}")
    if (access_key is None) != (secret_key is None):
        raise InvalidArgumentError("access_key and secret_key go together")
    if not isinstance(profile, str | None):
        raise wrong_type("profile", "a str", profile, "profile='prod'")
    environ = with_profile(profile, environ)
    if access_key is None or secret_key is None:
        credentials = credentials_of(environ, security_token)
    else:
        credentials = Credentials(access_key, secret_key, security_token) if access_key and secret_key else None
    config = ClientConfig(
        namesrv=parse_namesrv(namesrv, environ),
        credentials=credentials,
        tls=_context(tls, environ),
        codec=_CODECS[serialize.upper()],
        **rest,  # type: ignore[arg-type]  # the names are checked by the dataclass
    )
    require_types(config)
    for name in ("request_timeout_ms", "connect_timeout_ms", "heartbeat_interval_ms", "route_interval_ms"):
        require_at_least(name, getattr(config, name), 1)
    return config


def credentials_of(environ: Mapping[str, str], security_token: str | None = None) -> Credentials | None:
    """Return the credentials that the environment holds, or None. Raise InvalidArgumentError for half of a pair."""
    access_key, secret_key = environ.get(ACCESS_KEY_VARIABLE), environ.get(SECRET_KEY_VARIABLE)
    if bool(access_key) != bool(secret_key):
        there, missing = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE)[:: 1 if access_key else -1]
        raise InvalidArgumentError(f"${there} is set, and ${missing} is not: they go together")
    if not access_key or not secret_key:
        return None
    return Credentials(access_key, secret_key, security_token or environ.get(SECURITY_TOKEN_VARIABLE) or None)


def split_options(call: str, options: Mapping[str, Any], own: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that are fields of `own`, and those of every client. Raise TypeError for any other name."""
    mine = {one.name for one in fields(own)}
    shared = ClientOptions.__annotations__
    unknown = [name for name in options if name not in mine and name not in shared]
    if unknown:
        raise unexpected_arguments(call, unknown, (*sorted(mine), *shared))
    return (
        {name: value for name, value in options.items() if name in mine},
        {name: value for name, value in options.items() if name not in mine},
    )


def shown_defaults(own: type[Any]) -> dict[str, object]:
    """Return the default of each option of a client, for help()."""
    return {one.name: one.default for kind in (ClientConfig, own) for one in fields(kind) if one.default is not MISSING}


def _context(tls: ssl.SSLContext | bool | None, environ: Mapping[str, str]) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        return tls
    found = tls_of({"tls": tls}, environ)
    return None if found is None else found.context()


def parse_namesrv(namesrv: str | Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses of a list, or of a text with `;` or `,` between them. RocketMQ: NameServerAddressUtils."""
    if namesrv is None:
        namesrv = environ.get(NAMESRV_VARIABLE, "")
        source = f"${NAMESRV_VARIABLE}"
    else:
        source = "namesrv"
    if not isinstance(namesrv, str | Collection) or not all(isinstance(one, str) for one in namesrv):
        raise wrong_type("namesrv", "a str or a list of them", namesrv, "namesrv='host:9876'")
    texts = namesrv.replace(",", ";").split(";") if isinstance(namesrv, str) else list(namesrv)
    addresses = tuple(dict.fromkeys(_with_port(text.strip().removeprefix("http://")) for text in texts if text.strip()))
    if not addresses:
        raise InvalidArgumentError(
            "no name server is known", hint=f"pass namesrv='host:9876' or set {NAMESRV_VARIABLE}"
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or int_or(port, None, 1, 65535) is None or not _is_host(host):
            raise InvalidArgumentError(f"{source}: {address[:80]!r} is not host:port")
    return addresses


def _is_host(host: str) -> bool:
    """Tell whether a name of a host can be looked up. The look-up itself would fail with a UnicodeError."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _with_port(address: str) -> str:
    """Return the address with a port, which is the default port of name servers where it names none."""
    bare = address.rstrip("]")
    has_port = ":" in (address.rpartition("]")[2] if address.startswith("[") else address)
    return address if has_port or not bare else f"{address}:{NAMESRV_PORT}"
