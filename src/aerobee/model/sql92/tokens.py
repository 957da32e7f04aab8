"""The tokens of a filter, read one at a time, because text behind the used part may be anything.

The longest match counts, as in Apache's generated scanner. RocketMQ: SelectorParser.jj (tokens).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aerobee.model.sql92.errors import FilterSyntaxError

KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
# The kinds of tokens. A keyword or a sign is its own kind.
END: Final = "the end"
NAME: Final = "a name"
STRING: Final = "a string"
INTEGER: Final = "an integer"
FLOAT: Final = "a number"

_BLANK: Final = " \t\n\r\f"
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_FLOAT: Final = re.compile(r"[0-9]++(?:\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)|\.[0-9]++(?:[eE][+-]?[0-9]++)?")
# A number has no leading zero: 007 is three numbers.
_INTEGER: Final = re.compile(r"0|[1-9][0-9]*+[lL]?")
_SIGNS: Final = ("<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "+", "-")


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `text` is as it stands in the expression; for a string it is the value."""

    kind: str
    text: str
    position: int


class Tokens:
    """The tokens of an expression from left to right."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._ahead: Token | None = None

    def peek(self) -> Token:
        if self._ahead is None:
            self._ahead = self._read()
        return self._ahead

    def take(self) -> Token:
        token = self.peek()
        self._ahead = None
        return token

    def _read(self) -> Token:
        self._skip()
        text, at = self._text, self._at
        if at >= len(text):
            return Token(END, "", at)
        found = _NAME.match(text, at)
        if found is not None:
            upper = found[0].upper()
            return self._token(upper if upper in KEYWORDS else NAME, found[0], found.end())
        for kind, pattern in ((FLOAT, _FLOAT), (INTEGER, _INTEGER)):
            found = pattern.match(text, at)
            if found is not None:
                return self._token(kind, found[0], found.end())
        if text[at] == "'":
            return self._string()
        for sign in _SIGNS:
            if text.startswith(sign, at):
                return self._token(sign, sign, at + len(sign))
        raise FilterSyntaxError(f"{text[at]!r} means nothing here", text, at)

    def _token(self, kind: str, text: str, end: int) -> Token:
        token = Token(kind, text, self._at)
        self._at = end
        return token

    def _skip(self) -> None:
        """Skip blanks and comments. A line comment that no line end closes is two minus signs."""
        text, at = self._text, self._at
        while at < len(text):
            if text[at] in _BLANK:
                at += 1
            elif text.startswith("--", at):
                ends = [end for end in (text.find(mark, at) for mark in "\n\r") if end >= 0]
                if not ends:
                    break
                at = min(ends) + 1
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                if end < 0:
                    raise FilterSyntaxError("this comment does not end, it began", text, at)
                at = end + 2
            else:
                break
        self._at = at

    def _string(self) -> Token:
        """Read a string, in which two quotes stand for one. A string without an end ends in its last pair of quotes."""
        text, start = self._text, self._at
        at, end = start + 1, -1
        while True:
            at = text.find("'", at)
            if at < 0:
                break
            end = at + 1
            if not text.startswith("'", end):
                break
            at += 2
        if end < 0:
            raise FilterSyntaxError("this string does not end, it began", text, start)
        return self._token(STRING, text[start + 1 : end - 1].replace("''", "'"), end)
