"""Errors of filters: of their text, reported with the place when a client subscribes, and of one message's values."""

from __future__ import annotations

from aerobee.errors import AerobeeError, InvalidArgumentError

_SHOWN_MAX = 60


class FilterSyntaxError(InvalidArgumentError):
    """An expression cannot be used. `position` counts characters from 0; the message shows the place."""

    def __init__(self, reason: str, expression: str, position: int) -> None:
        self.reason = reason
        self.position = min(max(position, 0), len(expression))
        super().__init__(f"{reason} at character {self.position + 1}\n{pointed(expression, self.position)}")


class FilterEvaluationError(AerobeeError):
    """A message's values cannot be compared as the filter asks. For a broker such a message does not match."""


def pointed(expression: str, position: int) -> str:
    """Return the line of the place with a caret below it. A long line is cut around the place."""
    start = max(expression.rfind(end, 0, position) for end in "\n\r") + 1
    ends = [at for at in (expression.find(end, position) for end in "\n\r") if at >= 0]
    stop = min(ends, default=len(expression))
    if stop - start > _SHOWN_MAX:
        start = max(start, position - _SHOWN_MAX // 2)
        stop = min(stop, start + _SHOWN_MAX)
    # A character that cannot be printed would move the caret.
    shown = "".join(one if one.isprintable() else " " for one in expression[start:stop])
    return f"  {shown}\n  {' ' * (position - start)}^"
