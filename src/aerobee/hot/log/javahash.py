"""Java's String.hashCode, which RocketMQ uses for tags codes and index keys.

Java strings are UTF-16, so a character outside the basic plane is hashed as its two surrogates.
"""

from typing import Final

from mypy_extensions import i64

_MASK: Final = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """Return `text.hashCode()` as Java computes it, a signed 32-bit value."""
    h: i64 = extend_hash(0, text)
    return h - 0x100000000 if h > 0x7FFFFFFF else h


def extend_hash(start: i64, text: str) -> i64:
    """Return the unsigned hash of a text that ends with `text`. `start` is the unsigned hash of what comes before."""
    h: i64 = start
    i: i64 = 0
    n: i64 = len(text)
    while i < n:
        c: i64 = ord(text[i])
        if c > 0xFFFF:
            c -= 0x10000
            h = (h * 31 + 0xD800 + (c >> 10)) & _MASK
            c = 0xDC00 + (c & 0x3FF)
        h = (h * 31 + c) & _MASK
        i += 1
    return h


def extend_hash_utf8(start: i64, data: bytes, begin: i64, end: i64) -> i64:
    """Return `extend_hash` for UTF-8 text in a buffer. Plain ASCII text needs no `str`."""
    h: i64 = start
    i: i64 = begin
    while i < end:
        c: i64 = data[i]
        if c > 0x7F:
            return extend_hash(start, data[begin:end].decode("utf-8", "replace"))
        h = (h * 31 + c) & _MASK
        i += 1
    return h


def java_hash_utf8(data: bytes, start: i64, end: i64) -> int:
    """Return `java_hash` of UTF-8 text in a buffer."""
    h: i64 = extend_hash_utf8(0, data, start, end)
    return h - 0x100000000 if h > 0x7FFFFFFF else h


def tags_code(tags: str) -> int:
    """Return the tags code of a queue unit, 0 without tags. RocketMQ: MessageExtBrokerInner.tagsString2tagsCode."""
    return java_hash(tags) if tags else 0
