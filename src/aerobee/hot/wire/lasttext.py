"""Texts that come with every request: groups, topics, subscriptions. The same bytes give the same object.

A text that is the same object is found in a table without a look at its characters, and costs no room.
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

_TEXTS_MAX: Final = 4096
_TEXT_SIZE_MAX: Final = 255

_texts: dict[bytes, str] = {}


class LastText:
    """The text that a field had in the last request: mostly it has it again."""

    def __init__(self) -> None:
        self.size: i64 = 0
        # With eight bytes more, as it is compared by words.
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
        # Of the rest only the bytes in front count.
        odd: i64 = size - at
        return odd == 0 or (read_i64_be(buf, start + at) ^ read_i64_be(data, at)) >> (64 - odd * 8) == 0

    def take(self, buf: bytes, start: i64, stop: i64) -> str:
        """The text of these bytes."""
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
