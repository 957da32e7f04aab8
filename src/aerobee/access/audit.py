"""The audit log: who did what to which resource from where, allowed or refused, and what was there before and after.

Each event is one JSON object. Refusals are sampled: ten a second of one user are written, the others are counted.
No event holds a secret, a signature or a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aerobee.access.users import User
from aerobee.access.verdicts import AccessVerdict
from aerobee.protocol.codes import PrivateRequestCode, request_codes
from aerobee.runtime.bases import Clock

REFUSALS_A_SECOND: Final = 10
_USERS_MAX: Final = 10_000
_CONNECTIONS_MAX: Final = 50_000
_TEXT_MAX: Final = 500
_NAMES: Final = {code: name for name, code in request_codes().items()} | {
    code: name for name, code in vars(PrivateRequestCode).items() if isinstance(code, int)
}

# Writes one event.
Write = Callable[[dict[str, Any]], None]


def code_name(code: object) -> str:
    """Return a request code with its name."""
    return f"{code} {_NAMES[code]}" if isinstance(code, int) and code in _NAMES else str(code)


class Audit:
    """Tells events to `write`. It counts what it does not write."""

    def __init__(self, clock: Clock, write: Write) -> None:
        self._clock = clock
        self._write = write
        # By user and source: the second, and how many refusals came in it.
        self._refusals: dict[tuple[str, str], tuple[int, int]] = {}
        # The users that were seen on each open connection.
        self._seen: dict[int, set[str]] = {}
        # All refusals since the start: of unknown or wrong credentials, and of missing rights.
        self.logins_refused = 0
        self.requests_refused = 0

    def _event(self, event: str, user: str, source: str, code: object, **more: object) -> None:
        told: dict[str, Any] = {"time": self._clock.now_ms(), "event": event, "user": user, "source": source}
        if code != "":
            told["code"] = code_name(code)
        told.update((name, value) for name, value in more.items() if value is not None)
        self._write(told)

    def seen(self, channel: int, user: str, source: str) -> None:
        """Note a good signature; the first one of a user on a connection is an event."""
        users = self._seen.get(channel)
        if users is None:
            if len(self._seen) >= _CONNECTIONS_MAX:
                self._seen.clear()
            users = self._seen[channel] = set()
        if user in users:
            return
        users.add(user)
        self._event("login", user, source, "", decision="allowed")

    def forget(self, channel: int) -> None:
        """Note that a connection ended."""
        self._seen.pop(channel, None)

    def refused_login(self, name: str, source: str, code: object, reason: str) -> None:
        """Note a request whose signature was not taken."""
        self.logins_refused += 1
        # By address alone: whoever makes up names would have a sample for each.
        left = self._sample("", source)
        if left is not None:
            self._event("login", name, source, code, decision="refused", reason=reason, held_back=left or None)

    def refused(self, user: User, source: str, code: object, verdict: AccessVerdict) -> None:
        """Note a request for which a user has no right."""
        self.requests_refused += 1
        left = self._sample(user.name, source)
        if left is not None:
            self._event(
                "request", user.name, source, code,
                resource=" or ".join(f"{one.kind.value}:{one.name}"[:_TEXT_MAX] for one in verdict.need) or None,
                actions=sorted({action.value for one in verdict.need for action in one.actions}) or None,
                decision="refused", rule=verdict.rule, held_back=left or None,
            )  # fmt: skip

    def broken_row(self, user: User, source: str, code: int) -> None:
        """Note a request that has no row in the table of rights."""
        self.refused(user, source, code, AccessVerdict(False, "the request has no row in the table of rights"))

    def done(
        self, user: User, source: str, code: object, *, before: object = None, after: object = None, resource: str = ""
    ) -> None:
        """Note what an administrator did: a change with what was there before and after, or a message that was
        read."""
        self._event(
            "admin", user.name, source, code, resource=resource[:_TEXT_MAX] or None, decision="allowed", before=before,
            after=after,
        )  # fmt: skip

    def _sample(self, name: str, source: str) -> int | None:
        """Return how many refusals were held back before this one, or None if this one is held back, too."""
        second = self._clock.now_ms() // 1000
        key = (name[:120], source)
        before, count = self._refusals.get(key, (second, 0))
        if before == second:
            if key not in self._refusals and len(self._refusals) >= _USERS_MAX:
                self._refusals.clear()
            self._refusals[key] = (second, count + 1)
            return 0 if count < REFUSALS_A_SECOND else None
        self._refusals[key] = (second, 1)
        return max(0, count - REFUSALS_A_SECOND)
