"""Reads and writes the `.properties` format of RocketMQ's `.conf` files. RocketMQ: java.util.Properties.

A line is `key=value`, `key: value` or `key value`. `#` and `!` start a comment line. A backslash at the end of a line
continues it on the next line. `\\n`, `\\t`, `\\r`, `\\f` and `\\uXXXX` stand for characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aerobee.model.numbers import parse_hex

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def decode_text(data: bytes) -> str:
    """Return the text of a file: UTF-8 as editors write it today, or Latin-1 as Java reads it."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values. If a key comes twice, the last value holds, as in Java."""
    return dict(_pairs(text))


def render_properties(values: Mapping[str, str]) -> str:
    """Return the text that `parse_properties` reads back."""
    return "".join(f"{_escape(key, key=True)}={_escape(value, key=False)}\n" for key, value in values.items())


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in _logical_lines(text):
        position = 0
        while position < len(line) and line[position] not in "=:" + _BLANK:
            position += 2 if line[position] == "\\" else 1
        key = line[:position]
        rest = line[position:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        yield _unescape(key), _unescape(rest)


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        slashes = len(pending) - len(pending.rstrip("\\"))
        if slashes % 2:
            pending = pending[:-1]
            continue
        if pending:
            yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position >= len(text):
            parts.append(char)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            try:
                parts.append(chr(parse_hex(digits, 4)))
                position += 4
                continue
            except ValueError:
                parts.append("u")
                continue
        parts.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16, so two escapes may be the halves of one character.
    return "".join(parts).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _escape(text: str, *, key: bool) -> str:
    parts = []
    for position, char in enumerate(text):
        if char in "\n\t\r\f":
            parts.append({"\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"}[char])
        elif char == "\\" or (key and char in "=:#! ") or (char == " " and position == 0):
            parts.append("\\" + char)
        elif not " " <= char <= "~":
            units = char.encode("utf-16-be")
            parts.extend(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
        else:
            parts.append(char)
    return "".join(parts)
