"""The end of the audit logs of servers (auditLogPath): one JSON object a line, as `access/audit.py` writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerobee.model.numbers import int_or
from aerobee.runtime.smallfile import read_end

# How much of the end of a log is read, and how many events are shown.
END_MAX: Final = 2 << 20
EVENTS_MAX: Final = 1_000
_TEXT_MAX: Final = 500
_SECRET_WORDS: Final = ("password", "secret")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One line of the audit log of a server."""

    time_ms: int
    # login, request or admin.
    event: str
    user: str
    source: str
    # The request, with its name.
    code: str
    resource: str
    actions: str
    # allowed or refused.
    decision: str
    # Why: the entry that decided, or what was wrong with the signature; of a change what was there before and after.
    why: str
    log: str


def server_events(paths: Sequence[str]) -> tuple[list[ServerEvent], list[str]]:
    """Return the last events of all logs, the newest first, and a sentence for each log that cannot be read."""
    events: list[ServerEvent] = []
    problems: list[str] = []
    for path in paths:
        try:
            data = read_end(path, END_MAX)
        except OSError as error:
            problems.append(f"the audit log {path} cannot be read: {error.strerror or error}")
            continue
        if data is None:
            problems.append(f"there is no audit log {path}; auditLogPath of a server names its file")
            continue
        lines = data.split(b"\n")
        # The first line may have lost its beginning, and the last one may not be written to its end yet.
        whole = lines[1:-1] if len(data) == END_MAX else lines[:-1]
        found = [one for one in (event_of(line, path) for line in whole[-EVENTS_MAX:]) if one is not None]
        odd = len(whole[-EVENTS_MAX:]) - len(found)
        if odd:
            problems.append(f"{path} has lines that are no audit events: {odd} of the last {len(found) + odd}")
        events += found
    events.sort(key=lambda one: -one.time_ms)
    return events[:EVENTS_MAX], problems


def event_of(line: bytes, log: str) -> ServerEvent | None:
    """Return the event of a line, None if it is none."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or "event" not in told:
        return None
    # A server whose audit goes to its log writes the time of the line as text, and the event's own as a number.
    actions = told.get("actions")
    return ServerEvent(
        int_or(str(told.get("time", "")), 0),
        _text(told.get("event")),
        _text(told.get("user")),
        _text(told.get("source")),
        _text(told.get("code")),
        _text(told.get("resource")),
        ", ".join(map(_text, actions)) if isinstance(actions, list) else _text(actions),
        _text(told.get("decision")),
        _why(told),
        log,
    )


def _why(told: dict[str, Any]) -> str:
    words = [_text(told[name]) for name in ("rule", "reason") if told.get(name)]
    for name in ("before", "after"):
        if name in told:
            words.append(f"{name}: {_plain(told[name])}")
    if told.get("held_back"):
        words.append(f"{_text(told['held_back'])} more like this were counted only")
    return "; ".join(words)[:_TEXT_MAX]


def _plain(value: object) -> str:
    return _text(value if isinstance(value, str) else json.dumps(_hidden(value), ensure_ascii=False))


def _hidden(value: object) -> object:
    """Return a value without what may be a secret. Servers write none; a file can come from anywhere."""
    if isinstance(value, dict):
        return {
            key: "(hidden)" if any(word in str(key).lower() for word in _SECRET_WORDS) else _hidden(one)
            for key, one in value.items()
        }
    return [_hidden(one) for one in value] if isinstance(value, list) else value


def _text(value: object) -> str:
    return "" if value is None else str(value)[:_TEXT_MAX]
