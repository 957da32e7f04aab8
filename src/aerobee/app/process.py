"""A server process: its event loop, its signals and its log. SIGTERM, SIGHUP and Ctrl-C ask it to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
from collections.abc import Awaitable, Callable, Iterator

from aerobee.errors import AerobeeError
from aerobee.runtime.children import input_ended
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.logfile import LogFile, rolling_writer
from aerobee.runtime.notify import Notifier
from aerobee.runtime.process import (
    FULL_COLLECTION_S,
    MEMORY_LOOK_S,
    FreedMemory,
    collect_all,
    environment,
    spare_from_collection,
)
from aerobee.runtime.shortage import raise_descriptor_limit
from aerobee.runtime.signals import stop_signals
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.logs import LEVEL_VARIABLE, configured_logs
from aerobee.telemetry.stdlog import get_log, lead_to

# A server: it runs until the event is set and returns the exit code.
Serve = Callable[[asyncio.Event], Awaitable[int]]


class CannotListenError(AerobeeError):
    """A server cannot listen on its port."""

    def __init__(self, what: str, host: str, port: int, error: OSError, hint: str) -> None:
        taken = error.errno == errno.EADDRINUSE
        reason = "is in use" if taken else f"cannot be used: {error.strerror or error}"
        super().__init__(f"port {port} of {host} {reason} ({what})", hint=hint if taken else None)


class LogFileError(AerobeeError):
    """The log file cannot be opened."""


def run(serve: Serve, *, log_level: str = "INFO", log_file: LogFile | None = None, with_parent: bool = False) -> int:
    """Serve until a signal arrives, or `with_parent` until the parent process ends, and return the exit code.

    `log_level` is used unless the environment names a level. Without `log_file` the log goes to standard error.
    """
    with _log_writer(log_file) as write:
        lead_to(configured_logs({LEVEL_VARIABLE: log_level, **environment()}, SystemClock(), write))
        limit = raise_descriptor_limit()
        get_log("process").info("open files", limit="none" if limit is None else limit)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_signal(_with_parent(serve) if with_parent else serve))


@contextlib.contextmanager
def _log_writer(file: LogFile | None) -> Iterator[Callable[[str], None]]:
    if file is None:
        yield _write_stderr
        return
    with contextlib.ExitStack() as stack:
        try:
            write = stack.enter_context(rolling_writer(file))
        except OSError as error:
            raise LogFileError(f"cannot write the log file {file.path}: {error.strerror or error}") from error
        yield write


def _write_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for Windows
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _until_signal(serve: Serve) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = stop_signals() if sys.platform != "win32" else ()

    def asked() -> None:
        stop.set()
        for one in signals:
            # A second signal ends the process at once.
            loop.remove_signal_handler(one)

    for one in signals:
        loop.add_signal_handler(one, asked)
    return await serve(stop)


def _with_parent(serve: Serve) -> Serve:
    """Return a server that stops when the parent process ends, too."""

    async def watch(stop: asyncio.Event) -> None:
        await input_ended()
        stop.set()

    async def serve_with_parent(stop: asyncio.Event) -> int:
        async with Tasks() as tasks:
            tasks.start(watch(stop), name="parent")
            return await serve(stop)

    return serve_with_parent


async def stopped_or_failed(stop: asyncio.Event, failed: asyncio.Event) -> int:
    """Wait until one of the events is set. Return the exit code: 1 if the server failed.

    The service manager is told that the server is ready, that it lives, and that it stops.
    """
    spare_from_collection()
    manager = Notifier(environment())
    manager.ready()
    waiting = [asyncio.ensure_future(one.wait()) for one in (stop, failed)]
    memory, looks = FreedMemory(), 0
    while not (await asyncio.wait(waiting, timeout=MEMORY_LOOK_S, return_when=asyncio.FIRST_COMPLETED))[0]:
        manager.alive()
        looks += 1
        if looks * MEMORY_LOOK_S >= FULL_COLLECTION_S:
            collect_all()
            looks = 0
        memory.look()
    manager.stopping()
    for one in waiting:
        one.cancel()
    return 1 if failed.is_set() else 0


def disk_of_this_loop() -> RealDisk:
    """Return a disk whose callbacks run in the thread of the running event loop."""
    loop = asyncio.get_running_loop()

    def post(done: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(done)

    return RealDisk(post)


async def listening(start: Awaitable[None], what: str, host: str, port: int, free_port: str) -> None:
    """Start a server. Raise CannotListenError if its port cannot be used."""
    try:
        await start
    except OSError as error:
        hint = f"Stop the process that uses it, or take a free port with {free_port}."
        raise CannotListenError(what, host, port, error, hint) from error
