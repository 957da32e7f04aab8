"""What every request passes before a page sees it: host, sub-path, size of the body, security headers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from aerobee.dashboard.security import Origins
from aerobee.model.numbers import int_or

BODY_MAX: Final = 64 << 10
PUBLISH_MAX: Final = 6 << 20
_PUBLISH: Final = "/publish"
# How long the body of a request may take to come, and a part of an answer to leave.
BODY_S: Final = 30.0
SEND_S: Final = 60.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class TooLargeError(Exception):
    """The body of a request is larger than what is taken."""


class Doorway:
    """Stands before the pages."""

    def __init__(self, app: App, origins: Origins, root_path: str, *, is_open: bool) -> None:
        self._app = app
        self._origins = origins
        self._root = root_path
        # Whether nobody has to log in: then this machine alone is served.
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        path = self._path(scope["path"])
        scope = {**scope, "path": path, "root_path": "", "raw_path": path.encode()}
        limit = PUBLISH_MAX if path.endswith(_PUBLISH) else BODY_MAX
        if int_or(headers.get(b"content-length", b"0"), None, 0, limit) is None:
            await _refuse(send, 413, f"The body of this request may have {limit} bytes.\n")
            return
        taken, is_whole = 0, False
        until_s = asyncio.get_running_loop().time() + BODY_S

        async def bounded() -> MutableMapping[str, Any]:
            nonlocal taken, is_whole
            # Afterwards there is nothing to wait for but that the reader leaves.
            async with asyncio.timeout_at(None if is_whole or scope["method"] == "GET" else until_s):
                message = await receive()
            taken += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if taken > limit:
                raise TooLargeError
            return message

        began = False

        async def guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            # Who does not read what was sent would keep it here.
            async with asyncio.timeout(SEND_S):
                await send(message)

        try:
            await self._app(scope, bounded, guarded)
        except TooLargeError:
            if not began:
                await _refuse(send, 413, f"The body of this request may have {limit} bytes.\n")
        except TimeoutError:
            if not began:
                await _refuse(send, 408, f"The body of this request did not come within {BODY_S:g} s.\n")

    def _path(self, path: str) -> str:
        """Return a path without the sub-path, which a proxy may pass on or take off."""
        if self._root and (path == self._root or path.startswith(f"{self._root}/")):
            return path[len(self._root) :] or "/"
        return path

    def _refusal(self, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        """Return why a request is not for this server, as a status and words."""
        if self._origins.refuses_host(headers.get(b"host", b"").decode("latin-1")):
            return 421, (
                "This dashboard listens on a loopback address and is called by another name. Start it with "
                "--public-url to allow the name of a proxy.\n"
            )
        if self._is_open and self._origins.comes_from_elsewhere(headers):
            return 403, (
                "A proxy passes the request of another machine on, and nobody has to log in to this dashboard: it "
                "serves its own machine only. Name a file of people with --users.\n"
            )
        return None


async def _refuse(send: Send, status: int, words: str) -> None:
    body = words.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
