"""Where the servers of a coordination store listen, as the settings name them."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field

from aerobee.model.numbers import parse_int


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdEndpoint:
    """Where a server of the coordination store listens."""

    host: str
    port: int
    is_tls: bool = False

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """How the coordination store is reached."""

    endpoints: tuple[EtcdEndpoint, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


def parse_endpoints(text: str) -> tuple[EtcdEndpoint, ...]:
    """Return the endpoints of a list with semicolons, such as `http://a:2379;https://b:2379`. Without a scheme it is
    http. Raise ValueError that says what is wrong."""
    found = tuple(_endpoint(part.strip()) for part in text.split(";") if part.strip())
    if not found:
        raise ValueError("it names no endpoint")
    if len({endpoint.is_tls for endpoint in found}) > 1:
        raise ValueError("some endpoints use https and others do not")
    return found


def _endpoint(text: str) -> EtcdEndpoint:
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "http", text
    if scheme not in ("http", "https"):
        raise ValueError(f"{text!r} begins with neither http:// nor https://")
    host, colon, port = rest.rstrip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not host.isascii() or any(letter in "/?#@\r\n \t" for letter in host):
        raise ValueError(f"{text!r} is not host:port")
    try:
        return EtcdEndpoint(host=host, port=parse_int(port, 1, 65535), is_tls=scheme == "https")
    except ValueError as error:
        raise ValueError(f"{text!r}: the port is wrong: {error}") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
