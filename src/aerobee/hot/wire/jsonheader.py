"""JSON headers of requests, read in place.

These functions read only what known writers make: no blanks, plain texts and integers, no name twice. They return -1
for any other text, which the caller then gives to a general decoder. Eight bytes are read at a time. `last` is the
highest position where that is safe.
RocketMQ: RemotingSerializable.encode, RemotingCommand.
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be, read_i64_le
from mypy_extensions import i64

from aerobee.hot.wire.frame import Frame

_CODE: Final = 0x22636F6465223A  # "code":
_FLAG: Final = 0x22666C6167223A  # "flag":
_OPAQUE: Final = 0x226F706171756522  # "opaque"
_EXT: Final = 0x226578744669656C  # "extFiel
_EXT_REST: Final = 0x6473223A  # ds":

# Bits of the names that were seen. A request must have a code and ext fields.
_SEEN_CODE: Final = 1
_SEEN_FLAG: Final = 2
_SEEN_OPAQUE: Final = 4
_SEEN_EXT: Final = 8
_NEEDED: Final = _SEEN_CODE | _SEEN_EXT

_TEXTS_MAX: Final = 4096
_TEXT_SIZE_MAX: Final = 255

_texts: dict[bytes, str] = {}


def find_ext(frame: Frame, buf: bytes, at: i64, end: i64, last: i64) -> tuple[i64, i64]:
    """Return where the ext fields begin in the header at `at`, and the bits of the names before them."""
    if at >= end or buf[at] != 0x7B:
        return -1, 0
    return _walk(frame, buf, at, end, last, 0)


def ends_well(frame: Frame, buf: bytes, at: i64, end: i64, last: i64, seen: i64) -> bool:
    """Tell whether the bytes from `at`, after the ext fields, to `end` are the rest of the header."""
    if at < 0 or at >= end:
        return False
    if buf[at] == 0x2C:
        at, seen = _walk(frame, buf, at, end, last, seen)
        return at == end
    return buf[at] == 0x7D and at + 1 == end and seen & _NEEDED == _NEEDED


def _walk(frame: Frame, buf: bytes, at: i64, end: i64, last: i64, seen: i64) -> tuple[i64, i64]:
    """Go from the brace or comma at `at` to the value of the ext fields, or to `end`.

    The frame takes opaque and flag from here, as those that `scan_frames` found may stand inside the ext fields.
    """
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


def pair_end(buf: bytes, at: i64, last: i64) -> i64:
    """Return the position after the pair at `at`, whose value must be a plain text or an integer."""
    if buf[at] != 0x22:
        return -1
    stop: i64 = text_end(buf, at + 1, last)
    if stop < 0 or buf[stop + 1] != 0x3A:
        return -1
    if buf[stop + 2] != 0x22:
        return json_number(buf, stop + 2)[0]
    stop = text_end(buf, stop + 3, last)
    if stop < 0:
        return -1
    return stop + 1


def text_end(buf: bytes, at: i64, last: i64) -> i64:
    """Return where the text that goes on at `at` has its closing quote. Escapes and non-ASCII characters give -1."""
    while at <= last:
        plain: i64 = plain_bytes(read_i64_le(buf, at))
        at += plain
        if plain < 8:
            break
    # Not a conditional expression, for which mypyc would build an object.
    if at > last + 8 or buf[at] != 0x22:
        return -1
    return at


def plain_bytes(word: i64) -> i64:
    """Return how many of eight bytes, from the lowest on, come before a quote, backslash, control or non-ASCII byte.

    The high bit of a byte in `marks` is set if the byte is not ASCII or if a subtraction from it went below zero. A
    borrow can only make the bytes after that one wrong.
    """
    each: i64 = 0x0101010101010101
    quotes: i64 = (word ^ (each * 0x22)) - each
    slashes: i64 = (word ^ (each * 0x5C)) - each
    marks: i64 = (word | (word - each * 0x20) | quotes | slashes) & (each << 7)
    if marks == 0:
        return 8
    count: i64 = 0
    if marks & 0xFFFFFFFF == 0:
        count = 4
        marks >>= 32
    if marks & 0xFFFF == 0:
        count += 2
        marks >>= 16
    return count if marks & 0x80 else count + 1


def json_number(buf: bytes, at: i64) -> tuple[i64, i64]:
    """Return the position after the JSON integer at `at`, and its value. More than eighteen digits give -1."""
    size: i64 = len(buf)
    value: i64 = 0
    negative = at < size and buf[at] == 0x2D
    if negative:
        at += 1
    first: i64 = at
    while at < size:
        digit: i64 = i64(buf[at]) - 0x30
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        at += 1
        if at - first > 18:
            return -1, 0
    # Java reads -0 and 007 too. The general decoder has to do that.
    if at == first or at == size or (buf[first] == 0x30 and (negative or at - first > 1)):
        return -1, 0
    return at, -value if negative else value


class LastText:
    """The text that a field had in the last request, which is often the same again.

    Groups, topics and subscriptions come with every request. The same bytes give the same `str`, so that a table finds
    it without comparing characters.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        # The text and eight bytes more, as it is compared by words.
        self.data: bytes = bytes(8)
        self.text: str = ""

    def is_at(self, buf: bytes, start: i64, size: i64) -> bool:
        if size != self.size:
            return False
        data = self.data
        at: i64 = 0
        while at + 8 <= size:
            if read_i64_be(buf, start + at) != read_i64_be(data, at):
                return False
            at += 8
        # Only the first `odd` bytes of the last word count.
        odd: i64 = size - at
        return odd == 0 or (read_i64_be(buf, start + at) ^ read_i64_be(data, at)) >> (64 - odd * 8) == 0

    def take(self, buf: bytes, start: i64, stop: i64) -> str:
        """Return the text of these bytes."""
        if not self.is_at(buf, start, stop - start):
            data = buf[int(start) : int(stop)]
            self.text = _text(data)
            self.data = data + bytes(8)
            self.size = stop - start
        return self.text


def _text(data: bytes) -> str:
    if len(data) > _TEXT_SIZE_MAX:
        return data.decode("ascii")
    found = _texts.get(data)
    if found is None:
        if len(_texts) >= _TEXTS_MAX:
            _texts.clear()
        found = _texts[data] = data.decode("ascii")
    return found
