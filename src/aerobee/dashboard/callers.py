"""Who asks: cookies, sessions, tokens, and the words of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from aerobee.dashboard.gate import Gate
from aerobee.dashboard.options import DashboardOptions, Mode
from aerobee.dashboard.security import LIFE_S, FormTokens, Origins, Person, Role, Sessions
from aerobee.runtime.seams import Clock, Entropy

_KEY_BYTES: Final = 32
_FIELDS_MAX: Final = 2_000
_NOBODY: Final = "everybody"


class WrongRequestError(Exception):
    """A request whose words cannot be read."""


@dataclass(frozen=True, slots=True)
class WebCaller:
    """Who sent a request: the cookie, and the person behind it. Without a person somebody must log in first."""

    cookie: str
    is_new: bool
    person: Person | None


class Callers:
    """Tells who sent a request, and whether a change comes from a page of ours."""

    def __init__(self, options: DashboardOptions, gate: Gate, clock: Clock, entropy: Entropy, origins: Origins) -> None:
        self._options = options
        self._gate = gate
        self._clock = clock
        self._entropy = entropy
        self._origins = origins
        self._tokens = FormTokens(entropy.token(_KEY_BYTES))
        self.sessions = Sessions()

    def new_key(self) -> str:
        """Return a value for a cookie that nobody can guess."""
        return self._entropy.token(_KEY_BYTES).hex()

    def token(self, cookie: str) -> str:
        """Return the token of forms for the owner of a cookie."""
        return self._tokens.of(cookie)

    def caller(self, request: Request) -> WebCaller:
        """Return who sent a request."""
        cookie = request.cookies.get(self._cookie_name(request), "")
        is_new = not (len(cookie) == 2 * _KEY_BYTES and cookie.isalnum())
        if is_new:
            cookie = self.new_key()
        if self._gate.mode is Mode.open:
            role = Role.viewer if self._options.read_only else Role.admin
            return WebCaller(cookie, is_new, Person(_NOBODY, role))
        session = None if is_new else self.sessions.find(cookie, self._clock.monotonic())
        person = None if session is None else self._gate.person_still(session.person)
        return WebCaller(cookie, is_new, person)

    def is_over(self, request: Request) -> bool:
        """Tell whether the session of a request has ended since it came. To ask is no sign of life."""
        if self._gate.mode is Mode.open:
            return False
        cookie = request.cookies.get(self._cookie_name(request), "")
        session = self.sessions.peek(cookie, self._clock.monotonic())
        return session is None or self._gate.person_still(session.person) is None

    def _is_https(self, request: Request) -> bool:
        public = self._options.public_url
        return (urlsplit(public).scheme if public else request.headers.get("x-forwarded-proto", "http")) == "https"

    def _cookie_name(self, request: Request) -> str:
        # Browsers do not tell the ports of one machine apart, and two dashboards may run on it.
        name = f"aerobee-{self._options.port}"
        return f"__Host-{name}" if self._is_https(request) else name

    def set_cookie(self, request: Request, response: Response, value: str) -> None:
        response.set_cookie(
            self._cookie_name(request), value, max_age=int(LIFE_S), path="/", httponly=True, samesite="strict",
            secure=self._is_https(request),
        )  # fmt: skip

    def address(self, request: Request) -> str:
        """Return the address of a caller. The word of a proxy counts where the proxy is on this machine."""
        peer = "" if request.client is None else request.client.host
        if peer in ("127.0.0.1", "::1"):
            return request.headers.get("x-forwarded-for", peer).rpartition(",")[2].strip()[:64] or peer
        return peer

    def refusal(self, request: Request, cookie: str, token: str) -> str:
        """Return why a change is not taken, nothing if it is: it must come from a page that we showed this caller."""
        hosts = tuple(filter(None, (request.headers.get("host", ""), request.headers.get("x-forwarded-host", ""))))
        headers = request.headers
        if self._origins.refuses_change(headers.get("origin", ""), headers.get("sec-fetch-site", ""), hosts):
            return "The change comes from another site. Behind a proxy, start the dashboard with --public-url."
        if not self._tokens.fits(cookie, token):
            return "The token of the form is missing or old: it ends with the session that showed it."
        return ""


async def given_words(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form, or the members of a JSON object, as texts. Raise WrongRequestError."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            return _json_words(msgspec.json.decode(body) if body else {})
        if kind not in ("application/x-www-form-urlencoded", ""):
            raise WrongRequestError(f"a body of the type {kind[:60]} is not taken")
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            max_num_fields=_FIELDS_MAX,
            errors="strict",
            strict_parsing=False,
        )
    except (UnicodeDecodeError, ValueError, msgspec.DecodeError) as error:
        raise WrongRequestError("the body cannot be read") from error
    return collected(pairs)


def _json_words(document: Any) -> dict[str, list[str]]:
    if not isinstance(document, dict):
        raise WrongRequestError("the body is no JSON object")
    words = {}
    for name, value in document.items():
        values = value if isinstance(value, list) else [value]
        if len(values) > _FIELDS_MAX or any(isinstance(one, dict | list) for one in values):
            raise WrongRequestError(f"{str(name)[:60]} has a value that no field takes")
        words[str(name)] = ["1" if one is True else "" if one is None or one is False else str(one) for one in values]
    return words


def collected(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each name."""
    words: dict[str, list[str]] = {}
    for name, value in pairs:
        words.setdefault(name, []).append(value)
    return words


def lasts(words: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the last value of each name."""
    return {name: values[-1] for name, values in words.items() if values}
