"""How the arguments of `aerobee.Admin` become those of the admin functions: times, targets, attributes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from aerobee.admin.messages import Span
from aerobee.admin.offsets import FIRST, LAST, ResetTarget
from aerobee.errors import InvalidArgumentError

# Milliseconds since 1970, or a datetime; one without a zone is in UTC.
Moment = int | datetime


def milliseconds(moment: Moment) -> int:
    """Return the milliseconds since 1970 of a time."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise InvalidArgumentError(f"{moment!r} is neither a datetime nor milliseconds since 1970")
    return moment


def span_of(since: Moment | None, until: Moment | None) -> Span:
    """Return the time span of two optional times: from `since` on, and before `until`."""
    every = Span()
    begin = every.begin_ms if since is None else milliseconds(since)
    end = every.end_ms if until is None else milliseconds(until)
    if begin > end:
        raise InvalidArgumentError("since is after until")
    return Span(begin, end)


def target_of(to: str | Moment | None, offset: int | None) -> ResetTarget:
    """Return the target of a reset."""
    if isinstance(to, str):
        if to not in (FIRST, LAST):
            raise InvalidArgumentError(f"to={to!r} is neither {FIRST!r}, {LAST!r}, a datetime nor milliseconds")
        return ResetTarget(edge=to, offset=offset)
    return ResetTarget(time_ms=None if to is None else milliseconds(to), offset=offset)


def attribute_words(attributes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return attributes as RocketMQ's requests name them: `+name` sets, `-name` removes."""
    return {
        f"-{name}" if value is None else f"+{name}": "" if value is None else value
        for name, value in (attributes or {}).items()
    }
