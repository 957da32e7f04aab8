"""Who holds a lock file, asked without taking a lock, without creating the file, without disturbing
anybody."""

from __future__ import annotations

import os
import struct
import sys

from aerobee.runtime.disk import is_held_here

if sys.platform != "win32":
    import fcntl

# struct flock of the two systems we can ask: type, whence, start, length, process, in their own order.
_LINUX = struct.Struct("hhqqi")
_DARWIN = struct.Struct("qqihh")


def lock_holder(path: str) -> int | None:
    """The process that holds byte 0 of the file (as Disk.lock and Java's FileChannel.lock do), None for
    nobody.

    A holder that cannot be named (another container, another host) is 0.
    """
    if not os.path.exists(path):
        return None
    # Asked first: closing any descriptor of the file would drop a lock of this very process.
    if is_held_here(path):
        return os.getpid()
    if sys.platform == "win32":
        return None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sys.platform == "darwin":
            asked = _DARWIN.pack(0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, process, kind, _ = _DARWIN.unpack_from(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        else:
            asked = _LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            kind, _, _, _, process = _LINUX.unpack_from(fcntl.fcntl(fd, fcntl.F_GETLK, asked.ljust(32, b"\0")))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else max(process, 0)
