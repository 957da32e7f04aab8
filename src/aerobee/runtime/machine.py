"""What a server asks of the machine it runs on: the local hour, the space of a disk, its name."""

from __future__ import annotations

import shutil
import socket
import time


def local_hour(now_ms: int) -> int:
    """The hour of the local day, 0 to 23."""
    return time.localtime(now_ms / 1000).tm_hour


def disk_space(path: str) -> tuple[int, int]:
    """Total and free bytes of the file system that holds the path."""
    usage = shutil.disk_usage(path)
    return usage.total, usage.free


def host_name() -> str:
    return socket.gethostname()
