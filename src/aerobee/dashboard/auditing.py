"""What was changed through this dashboard: the last events in memory, and each of them in the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.telemetry.stdlog import get_log

EVENTS_MAX: Final = 1_000
_VALUE_MAX: Final = 200
_log = get_log("dashboard.audit")


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One change or one login. `result` is done, failed, refused or a word of the login."""

    time_ms: int
    person: str
    address: str
    what: str
    path: str
    given: str
    result: str
    words: str


class AuditTrail:
    """The events, newest last."""

    def __init__(self) -> None:
        self.events: deque[AuditEvent] = deque(maxlen=EVENTS_MAX)

    def add(
        self,
        time_ms: int,
        person: str,
        address: str,
        what: str,
        *,
        path: str = "",
        given: Mapping[str, str] | None = None,
        result: str,
        words: str = "",
    ) -> None:
        """Note an event. `given` must hold no secret."""
        told = " ".join(f"{name}={value[:_VALUE_MAX]}" for name, value in (given or {}).items() if value)
        event = AuditEvent(time_ms, person[:100], address, what, path[:300], told[:1000], result, words[:500])
        self.events.append(event)
        _log.info(
            "change", person=event.person, address=address, what=what, path=event.path, given=event.given,
            result=result, words=event.words,
        )  # fmt: skip
