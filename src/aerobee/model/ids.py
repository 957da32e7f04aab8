"""Message ids. An offset id says where a message is stored; a unique id is chosen by the client that sends it.

    offset id   store host 8 or 20 bytes, physical offset 8; as 32 or 56 upper-case hex digits
    unique id   ip 4 or 16, process id 2, class loader hash 4, ms of the month 4, counter 2; 32 or 56 digits

RocketMQ: MessageDecoder.createMessageId, decodeMessageId; MessageClientIDSetter.
"""

from dataclasses import dataclass

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.host import decode_host, encode_host
from aerobee.model.offsets import PhysicalOffset


@dataclass(frozen=True, slots=True)
class OffsetId:
    """The place where a message is stored: the broker's address and the physical offset."""

    host: str
    physical_offset: PhysicalOffset


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offset id of a record. `store_host` is as the record holds it (8 or 20 bytes)."""
    if len(store_host) not in (8, 20) or not -(1 << 63) <= physical_offset < 1 << 63:
        raise InvalidArgumentError("an offset id needs 8 or 20 host bytes and a 64-bit offset")
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def offset_message_id_of(host: str, physical_offset: int) -> str:
    """Return the offset id for a broker address in text."""
    return offset_message_id(encode_host(host), physical_offset)


def decode_offset_message_id(message_id: str) -> OffsetId:
    """Return where an offset id points. A unique id has the same form and decodes to nonsense."""
    data = _unhex(message_id)
    return OffsetId(decode_host(data[:-8]), PhysicalOffset(int.from_bytes(data[-8:], "big", signed=True)))


def unique_message_id(ip: bytes, pid: int, loader_hash: int, month_start_ms: int, now_ms: int, counter: int) -> str:
    """Make a client's id for a message that it is about to send.

    A clock set back by less than 1,000 s counts as the start of the month. RocketMQ: createUniqID.
    """
    if len(ip) not in (4, 16):
        raise InvalidArgumentError(f"an ip is 4 or 16 bytes, not {len(ip)}")
    since = now_ms - month_start_ms
    if -1_000_000 < since < 0:
        since = 0
    number = (pid & 0xFFFF) << 80 | (loader_hash & 0xFFFFFFFF) << 48 | (since & 0xFFFFFFFF) << 16 | counter & 0xFFFF
    return f"{ip.hex().upper()}{number:024X}"


def _unhex(text: str) -> bytes:
    # bytes.fromhex also accepts blanks between digits.
    if len(text) in (32, 56) and text.isascii() and text.isalnum():
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise InvalidArgumentError(f"message id {text!r} is not 32 or 56 hex digits")
