"""The identity of a server: the addresses it serves and advertises, its broker name, the ids of its messages.

RocketMQ: BrokerConfig (brokerIP1, brokerName), MessageClientIDSetter.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import replace

from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import Loaded
from aerobee.errors import InvalidArgumentError
from aerobee.model.uniqueids import UniqueIds
from aerobee.runtime.machine import host_name, resolve
from aerobee.runtime.process import local_address, month_bounds_ms, process_id
from aerobee.runtime.seams import Clock, Entropy
from aerobee.telemetry.config import MetricsConfig

LOOPBACK = "127.0.0.1"
DEFAULT_BROKER_NAME = "DEFAULT_BROKER"


def require_safe_host(host: str, *, insecure: bool) -> str:
    """Return the IP address to serve. Raise InvalidArgumentError beyond loopback unless the operator allows it."""
    address = ipaddress.ip_address(resolve(host))
    if not address.is_loopback and not insecure:
        raise InvalidArgumentError(
            f"other machines can reach {host}, and this server does not authenticate clients",
            hint="Listen on 127.0.0.1 (the default), or add --insecure to let every client in.",
        )
    return str(address)


def safe_metrics(loaded: Loaded, *, insecure: bool) -> MetricsConfig:
    """Return the settings of metrics, with an IP address. Raise as `require_safe_host`."""
    config = loaded.get(MetricsConfig)
    if not config.is_on or not config.prom_exporter_host:
        return config
    return replace(config, prom_exporter_host=require_safe_host(config.prom_exporter_host, insecure=insecure))


def told_address(host: str, advertise: str | None) -> str:
    """Return the address that clients are told: `advertise`, else the one served, else that of this machine."""
    if advertise:
        return resolve(advertise)
    return local_address() if ipaddress.ip_address(host).is_unspecified else host


def reachable_from_here(host: str) -> str:
    """Return an address under which this machine itself reaches a server on `host`."""
    address = ipaddress.ip_address(host)
    if not address.is_unspecified:
        return host
    return LOOPBACK if address.version == 4 else "::1"


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def identified(config: BrokerConfig, host: str, advertise: str | None = None) -> BrokerConfig:
    """Return the configuration with broker name and address filled in where they are empty."""
    address = told_address(host, advertise or config.broker_ip1 or None)
    return replace(config, broker_ip1=address, broker_name=config.broker_name or default_broker_name())


def default_broker_name() -> str:
    """Return the host name as a valid topic name, since a broker has a topic of its own name."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", host_name())[:100].strip("-")
    return name or DEFAULT_BROKER_NAME


def unique_ids(address: str, clock: Clock, entropy: Entropy) -> Callable[[], str]:
    """Return a function that makes ids for messages without one."""
    ids = UniqueIds(address, process_id(), entropy.token(4), month_bounds_ms)
    return lambda: ids.next(clock.now_ms())
