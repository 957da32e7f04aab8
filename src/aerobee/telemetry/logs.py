"""Structured log lines: each event is one line, passed to `write`.

    2026-11-15T10:00:12.345Z INFO broker.store segment rolled offset=1073741824

With the format `json` the same event is `{"time":...,"level":...,"logger":...,"event":...,"offset":...}`.
Texts with blanks, quotes or line breaks are quoted, so that nothing that a client sends can forge a line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from aerobee.errors import ConfigError
from aerobee.runtime.seams import Clock

LEVEL_VARIABLE: Final = "AEROBEE_LOG_LEVEL"
FORMAT_VARIABLE: Final = "AEROBEE_LOG_FORMAT"
_FORMATS: Final = ("text", "json")

Field = object


class LogLevel(IntEnum):
    """The level of a line."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    OFF = 100


class Logs:
    """The log of a process: its level, its format and where its lines go."""

    def __init__(
        self,
        clock: Clock,
        write: Callable[[str], object],
        *,
        level: LogLevel = LogLevel.INFO,
        json_format: bool = False,
    ) -> None:
        self.clock = clock
        self.level = level
        self._write = write
        self._render = render_json if json_format else render_text

    def emit(self, level: LogLevel, name: str, event: str, fields: Mapping[str, Field]) -> None:
        """Write one line unless its level is too low."""
        if level >= self.level:
            self._write(self._render(self.clock.now_ms(), level, name, event, fields) + "\n")


def configured_logs(environ: Mapping[str, str], clock: Clock, write: Callable[[str], object]) -> Logs:
    """Return a log as AEROBEE_LOG_LEVEL and AEROBEE_LOG_FORMAT describe it. Raise ConfigError for other values."""
    problems = []
    level_name = environ.get(LEVEL_VARIABLE, "").strip().upper() or "INFO"
    level_name = "WARN" if level_name == "WARNING" else level_name
    if level_name not in LogLevel.__members__:
        problems.append(f"{LEVEL_VARIABLE}: {level_name!r} is not one of {', '.join(LogLevel.__members__)}")
    form = environ.get(FORMAT_VARIABLE, "").strip().lower() or "text"
    if form not in _FORMATS:
        problems.append(f"{FORMAT_VARIABLE}: {form!r} is not one of {', '.join(_FORMATS)}")
    if problems:
        raise ConfigError(problems)
    return Logs(clock, write, level=LogLevel[level_name], json_format=form == "json")


def render_text(now_ms: int, level: LogLevel, name: str, event: str, fields: Mapping[str, Field]) -> str:
    """Return the line in the format `text`."""
    parts = [_timestamp(now_ms), level.name, name, event if event.isprintable() else _quoted(event)]
    parts.extend(f"{key}={_text(value)}" for key, value in fields.items())
    return " ".join(parts)


def render_json(now_ms: int, level: LogLevel, name: str, event: str, fields: Mapping[str, Field]) -> str:
    """Return the line in the format `json`."""
    line: dict[str, object] = {
        "time": _timestamp(now_ms),
        "level": level.name,
        "logger": name,
        "event": event,
    }
    for key, value in fields.items():
        while key in line:
            key = f"field_{key}"
        line[key] = _finite(_plain(value))
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair, which a name may hold, cannot be written as UTF-8.
    return text if _is_text(text) else json.dumps(line, separators=(",", ":"))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _finite(value: object) -> object:
    """Return the value, or its text where JSON has no such number."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _timestamp(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"


def _plain(value: Field) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return str(value)


def _text(value: Field) -> str:
    plain = _plain(value)
    if plain is None:
        return "-"
    if isinstance(plain, bool):
        return "true" if plain else "false"
    text = f"{plain:.6g}" if isinstance(plain, float) else str(plain)
    return text if text and text.isprintable() and not set(text) & set(' "=') else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())
