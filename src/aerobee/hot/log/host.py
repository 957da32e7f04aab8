"""Host addresses as records hold them: 4 or 16 address bytes, then the port in 4.

Text is `1.2.3.4:10911` or `[::1]:10911`; Java's `0:0:0:0:0:0:0:1:10911`, without brackets, is read too.
RocketMQ: MessageExt.socketAddress2ByteBuffer.
"""

from ipaddress import IPv4Address, IPv6Address

from aerobee.errors import InvalidArgumentError


def encode_host(text: str, port: int | None = None) -> bytes:
    """8 or 20 bytes of `address:port`, or of an address and its port.

    An IPv4 address written as IPv6 (`::ffff:1.2.3.4`) is an IPv4 address, as in Java.
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
        return _address_bytes(address) + port.to_bytes(4, "big")
    except ValueError as error:
        raise InvalidArgumentError(f"host {address!r} is not an IP address") from error


def _address_bytes(address: str) -> bytes:
    if ":" not in address:
        return IPv4Address(address).packed
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    # A scope (`fe80::1%eth0`) means nothing to another machine.
    packed = IPv6Address(address.partition("%")[0]).packed
    return packed[12:] if packed.startswith(b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff") else packed


def decode_host(data: bytes) -> str:
    """The text of 8 or 20 bytes. Any 4 bytes may stand for the port, so damaged ones show as they are."""
    if len(data) == 8:
        port = int.from_bytes(data[4:], "big", signed=True)
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}:{port}"
    if len(data) == 20:
        port = int.from_bytes(data[16:], "big", signed=True)
        return f"[{IPv6Address(data[:16])}]:{port}"
    raise InvalidArgumentError(f"a host is 8 or 20 bytes, not {len(data)}")
