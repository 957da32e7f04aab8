"""The property block of a message: pairs of name 0x01 value 0x02 in UTF-8.

A reader drops a pair without a name or without a value. Of two pairs with the same name the last counts.
RocketMQ: MessageDecoder.string2messageProperties, messageProperties2String; MessageUtils.deleteProperty.
"""

from typing import Final

from aerobee.errors import InvalidArgumentError

NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"


def encode_properties(properties: dict[str, str]) -> bytes:
    """Return the block of a dict. Raises InvalidArgumentError for a separator that would make other pairs."""
    parts: list[str] = []
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise InvalidArgumentError(f"property {name!r} holds a separator character (0x01 or 0x02)")
        parts.append(name)
        parts.append("\x01")
        parts.append(value)
        parts.append("\x02")
    # Java writes what UTF-8 cannot carry (a lone surrogate) as a question mark.
    return "".join(parts).encode("utf-8", "replace")


def decode_properties(block: bytes) -> dict[str, str]:
    """Return the sound pairs of a block. Bytes that are no UTF-8 become U+FFFD, as in Java."""
    result: dict[str, str] = {}
    if not block:
        return result
    for pair in block.decode("utf-8", "replace").split("\x02"):
        at = pair.find("\x01")
        if 0 < at < len(pair) - 1:
            result[pair[:at]] = pair[at + 1 :]
    return result


def find_property(block: bytes, name: bytes) -> bytes | None:
    """Return the value of one property without building a dict."""
    mark = name + NAME_END
    end = len(block)
    while True:
        at = block.rfind(mark, 0, end)
        if at < 0:
            return None
        if at == 0 or block[at - 1] == 2:
            start = at + len(mark)
            stop = block.find(VALUE_END, start)
            if stop < 0:
                stop = len(block)
            if stop > start:
                return block[start:stop]
        end = at + len(mark) - 1


def add_property(block: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with one more pair at its end."""
    if b"\x01" in name or b"\x02" in name or b"\x02" in value:
        raise InvalidArgumentError(f"property {name!r} holds a separator character (0x01 or 0x02)")
    pair = name + NAME_END + value + VALUE_END
    if block and block[-1] != 2:
        return block + VALUE_END + pair
    return block + pair


def remove_property(block: bytes, name: bytes) -> bytes:
    """Return the block without any pair of that name."""
    mark = name + NAME_END
    if mark not in block:
        return block
    kept = [pair for pair in block.split(VALUE_END) if not pair.startswith(mark)]
    return VALUE_END.join(kept)


def set_property(block: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with exactly one pair of that name."""
    return add_property(remove_property(block, name), name, value)
