"""Files and directories that only their owner may read, because they hold messages.

They are made private from the start, whatever the umask allows. What exists already keeps the rights that its owner
gave it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

FILE_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o700


def make_private_dirs(path: str) -> None:
    """Make a directory and every missing one above it. os.makedirs would give those above the rights of the umask."""
    parent = os.path.dirname(path.rstrip("/"))
    if parent and not os.path.exists(parent):
        make_private_dirs(parent)
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def open_private(path: str, flags: int) -> int:
    """Open a file as the `opener` of the built-in open."""
    return os.open(path, flags, FILE_MODE)


def create_file(path: str, data: bytes, *, private: bool) -> None:
    """Write a new file. Raise FileExistsError if there is one. Only a private file is hidden from other users."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE if private else PUBLIC_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def replace_file(path: str, data: bytes, *, private: bool) -> None:
    """Write a file in place of another. After a crash it has the new contents or the old ones."""
    temporary = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    create_file(temporary, data, private=private)
    os.replace(temporary, path)


def is_private(path: str) -> bool:
    """Return whether only its owner can read and write a file. Where the system has no such rights, it is."""
    return os.name == "nt" or os.stat(path).st_mode & 0o077 == 0
