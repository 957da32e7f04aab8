"""Files and directories that only their owner may read, because they hold messages.

They are made private from the start, whatever the umask allows. What exists already keeps the rights that its owner
gave it.
"""

from __future__ import annotations

import os
from typing import Final

FILE_MODE: Final = 0o600
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
