"""Small files of a client (a few kilobytes, read and written whole), on every operating system."""

from __future__ import annotations

import contextlib
import os

from aerobee.runtime.private import make_private_dirs, open_private


def read_small(path: str) -> bytes | None:
    """Return the contents, or None if there is no such file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def read_end(path: str, most: int) -> bytes | None:
    """Return at most the last `most` bytes of a file, or None if there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - most))
            return file.read(most)
    except FileNotFoundError:
        return None


def replace_small(path: str, data: bytes) -> None:
    """Replace the contents. After a crash the file has the new contents or the old ones, never a part. The old ones
    stay as `.bak`."""
    make_private_dirs(os.path.dirname(path))
    temporary = f"{path}.tmp"
    with open(temporary, "wb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, f"{path}.bak")
    os.replace(temporary, path)


def home_path(*names: str) -> str:
    """Return a path below the user's home."""
    return os.path.join(os.path.expanduser("~"), *names)


def join_path(root: str, *names: str) -> str:
    """Return a path of this system below `root`."""
    return os.path.join(root, *names)


def parent_path(path: str) -> str:
    """Return the whole path of the directory that a file is in."""
    return os.path.dirname(os.path.abspath(path))


def write_text(path: str, text: str) -> None:
    """Write a file of text, in directories that are made where they are missing."""
    write_bytes(path, text.encode())


def write_bytes(path: str, data: bytes) -> None:
    """Write a file, in directories that are made where they are missing."""
    make_private_dirs(os.path.dirname(path) or ".")
    with open(path, "wb", opener=open_private) as file:
        file.write(data)
