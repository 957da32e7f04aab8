"""Numbers of filters, constants and property values, read and ordered as Java does.

RocketMQ: ComparisonExpression.__compare (Integer.valueOf, Long.valueOf, Double.valueOf, compareTo).
"""

from __future__ import annotations

import math
import re
from typing import Final

from aerobee.model.sql92.errors import FilterEvaluationError

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
# A long has no more digits than this, leading zeros aside.
_DIGITS_MAX: Final = 19
# Double.valueOf strips these characters.
_JAVA_SPACE: Final = "".join(map(chr, range(33)))
# The quantifiers are possessive, so that no value makes the search go back.
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?")
_HEX: Final = re.compile(
    r"([+-]?)0[xX](?:([0-9a-fA-F]++)\.?|([0-9a-fA-F]*+)\.([0-9a-fA-F]++))[pP]([+-]?[0-9]++)[fFdD]?"
)
_NAMED: Final = {
    sign + name: -value if sign == "-" else value
    for sign in ("", "+", "-")
    for name, value in (("NaN", math.nan), ("Infinity", math.inf))
}


class Long(int):
    """A 64-bit constant. A plain int is a 32-bit one. Text that is compared with them is read as the same type."""

    def __neg__(self) -> Long:
        return Long(0 - self)


def parse_integer(text: str, low: int, high: int) -> int:
    """Read a number as Java's Integer.valueOf or Long.valueOf does: a sign and decimal digits of any script."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at single chars, so that digits beyond the basic plane do not count as digits.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise FilterEvaluationError(f"{text[:40]!r} is no integer")
    if len(digits) > _DIGITS_MAX:
        digits = _without_zeros(digits)
    value = int(digits) if len(digits) <= _DIGITS_MAX else high + 2
    if text[0] == "-":
        value = -value
    if not low <= value <= high:
        raise FilterEvaluationError(f"{text[:40]!r} is out of range")
    return value


def _without_zeros(digits: str) -> str:
    at = 0
    while at < len(digits) - 1 and int(digits[at]) == 0:
        at += 1
    return digits[at:]


def parse_double(text: str) -> float:
    """Read a number as Java's Double.valueOf does: also NaN, Infinity, hexadecimal, and a trailing d or f."""
    cut = text.strip(_JAVA_SPACE)
    if _DECIMAL.fullmatch(cut):
        return float(cut.rstrip("fFdD"))
    named = _NAMED.get(cut)
    if named is not None:
        return named
    found = _HEX.fullmatch(cut)
    if found is None:
        raise FilterEvaluationError(f"{text[:40]!r} is no number")
    sign, whole, before, after, power = found.groups()
    mantissa = whole or f"{before}.{after}"
    try:
        return float.fromhex(f"{sign}0x{mantissa}p{power}")
    except (OverflowError, ValueError):
        # The number is too large, or its exponent has too many digits.
        return -math.inf if sign == "-" else math.inf


def compare_doubles(left: float, right: float) -> int:
    """Compare as Java's Double.compareTo does: NaN equals itself and is above all, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    """Return the rank of a value among those that are neither below nor above each other."""
    if value != value:
        return 2
    return 0 if value == 0 and math.copysign(1.0, value) < 0 else 1
