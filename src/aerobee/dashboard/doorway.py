"""What every request passes before a page sees it: host, sub-path, size of the body, security headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from aerobee.dashboard.security import Origins
from aerobee.model.numbers import int_or

BODY_MAX: Final = 64 << 10
PUBLISH_MAX: Final = 6 << 20
_PUBLISH: Final = "/publish"

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

    def __init__(self, app: App, origins: Origins, root_path: str) -> None:
        self._app = app
        self._origins = origins
        self._root = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self._origins.refuses_host(host):
            words = (
                "This dashboard listens on a loopback address and is called by another name. Start it with "
                "--public-url to allow the name of a proxy.\n"
            )
            await _refuse(send, 421, words)
            return
        path = scope["path"]
        # A proxy may pass the sub-path on, or take it off.
        if self._root and (path == self._root or path.startswith(f"{self._root}/")):
            path = path[len(self._root) :] or "/"
        scope = {**scope, "path": path, "root_path": "", "raw_path": path.encode()}
        limit = PUBLISH_MAX if path.endswith(_PUBLISH) else BODY_MAX
        if int_or(headers.get(b"content-length", b"0"), None, 0, limit) is None:
            await _refuse(send, 413, f"The body of this request may have {limit} bytes.\n")
            return
        taken = 0

        async def bounded() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise TooLargeError
            return message

        began = False

        async def guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            await self._app(scope, bounded, guarded)
        except TooLargeError:
            if not began:
                await _refuse(send, 413, f"The body of this request may have {limit} bytes.\n")


async def _refuse(send: Send, status: int, words: str) -> None:
    body = words.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
