"""Whether a server may start where other machines reach it. On loopback everything may.

Elsewhere a server takes only TLS and only users that it knows. `--plain-clients` drops the first, and is logged at each
start; `--insecure` drops both. RocketMQ's HA protocol has neither, so its port is opened to other machines only with
`--insecure`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from aerobee.access.config import AccessConfig
from aerobee.config.loader import Loaded
from aerobee.coordination.config import CoordinationConfig
from aerobee.errors import InvalidArgumentError
from aerobee.net.config import TlsConfig, TlsMode
from aerobee.store.config import BrokerRole, StoreConfig

_SECURE = "docs/security.md sets both up in ten lines, and `aerobee up --secure` does it by itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """Where a server listens, as the command line says it. `host` is an IP address."""

    host: str = "127.0.0.1"
    insecure: bool = False
    plain_clients: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What decides. `host` is an IP address."""

    host: str
    has_tls: bool
    has_users: bool
    insecure: bool = False
    plain_clients: bool = False
    # Whether a port for RocketMQ's HA protocol is opened.
    has_ha_port: bool = False
    # Whether replicas of a group copy its log without proving that they belong to it.
    has_open_group: bool = False


@dataclass(frozen=True, slots=True)
class StartVerdict:
    """Why a server may not start (nothing if it may), and what is logged each time it does."""

    refusal: str = ""
    hint: str = ""
    warning: str = ""


def judge(start: Start) -> StartVerdict:
    """Return whether a server may start."""
    if ipaddress.ip_address(start.host).is_loopback:
        return StartVerdict()
    if start.insecure:
        return StartVerdict(warning=_open(start))
    where = f"other machines can reach {start.host}"
    if not start.has_users:
        return StartVerdict(
            f"{where}, and this server does not authenticate clients",
            "Set authenticationEnabled=true and authorizationEnabled=true with users, listen on 127.0.0.1 (the "
            f"default), or add --insecure to let every client in. {_SECURE}",
        )
    if not start.has_tls and not start.plain_clients:
        return StartVerdict(
            f"{where}, and clients' messages and signatures would cross the network in the clear",
            "Set tls.server.mode=enforcing with a certificate (`aerobee tls init` makes one), or add --plain-clients. "
            f"{_SECURE}",
        )
    if start.has_ha_port:
        return StartVerdict(
            f"{where}, and the port for slaves (haListenPort) would give every message to whoever asks: RocketMQ's HA "
            "protocol has neither users nor TLS",
            "Use a group with coordinatorAddr, whose replicas prove who they are, or add --insecure.",
        )
    if start.has_open_group:
        return StartVerdict(
            f"{where}, and the port for replicas would give every message to whoever asks, because the group has no "
            "secret",
            "Set innerClientAuthenticationCredentials, the same for all servers of the cluster, or add --insecure.",
        )
    if start.has_tls:
        return StartVerdict()
    return StartVerdict(warning="--plain-clients: messages and signatures cross the network in the clear")


def _open(start: Start) -> str:
    missing = [what for what, has in (("users", start.has_users), ("TLS", start.has_tls)) if not has]
    if not missing and not start.has_ha_port and not start.has_open_group:
        return ""
    is_open = start.has_ha_port or start.has_open_group
    ports = " The HA port gives every message to whoever asks." if is_open else ""
    return f"--insecure: other machines can reach this server without {' and '.join(missing) or 'a check'}.{ports}"


def has_slaves(config: StoreConfig) -> bool:
    """Tell whether the settings say that slaves follow this broker."""
    return config.broker_role is not BrokerRole.SLAVE and (
        config.broker_role is BrokerRole.SYNC_MASTER or config.total_replicas > 1 or config.ha_listen_port is not None
    )


def require_start(loaded: Loaded, options: HostOptions, *, warn: Callable[[str], None] = lambda words: None) -> None:
    """Raise InvalidArgumentError if a server with these settings may not start there. Warn of what is open."""
    tls, access = loaded.get(TlsConfig), loaded.find(AccessConfig)
    store, coordination = loaded.find(StoreConfig), loaded.find(CoordinationConfig)
    is_group = coordination is not None and bool(coordination.addr)
    verdict = judge(
        Start(
            host=options.host,
            has_tls=tls.server_mode is TlsMode.enforcing,
            has_users=access is not None and access.authentication_enabled,
            insecure=options.insecure,
            plain_clients=options.plain_clients,
            has_ha_port=store is not None and not is_group and has_slaves(store),
            has_open_group=is_group and (access is None or access.inner_credentials() is None),
        )
    )
    if verdict.refusal:
        raise InvalidArgumentError(verdict.refusal, hint=verdict.hint)
    if verdict.warning:
        warn(verdict.warning)
