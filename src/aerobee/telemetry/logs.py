"""Structured log lines: one event, one line, on whatever `write` leads to (stderr).

    2026-11-15T10:00:12.345Z INFO broker.store segment rolled offset=1073741824

With the format `json` the same event is `{"time":...,"level":...,"logger":...,"event":...,"offset":...}`.
Texts that hold blanks, quotes or line breaks are quoted, so that nothing a client sends can forge a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from aerobee.errors import ConfigError
from aerobee.runtime.seams import Clock

LEVEL_VARIABLE: Final = "AEROBEE_LOG_LEVEL"
FORMAT_VARIABLE: Final = "AEROBEE_LOG_FORMAT"
_FORMATS: Final = ("text", "json")
_LIMITS_MAX: Final = 1000

Field = object


class Level(IntEnum):
    """How much a line matters."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    OFF = 100


class Logs:
    """Where lines go. One for a process; components are handed a Logger."""

    def __init__(
        self,
        clock: Clock,
        write: Callable[[str], object],
        *,
        level: Level = Level.INFO,
        json_format: bool = False,
    ) -> None:
        self.clock = clock
        self.level = level
        self._write = write
        self._render = render_json if json_format else render_text

    def logger(self, name: str) -> Logger:
        """A logger for one component, named like `broker.store`."""
        return Logger(self, name)

    def emit(self, level: Level, name: str, event: str, fields: Mapping[str, Field]) -> None:
        """Write one line, if it matters enough."""
        if level >= self.level:
            self._write(self._render(self.clock.now_ms(), level, name, event, fields) + "\n")


class Logger:
    """Named, with fields that every line of it carries."""

    __slots__ = ("_fields", "_limits", "_logs", "name")

    def __init__(self, logs: Logs, name: str, fields: Mapping[str, Field] | None = None) -> None:
        self._logs = logs
        self.name = name
        self._fields = dict(fields or {})
        self._limits: dict[str, tuple[float, int]] = {}  # key -> when it may be said again, times held back

    def child(self, name: str) -> Logger:
        """`broker` becomes `broker.store`; fields go with it."""
        return Logger(self._logs, f"{self.name}.{name}", self._fields)

    def bind(self, **fields: Field) -> Logger:
        """The same with more fields on every line."""
        return Logger(self._logs, self.name, {**self._fields, **fields})

    def is_debug(self) -> bool:
        """Whether debug lines are written, for fields that cost something."""
        return self._logs.level <= Level.DEBUG

    def debug(self, event: str, **fields: Field) -> None:
        """For whoever looks for a fault."""
        self._emit(Level.DEBUG, event, fields)

    def info(self, event: str, **fields: Field) -> None:
        """Something an operator may want to know."""
        self._emit(Level.INFO, event, fields)

    def warn(self, event: str, **fields: Field) -> None:
        """Something an operator should look at."""
        self._emit(Level.WARN, event, fields)

    def error(self, event: str, **fields: Field) -> None:
        """Something was lost or refused."""
        self._emit(Level.ERROR, event, fields)

    def warn_limited(self, key: str, interval_s: float, event: str, **fields: Field) -> bool:
        """As `warn`, at most once in the interval for each key; the next line tells how many were held
        back."""
        now = self._logs.clock.monotonic()
        due, held = self._limits.get(key, (now, 0))
        if now < due:
            self._limits[key] = (due, held + 1)
            return False
        if len(self._limits) >= _LIMITS_MAX:
            # Keys may come from outside; those whose time is over go first.
            self._limits = {one: entry for one, entry in self._limits.items() if entry[0] > now}
            if len(self._limits) >= _LIMITS_MAX:
                self._limits.clear()
        self._limits[key] = (now + interval_s, 0)
        if held:
            fields = {**fields, "suppressed": held}
        self._emit(Level.WARN, event, fields)
        return True

    def _emit(self, level: Level, event: str, fields: Mapping[str, Field]) -> None:
        if level >= self._logs.level:
            self._logs.emit(level, self.name, event, {**self._fields, **fields} if self._fields else fields)


def configured_logs(environ: Mapping[str, str], clock: Clock, write: Callable[[str], object]) -> Logs:
    """As AEROBEE_LOG_LEVEL and AEROBEE_LOG_FORMAT say."""
    problems = []
    level_name = environ.get(LEVEL_VARIABLE, "").strip().upper() or "INFO"
    level_name = "WARN" if level_name == "WARNING" else level_name
    if level_name not in Level.__members__:
        problems.append(f"{LEVEL_VARIABLE}: {level_name!r} is not one of {', '.join(Level.__members__)}")
    form = environ.get(FORMAT_VARIABLE, "").strip().lower() or "text"
    if form not in _FORMATS:
        problems.append(f"{FORMAT_VARIABLE}: {form!r} is not one of {', '.join(_FORMATS)}")
    if problems:
        raise ConfigError(problems)
    return Logs(clock, write, level=Level[level_name], json_format=form == "json")


def render_text(now_ms: int, level: Level, name: str, event: str, fields: Mapping[str, Field]) -> str:
    """The line for people."""
    parts = [_timestamp(now_ms), level.name, name, event if event.isprintable() else _quoted(event)]
    parts.extend(f"{key}={_text(value)}" for key, value in fields.items())
    return " ".join(parts)


def render_json(now_ms: int, level: Level, name: str, event: str, fields: Mapping[str, Field]) -> str:
    """The line for machines."""
    line: dict[str, object] = {
        "time": _timestamp(now_ms),
        "level": level.name,
        "logger": name,
        "event": event,
    }
    for key, value in fields.items():
        line[key if key not in line else f"field_{key}"] = _plain(value)
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


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
