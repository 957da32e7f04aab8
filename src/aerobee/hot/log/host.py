"""Host addresses in records: 4 or 16 bytes of address, then 4 bytes of port.

As text a host is `1.2.3.4:10911` or `[::1]:10911`. Java's form without brackets, `0:0:0:0:0:0:0:1:10911`, is read too.
RocketMQ: MessageExt.socketAddress2ByteBuffer.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.layout import HOST_PORT_SIZE, HOST_V4_SIZE, HOST_V6_SIZE

# What an IPv4 address begins with when it is written as an IPv6 address.
_MAPPED: Final = bytes(10) + b"\xff\xff"


def encode_host(text: str, port: int | None = None) -> bytes:
    """Return the 8 or 20 bytes of `address:port`, or of an address and its port.

    An IPv4 address written as IPv6 (`::ffff:1.2.3.4`) counts as IPv4, as in Java.
    """
    if port is not None:
        return _encode_address(text, port)
    name, colon, port_text = text.rpartition(":")
    if not colon or not port_text.isascii() or not port_text.isdigit() or len(port_text) > 5:
        raise InvalidArgumentError(f"host {text!r} is not address:port")
    return _encode_address(name, int(port_text))


def _encode_address(address: str, port: int) -> bytes:
    if not 0 <= port <= 65535:
        raise InvalidArgumentError(f"port {port} of {address!r}: no such port")
    try:
        return _address_bytes(address) + port.to_bytes(HOST_PORT_SIZE, "big")
    except ValueError as error:
        raise InvalidArgumentError(f"host {address!r} is not an IP address") from error


def _address_bytes(address: str) -> bytes:
    if ":" not in address:
        return IPv4Address(address).packed
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    # A scope (`fe80::1%eth0`) has no meaning on another machine.
    packed = IPv6Address(address.partition("%")[0]).packed
    return packed.removeprefix(_MAPPED)


def decode_host(data: bytes) -> str:
    """Return the text of a host. A damaged port is shown as it is, even if it is no valid port."""
    if len(data) == HOST_V4_SIZE:
        port = int.from_bytes(data[-HOST_PORT_SIZE:], "big", signed=True)
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}:{port}"
    if len(data) == HOST_V6_SIZE:
        port = int.from_bytes(data[-HOST_PORT_SIZE:], "big", signed=True)
        return f"[{IPv6Address(data[:-HOST_PORT_SIZE])}]:{port}"
    raise InvalidArgumentError(f"a host is 8 or 20 bytes, not {len(data)}")
