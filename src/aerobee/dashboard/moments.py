"""Moments as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import int_or

_AGO: Final = re.compile(r"(\d{1,7})\s*(s|m|min|h|d)(\s+ago)?")
_MS: Final = {"s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_of(text: str, now_ms: int) -> int | None:
    """Return the milliseconds since 1970 of a text, None for no text. Raise InvalidArgumentError.

    It takes 2026-11-18, 2026-11-18T10:00:05 (in UTC, unless it names a zone), 30m, 2h, 1d, and milliseconds.
    """
    word = text.strip()
    if not word or word == "now":
        return now_ms if word else None
    found = _AGO.fullmatch(word)
    if found is not None:
        return now_ms - (int_or(found[1], 0) * _MS[found[2]])
    if word.isdigit() and len(word) >= 9:
        number = int_or(word, None, 0, 1 << 52)
        if number is not None:
            return number
    try:
        moment = datetime.fromisoformat(word.removesuffix("UTC").strip().replace("Z", "+00:00"))
    except ValueError:
        hint = "Write 2026-11-18T10:00 (UTC), 30m, 2h or 1d, or milliseconds since 1970."
        raise InvalidArgumentError(f"{word[:60]!r} is no moment", hint=hint) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))
