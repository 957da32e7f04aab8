"""Plain numbers in bytes: what clients write almost always. Anything else is left to `model.numbers`."""

from typing import Final

from mypy_extensions import i64

_DIGITS_MAX: Final = 18


def whole(data: bytes, at: i64, end: i64) -> i64:
    """Return the number whose digits stand there; -1 for anything but one to eighteen digits."""
    if at >= end or end - at > _DIGITS_MAX:
        return -1
    value: i64 = 0
    while at < end:
        digit: i64 = data[at]
        if digit < 0x30 or digit > 0x39:
            return -1
        value = value * 10 + digit - 0x30
        at += 1
    return value


def whole_text(text: str) -> int:
    """Return the number of a text; -1 for anything but one to eighteen digits."""
    if len(text) > _DIGITS_MAX:
        return -1
    data = text.encode()
    return int(whole(data, 0, len(data)))
