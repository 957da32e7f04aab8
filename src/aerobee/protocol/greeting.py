"""The begin of a connection: plain frames or TLS, each with or without the PROXY protocol header of a load balancer.

The first bytes decide. A frame begins with 0x00 (its length is below 16 MiB), a TLS hello with 0x16, a header with
`PROXY ` (version 1, a line of text) or with a signature of 12 bytes (version 2, binary). The frame
reader refuses any other begin.

RocketMQ: NettyRemotingServer.HandshakeHandler, TlsModeHandler, HAProxyMessageHandler.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.model.numbers import int_or

# The first byte of a TLS record that carries a handshake.
TLS_HANDSHAKE: Final = 0x16

_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
# The line end is included.
_V1_BYTES_MAX: Final = 107
_V2_HEAD: Final = 16
# The specification promises that this much arrives in one segment. A longer header would use memory for strangers.
_V2_BYTES_MAX: Final = 536
# Version 2: bytes of both addresses and ports, by address family (unspecified, IPv4, IPv6, UNIX).
_V2_ADDRESS_BYTES: Final = (0, 12, 36, 216)

Source = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Greeted:
    """The kind of a connection."""

    is_tls: bool
    # Address and port of the client as its proxy tells them. None without a header, and if the header tells none.
    source: Source | None
    # The bytes after the header, which are the first of frames or of TLS.
    rest: bytes


class Greeting:
    """The first bytes of one connection, collected until they tell its kind."""

    __slots__ = ("_held", "_source", "_was_proxied")

    def __init__(self) -> None:
        self._held = b""
        self._source: Source | None = None
        self._was_proxied = False

    def receive_data(self, data: bytes) -> Greeted | None:
        """Return the kind, or None while it is not known. Raises RemoteProtocolError for a bad header."""
        held = self._held = self._held + data if self._held else data
        if held and not self._was_proxied:
            end = _header_end(held)
            if end < 0:
                return None
            if end:
                self._source = _v1_source(held[:end]) if held[:1] == b"P" else _v2_source(held[:end])
                self._was_proxied = True
                held = self._held = held[end:]
        if not held:
            return None
        self._held = b""
        return Greeted(held[0] == TLS_HANDSHAKE, self._source, held)


def _header_end(held: bytes) -> int:
    """Return the size of the PROXY header: 0 if there is none, -1 while bytes are missing."""
    if held[0] == _V1[0]:
        return _v1_end(held)
    return _v2_end(held) if held[0] == _V2[0] else 0


def _v1_end(held: bytes) -> int:
    if not held.startswith(_V1):
        return -1 if _V1.startswith(held) else 0
    end = held.find(b"\r\n", 0, _V1_BYTES_MAX)
    if end < 0 and len(held) >= _V1_BYTES_MAX:
        raise RemoteProtocolError(f"PROXY header: no line end within {_V1_BYTES_MAX} bytes")
    return end + 2 if end >= 0 else -1


def _v2_end(held: bytes) -> int:
    if not held.startswith(_V2):
        return -1 if _V2.startswith(held) else 0
    if len(held) < _V2_HEAD:
        return -1
    size = _V2_HEAD + int.from_bytes(held[14:16], "big")
    if size > _V2_BYTES_MAX:
        raise RemoteProtocolError(f"PROXY header: {size} bytes, more than {_V2_BYTES_MAX}")
    return size if len(held) >= size else -1


def _v1_source(line: bytes) -> Source | None:
    words = line[:-2].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return None
    if words[1] not in ("TCP4", "TCP6") or len(words) != 6:
        raise RemoteProtocolError(f"PROXY header: {line[:-2]!r} is not PROXY TCP4 address address port port")
    for address in words[2:4]:
        _require_address(address, is_v6=words[1] == "TCP6")
    source_port, _ = map(_port, words[4:6])
    return words[2], source_port


def _require_address(text: str, *, is_v6: bool) -> None:
    try:
        if "%" in text:
            raise AddressValueError(text)
        IPv6Address(text) if is_v6 else IPv4Address(text)
    except AddressValueError:
        raise RemoteProtocolError(f"PROXY header: {text!r} is not an IPv{6 if is_v6 else 4} address") from None


def _port(text: str) -> int:
    port = int_or(text, None, 0, 65535) if text.isdigit() and len(text) <= 5 else None
    if port is None:
        raise RemoteProtocolError(f"PROXY header: {text!r} is not a port")
    return port


def _v2_source(header: bytes) -> Source | None:
    """Return the address of the client. The fields after the addresses (TLVs) are not read."""
    version, command = header[12] >> 4, header[12] & 15
    family, transport = header[13] >> 4, header[13] & 15
    if version != 2 or command > 1:
        raise RemoteProtocolError(f"PROXY header: version {version} and command {command} are unknown")
    if command == 0:  # LOCAL: the proxy connects for itself, such as for a health check
        return None
    if family >= len(_V2_ADDRESS_BYTES) or transport > 2:
        raise RemoteProtocolError(f"PROXY header: address family {family} and transport {transport} are unknown")
    if len(header) - _V2_HEAD < _V2_ADDRESS_BYTES[family]:
        raise RemoteProtocolError(f"PROXY header: {len(header) - _V2_HEAD} bytes do not hold its addresses")
    if family == 1:
        return str(IPv4Address(header[16:20])), int.from_bytes(header[24:26], "big")
    if family == 2:
        return str(IPv6Address(header[16:32])), int.from_bytes(header[48:50], "big")
    return None
