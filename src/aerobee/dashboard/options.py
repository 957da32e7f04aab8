"""What the command line says of a dashboard."""

from __future__ import annotations

import enum
import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from aerobee.client.core import Credentials
from aerobee.dashboard.security import host_name, is_loopback_name

PORT: Final = 8088


class Mode(enum.Enum):
    """Who may log in: users of the cluster, people of a file, or everybody who reaches a loopback address."""

    cluster = "cluster"
    file = "file"
    open = "open"


@dataclass(frozen=True, slots=True)
class LocalPlaces:
    """Files and directories of this machine that pages read: audit logs of servers, projects of pipelines, archives."""

    audit_logs: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """One dashboard. `host` is an IP address. With `credentials` it collects figures as this user of the cluster."""

    namesrv: str
    host: str = "127.0.0.1"
    port: int = PORT
    root_path: str = ""
    public_url: str = ""
    users: str | None = None
    read_only: bool = False
    viewer_bodies: bool = False
    # Whether logins without TLS are taken from other machines.
    insecure: bool = False
    step_s: float = 10.0
    credentials: Credentials | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    places: LocalPlaces = LocalPlaces()
    # How long to wait for a cluster at the start.
    patience_s: float = 30.0

    @property
    def is_public(self) -> bool:
        """Whether a proxy passes requests of other machines on."""
        return bool(self.public_url) and not is_loopback_name(host_name(urlsplit(self.public_url).netloc))
