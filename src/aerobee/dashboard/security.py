"""Who may do what in the dashboard: roles, sessions, tokens, throttling, origins. No I/O; time is an argument."""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

IDLE_S: Final = 30 * 60.0
LIFE_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1_000
TRIES: Final = 5
TRIES_OF_ADDRESS: Final = 20
# A proxy may pass on an address that its caller made up.
TRIES_OF_NAME: Final = 50
TRY_WINDOW_S: Final = 60.0
_TRIED_MAX: Final = 10_000


class Role(enum.IntEnum):
    """What a person may do. Each role includes those below it."""

    viewer = 1
    operator = 2
    admin = 3


@dataclass(frozen=True, slots=True)
class Person:
    """Who is logged in. With a secret, requests are signed as this user of the cluster."""

    name: str
    role: Role
    secret: str | None = field(default=None, repr=False)
    is_super: bool = False


@dataclass(slots=True)
class Session:
    """One login."""

    key: str
    person: Person
    began_s: float
    seen_s: float


class Sessions:
    """All logins. The key of a session is the value of its cookie."""

    def __init__(self) -> None:
        # In the order in which they were last seen.
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, key: str, person: Person, now_s: float) -> Session:
        """Begin a session. The one that was idle longest ends if there are too many."""
        session = self._sessions[key] = Session(key, person, now_s, now_s)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    def peek(self, key: str, now_s: float) -> Session | None:
        """Return a session that is still valid."""
        session = self._sessions.get(key)
        if session is None:
            return None
        if now_s - session.seen_s > IDLE_S or now_s - session.began_s > LIFE_S:
            del self._sessions[key]
            return None
        return session

    def find(self, key: str, now_s: float) -> Session | None:
        """Return a session that is still valid, and note that it was seen."""
        session = self.peek(key, now_s)
        if session is None:
            return None
        session.seen_s = now_s
        self._sessions.move_to_end(key)
        return session

    def end(self, key: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(key, None)

    def end_those_of(self, name: str) -> None:
        """End every session of a person, such as one whom the cluster no longer knows."""
        for key in [key for key, one in self._sessions.items() if one.person.name == name]:
            del self._sessions[key]

    def people(self, now_s: float) -> set[Person]:
        """Return everybody who is logged in, and drop sessions that are over."""
        over = [
            key for key, one in self._sessions.items() if now_s - one.seen_s > IDLE_S or now_s - one.began_s > LIFE_S
        ]
        for key in over:
            del self._sessions[key]
        return {one.person for one in self._sessions.values()}


class LoginThrottle:
    """Counts tries to log in: few for a name from an address, some more for an address, or for a name from anywhere."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def wait_s(self, name: str, address: str, now_s: float) -> float:
        """Return 0 and count the try, or the seconds until the next one is taken."""
        keys = (((name[:100], address), TRIES), (("", address), TRIES_OF_ADDRESS), ((name[:100], ""), TRIES_OF_NAME))
        waits = [self._left(key, most, now_s) for key, most in keys]
        if max(waits) > 0:
            return max(waits)
        for key, _ in keys:
            self._tries.setdefault(key, []).append(now_s)
            self._tries.move_to_end(key)
        while len(self._tries) > _TRIED_MAX:
            self._tries.popitem(last=False)
        return 0.0

    def _left(self, key: tuple[str, str], most: int, now_s: float) -> float:
        tries = [at for at in self._tries.get(key, ()) if now_s - at < TRY_WINDOW_S]
        if key in self._tries:
            self._tries[key] = tries
        return 0.0 if len(tries) < most else TRY_WINDOW_S - (now_s - tries[0])

    def forget(self, name: str, address: str) -> None:
        """Forget the tries of somebody who got in. Those of others from there, and from elsewhere, stay."""
        self._tries.pop((name[:100], address), None)
        for key in (("", address), (name[:100], "")):
            if self._tries.get(key):
                self._tries[key].pop()


class FormTokens:
    """The token of a form belongs to the cookie of its reader: whoever cannot read the page cannot make it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, cookie: str) -> str:
        return hmac.new(self._secret, cookie.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def fits(self, cookie: str, token: str) -> bool:
        given = token.encode("utf-8", "replace")
        return bool(cookie) and hmac.compare_digest(self.of(cookie).encode(), given)


@dataclass(frozen=True, slots=True)
class Origins:
    """Which hosts and origins a request may name. `public_url` is what people type where a proxy stands in front."""

    is_loopback: bool
    public_url: str = ""

    def refuses_host(self, host: str) -> bool:
        """Tell whether a request names a host that is not this server.

        A page of another site can make its own name point at 127.0.0.1 (DNS rebinding). It cannot choose the header.
        """
        if not self.is_loopback:
            return False
        name = host_name(host)
        public = host_name(urlsplit(self.public_url).netloc)
        return not is_loopback_name(name) and (not public or name != public)

    @staticmethod
    def comes_from_elsewhere(headers: Mapping[bytes, bytes]) -> bool:
        """Tell whether a proxy passes the request of another machine on."""
        told = b",".join(headers.get(name, b"") for name in (b"x-forwarded-for", b"x-real-ip")).decode("latin-1")
        return any(not is_loopback_name(one.strip().lower()) for one in told.split(",") if one.strip())

    def refuses_change(self, origin: str, site: str, hosts: tuple[str, ...]) -> bool:
        """Tell whether a change comes from a page of another site. `hosts` are what the request names as its host."""
        if site:
            return site not in ("same-origin", "none")
        if not origin:
            return False
        if self.public_url and origin == "{0.scheme}://{0.netloc}".format(urlsplit(self.public_url)):
            return False
        return urlsplit(origin).netloc not in hosts


def is_loopback_name(name: str) -> bool:
    """Tell whether a host without a port is this machine."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """Return a host without its port and without the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
