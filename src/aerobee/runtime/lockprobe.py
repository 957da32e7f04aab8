"""Find out who holds a lock file, without taking a lock and without creating the file."""

from __future__ import annotations

import os
import struct
import sys

from aerobee.runtime.disk import is_held_here

if sys.platform != "win32":
    import fcntl

# struct flock of Linux and macOS: type, whence, start, length and process, in the order of each system.
_LINUX = struct.Struct("hhqqi")
_DARWIN = struct.Struct("qqihh")


def lock_holder(path: str) -> int | None:
    """Return the process that holds byte 0 of the file, as Disk.lock and Java's FileChannel.lock do, or None if none
    does.

    A holder that cannot be named (in another container, on another host) is 0.
    """
    if not os.path.exists(path):
        return None
    # This is asked first, because closing any descriptor of the file would drop a lock of this process.
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
