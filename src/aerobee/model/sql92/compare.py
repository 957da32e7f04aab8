"""Comparison of two values of a filter. Text is converted to the type that it is compared with.

The comparison is not symmetric, as Apache's is not: TRUE on the left of text fails, and text on the left of TRUE is
read as a boolean.
RocketMQ: ComparisonExpression.__compare.
"""

from __future__ import annotations

from aerobee.model.sql92.errors import FilterEvaluationError
from aerobee.model.sql92.nodes import Value
from aerobee.model.sql92.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Long,
    compare_doubles,
    parse_double,
    parse_integer,
)

# The result for two values whose types cannot be compared.
_UNLIKE = -1


def compare(left: Value, right: Value) -> int:
    """Return a number below 0, 0 or above 0; raise FilterEvaluationError where text does not have the other's type."""
    if isinstance(left, str):
        return _text(left, right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise FilterEvaluationError("a condition on the left cannot be compared with text")
        return left - right if isinstance(right, bool) else _UNLIKE
    if isinstance(right, bool) or left is None or right is None:
        return _UNLIKE
    if isinstance(right, str):
        right = number_like(left, right)
    return numbers(left, right)


def _text(left: str, right: Value) -> int:
    if isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(right, bool):
        return is_true(left) - right
    return _UNLIKE if right is None else numbers(number_like(right, left), right)


def numbers(left: float, right: float) -> int:
    """Compare two numbers, as doubles when one of them is a double."""
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(left * 1.0, right * 1.0)
    return (left > right) - (left < right)


def number_like(model: float, text: str) -> float:
    """Read text as a number of the model's type."""
    if isinstance(model, float):
        return parse_double(text)
    if isinstance(model, Long):
        return parse_integer(text, LONG_MIN, LONG_MAX)
    return parse_integer(text, INT_MIN, INT_MAX)


def is_true(text: str) -> bool:
    """Read text as Java's Boolean.valueOf does."""
    return len(text) == 4 and text.lower() == "true"
