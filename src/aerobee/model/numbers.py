"""The one place where text from a client, a file or a peer becomes an int or a float.

Python's own `int` accepts any number of digits (and raises at more than 4,300), blanks, underscores and digits of
every script; `float` accepts `nan` and `inf`. Here a number has bounds, and everything else is refused.
`tests/tidy/test_numbers_are_parsed_once.py` forbids `int(...)` and `float(...)` on text everywhere else.
"""

from __future__ import annotations

import math
import operator
import re
from typing import Final, SupportsFloat, TypeVar

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

T = TypeVar("T")
# Java's Long.parseLong accepts a sign and leading zeros too.
_DIGITS_MAX: Final = 40
_REAL: Final = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_SIGNS: Final = ("+", "-")
_SHOWN_MAX: Final = 40


class NumberError(ValueError):
    """A text is not a number within the bounds; the message names both."""


def parse_int(text: str | bytes, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    """Return the whole number in `text`; raise NumberError unless it is one between `low` and `high`."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    digits = text[1:] if text[:1] in _SIGNS else text
    if len(digits) <= _DIGITS_MAX and digits.isascii() and digits.isdigit():
        value = int(text)
        if low <= value <= high:
            return value
    bounds = "" if (low, high) == (INT64_MIN, INT64_MAX) else f" from {low} to {high}"
    raise NumberError(f"{_shown(text)} is not a whole number{bounds or ' of 64 bits'}")


def int_or(text: str | bytes | None, default: T, low: int = INT64_MIN, high: int = INT64_MAX) -> int | T:
    """Return the whole number in `text`, or `default` where it is none between `low` and `high`."""
    if text is None:
        return default
    try:
        return parse_int(text, low, high)
    except NumberError:
        return default


def parse_float(text: str | bytes, low: float = -math.inf, high: float = math.inf) -> float:
    """Return the number in `text`; raise NumberError unless it is a finite one between `low` and `high`."""
    digits = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if _REAL.fullmatch(digits):
        value = float(digits)
        if math.isfinite(value) and low <= value <= high:
            return value
    bounds = "" if (low, high) == (-math.inf, math.inf) else f" from {low:g} to {high:g}"
    raise NumberError(f"{_shown(digits)} is not a number{bounds}")


def float_or(text: str | bytes | None, default: T, low: float = -math.inf, high: float = math.inf) -> float | T:
    """Return the number in `text`, or `default` where it is no finite one between `low` and `high`."""
    if text is None:
        return default
    try:
        return parse_float(text, low, high)
    except NumberError:
        return default


def parse_hex(text: str, digits_max: int = 16) -> int:
    """Return the number that up to `digits_max` hexadecimal digits make; raise NumberError for anything else."""
    if 0 < len(text) <= digits_max and _HEX.fullmatch(text):
        return int(text, 16)
    raise NumberError(f"{_shown(text)} is not a hexadecimal number of 1 to {digits_max} digits")


# Turns numpy's integers and enum members into a plain int. Raises TypeError for text.
plain_int: Final = operator.index


def plain_float(value: SupportsFloat) -> float:
    """Return an int or a decimal as a float; raise AttributeError for text."""
    return value.__float__()


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]!r}... ({len(text)} characters)"
