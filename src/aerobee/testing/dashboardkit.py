"""A dashboard in this process for tests, and a reader that asks it as a browser would: cookies, tokens, forms."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.serve import serve_dashboard
from aerobee.runtime.loopthread import LoopThread
from aerobee.testing.secrets import require_unseen

PATIENCE_S: Final = 60.0


class RunningDashboard:
    """A dashboard on a thread of its own. `address` is where it is."""

    def __init__(self, options: DashboardOptions) -> None:
        self._options = options
        self._thread: LoopThread | None = None
        self._stop: asyncio.Event | None = None
        self._ended: Any = None
        self.address = ""

    def __enter__(self) -> RunningDashboard:
        self._thread = LoopThread("dashboard")
        try:
            self._thread.run(self._begin())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.run(self._end())
        finally:
            self._thread.stop()

    async def _begin(self) -> None:
        self._stop = asyncio.Event()
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve_dashboard(self._options, ready.set_result, self._stop))
        self._ended = serving
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait((ready, serving), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            serving.result()
        self.address = ready.result()

    async def _end(self) -> None:
        assert self._stop is not None
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await self._ended


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Reader:
    """Somebody with a browser: keeps cookies, and knows the token of changes after `login` or `meet`."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._root = parts.path.rstrip("/")
        self.cookies: dict[str, str] = {}
        self.token = ""

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request with the cookies, and keep those of the answer."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        try:
            cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            sent = {**({"Cookie": cookie} if cookie else {}), **(headers or {})}
            connection.request(method, self._root + path, body, sent)
            answer = connection.getresponse()
            for line in answer.headers.get_all("set-cookie") or ():
                self.cookies.update((name, one.value) for name, one in SimpleCookie(line).items())
            told = {name.lower(): value for name, value in answer.getheaders()}
            shown = answer.read()
            require_unseen(f"page {path}", shown + repr(told).encode())
            return Reply(answer.status, told, shown)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, fields: Mapping[str, Any] | None = None, **headers: str) -> Reply:
        """Send a form with the token."""
        form = urlencode({"token": self.token, **(fields or {})}, doseq=True).encode()
        sent = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, form, {**sent, **{name.replace("_", "-"): one for name, one in headers.items()}})

    def meet(self) -> dict[str, Any]:
        """Learn who one is, and the token."""
        told: dict[str, Any] = self.get("/api/me").json()
        self.token = told["token"]
        return told

    def login(self, name: str, secret: str) -> Reply:
        """Log in. After a good login the token is the new one."""
        self.meet()
        reply = self.post("/login", {"name": name, "secret": secret})
        self.meet()
        return reply

    def stream(self, path: str, bodies: list[str], count: int, began: threading.Event) -> None:
        """Read the bodies of a live tail into `bodies` until there are `count`. `began` is set once it follows."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        try:
            cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            connection.request("GET", self._root + path, headers={"Cookie": cookie})
            answer = connection.getresponse()
            while len(bodies) < count and (line := answer.readline()):
                if line.startswith(b"event: following"):
                    began.set()
                if line.startswith(b"data: "):
                    bodies += [one["body"] for one in json.loads(line[6:]).get("messages", ())]
        finally:
            connection.close()
