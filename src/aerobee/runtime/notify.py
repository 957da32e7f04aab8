"""Messages to the service manager: that a server is ready, that it stops, and that it lives. See sd_notify(3).

Without the manager's socket in the environment nothing is sent. What cannot be sent is not tried again.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

from aerobee.model.numbers import NumberError, parse_int


class Notifier:
    """The manager of this process, or nobody."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = environ.get("NOTIFY_SOCKET", "")
        pid = environ.get("WATCHDOG_PID", "")
        # Whether the manager restarts a process that says nothing for a while.
        self._is_watched = _is_positive(environ.get("WATCHDOG_USEC", "")) and pid in ("", str(os.getpid()))

    def ready(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Say that the event loop turns. Call this every second."""
        if self._is_watched:
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._path.startswith(("/", "@")):
            return
        # A name that begins with @ is no file.
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.setblocking(False)
            out.sendto(message.encode(), address)


def _is_positive(text: str) -> bool:
    try:
        return parse_int(text) > 0
    except NumberError:
        return False
