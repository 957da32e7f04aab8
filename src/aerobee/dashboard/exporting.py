"""Messages as files that other programs read: JSON lines or CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from aerobee.dashboard.registry import PageView
from aerobee.dashboard.streaming import streamed
from aerobee.model.message import Message

# What is told of every message, and in this order.
MESSAGE_NAMES: Final = ("message_id", "store_timestamp", "reconsume_times", "tags", "keys", "properties", "body")


def told_of(message: Message, body: bytes) -> dict[str, Any]:
    """Return what a file tells of a message. What is no text in its body is written as \\xff."""
    values = (
        message.message_id, message.store_timestamp, message.reconsume_times, message.tags, message.keys,
        json.dumps(dict(message.properties), ensure_ascii=False), body.decode("utf-8", "backslashreplace"),
    )  # fmt: skip
    return dict(zip(MESSAGE_NAMES, values, strict=True))


async def export_rows(
    view: PageView, rows: AsyncGenerator[Mapping[str, Any], None], names: Sequence[str], name: str
) -> Response:
    """Return rows with these names as a file: CSV where the address asks for it, else JSON lines."""
    as_csv = view.word("format") == "csv"
    kind = "text/csv; charset=utf-8" if as_csv else "application/x-ndjson"
    return await streamed(view, _lines(rows, names if as_csv else ()), kind, f"{name}.{'csv' if as_csv else 'jsonl'}")


async def _lines(rows: AsyncGenerator[Mapping[str, Any], None], csv_names: Sequence[str]) -> AsyncGenerator[str, None]:
    # It goes with the first row: before that it is not known whether the messages can be read.
    head = _csv_line(csv_names) if csv_names else ""
    async with contextlib.aclosing(rows):
        async for row in rows:
            if csv_names:
                yield head + _csv_line([_harmless(row[name]) for name in csv_names])
            else:
                yield f"{json.dumps(row, ensure_ascii=False)}\n"
            head = ""
    if head:
        yield head


def _csv_line(values: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(values)
    return out.getvalue()


def _harmless(value: Any) -> Any:
    """Return a value that a spreadsheet shows and does not compute."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
