"""Source addresses of policies. They are compared as addresses, not as texts: `::1` and `[0:0:0:0:0:0:0:1]` are one.

An IPv4 address that is written as IPv6 (`::ffff:10.0.0.1`) counts as the IPv4 address. Apache compares texts.
RocketMQ: IPAddressUtils.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import Final, TypeAlias

from aerobee.access.refusal import invalid

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED: Final = 96
_TEXT_MAX: Final = 64


def address_of(host: str) -> Address | None:
    """Return the address that a text names, or None. A zone (`fe80::1%eth0`) does not count."""
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return found if mapped is None else mapped


@functools.lru_cache(maxsize=4096)
def network_of(text: str) -> Network:
    """Return the addresses that a policy names: one address, or a CIDR block. Raise AccessRefusedError."""
    host, slash, prefix = text.strip().partition("/")
    host = host.strip("[]")
    try:
        if len(text) > _TEXT_MAX or (slash and not prefix.isdigit()):
            raise ValueError(text)
        found = ipaddress.ip_network(f"{host}{slash}{prefix}", strict=False)
    except ValueError:
        raise invalid(f"The source ip is invalid: {text[:_TEXT_MAX]!r} is no address and no CIDR block.") from None
    if isinstance(found, ipaddress.IPv6Network) and found.prefixlen >= _MAPPED:
        mapped = found.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.ip_network((mapped, found.prefixlen - _MAPPED), strict=False)
    return found


def is_within(address: Address | None, networks: tuple[Network, ...]) -> bool:
    """Tell whether an address is in one of the networks. Without networks every address is."""
    if not networks:
        return True
    return address is not None and any(address.version == one.version and address in one for one in networks)
