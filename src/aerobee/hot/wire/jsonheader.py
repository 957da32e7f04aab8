"""The outer walk of a request's JSON header, for those that read their ext fields in place (jsonsend, jsonpull).

It reads what known writers make: no blanks, plain texts and integers, no name twice. Eight bytes are read at a time:
`last` is the highest position from which that is safe. -1 tells of a header for the general decode.
RocketMQ: RemotingSerializable.encode, RemotingCommand.
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from aerobee.hot.wire.frame import Frame
from aerobee.hot.wire.jsontext import json_number, pair_end

_CODE: Final = 0x22636F6465223A  # "code":
_FLAG: Final = 0x22666C6167223A  # "flag":
_OPAQUE: Final = 0x226F706171756522  # "opaque"
_EXT: Final = 0x226578744669656C  # "extFiel
_EXT_REST: Final = 0x6473223A  # ds":

# Bits of what was seen; without a code and ext fields it is no request of ours.
_SEEN_CODE: Final = 1
_SEEN_FLAG: Final = 2
_SEEN_OPAQUE: Final = 4
_SEEN_EXT: Final = 8
_NEEDED: Final = 9


def find_ext(frame: Frame, buf: bytes, at: i64, end: i64, last: i64) -> tuple[i64, i64]:
    """Where the object of the ext fields begins in the header at `at`, and what was seen before it."""
    if at >= end or buf[at] != 0x7B:
        return -1, 0
    return _walk(frame, buf, at, end, last, 0)


def ends_well(frame: Frame, buf: bytes, at: i64, end: i64, last: i64, seen: i64) -> bool:
    """Whether what follows the ext fields, at `at`, is the rest of a header that ends at `end`."""
    if at < 0 or at >= end:
        return False
    if buf[at] == 0x2C:
        at, seen = _walk(frame, buf, at, end, last, seen)
        return at == end
    return buf[at] == 0x7D and at + 1 == end and seen & _NEEDED == _NEEDED


def _walk(frame: Frame, buf: bytes, at: i64, end: i64, last: i64, seen: i64) -> tuple[i64, i64]:
    """From the brace or comma at `at` to the value of the ext fields, or to `end`. The frame takes opaque and flag:
    its own were a guess."""
    while True:
        at += 1
        if at > last:
            return -1, seen
        word: i64 = read_i64_be(buf, at)
        bit: i64 = 0
        value: i64 = 0
        if word == _EXT and read_i32_be(buf, at + 8) == _EXT_REST:
            if seen & _SEEN_EXT:
                return -1, seen
            return at + 12, seen | _SEEN_EXT
        if word >> 8 == _CODE:
            bit = _SEEN_CODE
            at, value = json_number(buf, at + 7)
            if value != frame.code:
                return -1, seen
        elif word >> 8 == _FLAG:
            bit = _SEEN_FLAG
            at, value = json_number(buf, at + 7)
        elif word == _OPAQUE and buf[at + 8] == 0x3A:
            bit = _SEEN_OPAQUE
            at, value = json_number(buf, at + 9)
        else:
            at = pair_end(buf, at, last)
        if at < 0 or at >= end or seen & bit:
            return -1, seen
        seen |= bit
        if bit == _SEEN_FLAG:
            frame.flag = int(value)
        elif bit == _SEEN_OPAQUE:
            frame.opaque = int(value)
        if buf[at] != 0x2C:
            break
    if buf[at] != 0x7D or at + 1 != end or seen & _NEEDED != _NEEDED:
        return -1, seen
    return end, seen
