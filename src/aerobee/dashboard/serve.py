"""The root of `aerobee dashboard`: builds it from its options and serves it until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import uvicorn

from aerobee.app.identity import joined
from aerobee.app.process import CannotListenError, stopped_or_failed
from aerobee.dashboard.gate import Gate
from aerobee.dashboard.listening import BrowserConnection
from aerobee.dashboard.options import DashboardOptions, Mode
from aerobee.dashboard.pages.tail import end_tails
from aerobee.dashboard.web import Web
from aerobee.errors import InvalidArgumentError
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.net import listening_socket
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_TIDY_S: Final = 5.0
_CONNECTIONS_MAX: Final = 500
_log = get_log("dashboard")


class _Server(uvicorn.Server):
    """A server whose signals are the business of the process around it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_dashboard(options: DashboardOptions, ready: Callable[[str], None], stop: asyncio.Event) -> int:
    """Run a dashboard until `stop` is set and return the exit code. `ready` is called with its address."""
    clock = SystemClock()
    try:
        sock = listening_socket(options.host, options.port)
    except OSError as error:
        hint = "Stop the process that uses it, or take a free port with --port 0."
        raise CannotListenError("dashboard", options.host, options.port, error, hint) from error
    with contextlib.closing(sock):
        options = replace(options, port=sock.getsockname()[1])
        gate, tasks = Gate(options, clock), Tasks(_task_failed)
        try:
            await gate.open()
            is_loopback = ipaddress.ip_address(options.host).is_loopback
            require_safe(gate.mode, options, is_loopback=is_loopback)
            web = Web(options, gate, clock, SystemEntropy(), tasks, is_loopback)
            tasks.start(_tidy(gate, web, clock), name="tidy")
            address = f"http://{joined(options.host, options.port)}{options.root_path}/"
            _log.info("dashboard started", address=address, namesrv=options.namesrv, logins=gate.mode.value)
            return await _serve(web, sock, lambda: ready(address), stop)
        finally:
            await tasks.close()
            await gate.close()
            _log.info("dashboard stopped")


async def _serve(web: Web, sock: socket.socket, ready: Callable[[], None], stop: asyncio.Event) -> int:
    config = uvicorn.Config(
        web.app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="off",
        loop="none", http=BrowserConnection, ws="none", timeout_keep_alive=30, limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=2, h11_max_incomplete_event_size=32 << 10,
    )  # fmt: skip
    server, failed = _Server(config), asyncio.Event()
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    serving.add_done_callback(lambda done: failed.set())
    ready()
    code = await stopped_or_failed(stop, failed)
    end_tails()
    server.should_exit = True
    await serving
    return code


def _task_failed(name: str, error: BaseException) -> None:
    _log.error("a task of the dashboard failed", task=name, exc_info=error)


def require_safe(mode: Mode, options: DashboardOptions, *, is_loopback: bool) -> None:
    """Raise InvalidArgumentError where everybody on the network would be let in, or secrets would cross it in clear."""
    if mode is Mode.open and (not is_loopback or options.is_public):
        raise InvalidArgumentError(
            "other machines can reach the dashboard, and nobody would have to log in: the cluster has no users",
            hint="Name a file of people with --users (--add makes its lines), or listen on 127.0.0.1.",
        )
    if not is_loopback and not options.insecure and not options.public_url.startswith("https://"):
        raise InvalidArgumentError(
            "other machines can reach the dashboard, and secrets of logins would cross the network in the clear",
            hint="Put a proxy with TLS in front and name it with --public-url https://..., or add --insecure.",
        )


async def _tidy(gate: Gate, web: Web, clock: SystemClock) -> None:
    while True:
        await asyncio.sleep(_TIDY_S)
        sessions = web.callers.sessions
        for name in await gate.withdrawn(sessions.people(clock.monotonic())):
            _log.info("the user was changed or is gone: logged out", user=name)
            sessions.end_those_of(name)
        await gate.tidy(sessions.people(clock.monotonic()))
