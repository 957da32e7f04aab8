"""Bodies of messages as text. They come from anybody: they are cut, and shown as they are."""

from __future__ import annotations

import json
import re
from typing import Final

from aerobee.dashboard.blocks import Cell, Size
from aerobee.hot.log.layout import COMPRESSED
from aerobee.model.compression import opening
from aerobee.model.message import Message

SHOWN_MAX: Final = 64 << 10
_PREVIEW: Final = 120
_HEX_MAX: Final = 16 << 10
_LINE: Final = 16
_DEPTH_MAX: Final = 50
# A string, a bracket, a comma, a colon, or a word such as a number.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def preview_of(message: Message) -> str:
    """Return the beginning of a message's body in one line. No more of a compressed body is made than that."""
    return preview(opening(message.body, message.sys_flag, 4 * _PREVIEW + 1))


def size_of(message: Message) -> Cell:
    """Return the size of a body. How large a compressed one becomes is not known before it is unfolded."""
    size = len(message.body)
    return f"{size:,} B compressed" if message.sys_flag & COMPRESSED else Size(size)


def preview(body: bytes) -> str:
    """Return the beginning of a body in one line."""
    text = body[: 4 * _PREVIEW].decode("utf-8", "replace")
    words = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return words[:_PREVIEW] + ("…" if len(words) > _PREVIEW or len(body) > 4 * _PREVIEW else "")


def shown_body(body: bytes, kind: str) -> tuple[str, str]:
    """Return how a body is shown and the text: as text, json or hex. Anything else chooses what fits."""
    cut = body[:SHOWN_MAX]
    if kind == "hex":
        return "hex", _hex(cut)
    if kind != "text":
        pretty = _json(body)
        if pretty is not None:
            return "JSON", pretty
        if kind == "json":
            return "text, because it is no JSON", cut.decode("utf-8", "replace")
        if _is_binary(cut):
            return "hex", _hex(cut)
    return "text", cut.decode("utf-8", "replace")


def _is_binary(cut: bytes) -> bool:
    try:
        text = cut.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may have gone through a letter.
        if error.start < len(cut) - 3:
            return True
        text = cut[: error.start].decode("utf-8")
    return any(ord(one) < 32 and one not in "\t\r\n" for one in text[:4096])


def _json(body: bytes) -> str | None:
    """Return JSON in lines, None for what is none. Numbers and names stay as they were written: 10.00 is no 10.0."""
    if len(body) > SHOWN_MAX or not body[:1].strip() or body[:1] not in b"{[":
        return None
    try:
        json.loads(body)
        return _indented(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def _indented(text: str) -> str | None:
    """Return JSON with a line for each value. None if it nests deeply: its lines would be longer than a page takes."""
    parts: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(text)
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        opens, is_empty = token in ("{", "["), following in ("}", "]")
        if opens and not is_empty:
            depth += 1
            if depth > _DEPTH_MAX:
                return None
        closes_next = is_empty and not opens
        depth -= closes_next
        parts.append(": " if token == ":" else token)
        if token == "," or closes_next or (opens and not is_empty):
            parts.append(f"\n{'  ' * depth}")
    return "".join(parts)


def _hex(data: bytes) -> str:
    lines = []
    for at in range(0, min(len(data), _HEX_MAX), _LINE):
        row = data[at : at + _LINE]
        text = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {text}")
    if len(data) > _HEX_MAX:
        lines.append(f"... {_HEX_MAX // 1024} KiB are shown; the download has all")
    return "\n".join(lines)
