"""Loggers of the standard library under `aerobee.*`.

A program that uses the client gets these lines as from any library. A server calls `lead_to`, and they become the
structured lines of `logs.py`. Importing this module writes nothing.
"""

from __future__ import annotations

import logging
import traceback

from aerobee.runtime.seams import Clock
from aerobee.telemetry.logs import LogLevel, Logs

_ROOT = "aerobee"
logging.getLogger(_ROOT).addHandler(logging.NullHandler())

_INTERVAL_S = 10.0
_KEYS_MAX = 1000


class Log:
    """A named logger whose lines consist of an event and fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def debug(self, event: str, **fields: object) -> None:
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        if exc_info is not None:
            fields["traceback"] = "".join(traceback.format_exception(exc_info))
        self._emit(logging.ERROR, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            text = event + "".join(f" {name}={value}" for name, value in fields.items())
            self._logger.log(level, "%s", text, extra={"event": event, "fields": fields})


class RateLimitedLog:
    """A logger for warnings that a peer can cause: one line for each key and interval, with the number held back."""

    def __init__(self, log: Log, clock: Clock, interval_s: float = _INTERVAL_S) -> None:
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._due: dict[str, tuple[float, int]] = {}

    def warning(self, key: str, event: str, **fields: object) -> None:
        if self._is_due(key, fields):
            self._log.warning(event, **fields)

    def error(self, key: str, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        if self._is_due(key, fields):
            self._log.error(event, exc_info=exc_info, **fields)

    def _is_due(self, key: str, fields: dict[str, object]) -> bool:
        now_s = self._clock.monotonic()
        due_s, held = self._due.get(key, (now_s, 0))
        if now_s < due_s:
            self._due[key] = (due_s, held + 1)
            return False
        if len(self._due) >= _KEYS_MAX:
            self._due.clear()
        self._due[key] = (now_s + self._interval_s, 0)
        if held:
            fields["suppressed"] = held
        return True


class _Lead(logging.Handler):
    """A handler that turns records of the standard library into structured lines."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        name = record.name.removeprefix(f"{_ROOT}.")
        event = getattr(record, "event", None) or record.getMessage()
        fields = getattr(record, "fields", {})
        self._logs.emit(_level_of(record.levelno), name, event, fields)


def _level_of(levelno: int) -> LogLevel:
    if levelno >= logging.ERROR:
        return LogLevel.ERROR
    if levelno >= logging.WARNING:
        return LogLevel.WARN
    return LogLevel.INFO if levelno >= logging.INFO else LogLevel.DEBUG


def get_log(name: str) -> Log:
    """Return the logger `aerobee.<name>`."""
    return Log(name)


def lead_to(logs: Logs) -> None:
    """Send all lines of this process to `logs` from now on, and nowhere else."""
    root = logging.getLogger(_ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_Lead(logs))
    root.setLevel(logging.DEBUG if logs.level <= LogLevel.DEBUG else logging.INFO)
    root.propagate = False
