"""How to build a path from names that came from outside (topics, groups, file names)."""

from __future__ import annotations

import os

from aerobee.errors import InvalidArgumentError


def require_name(name: str) -> str:
    """Return the name if it can be one path component, else raise InvalidArgumentError. Both slashes are refused on
    every system, because stores move between systems."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidArgumentError(f"{name!r} cannot be the name of a file")
    return name


def join(root: str, *names: str) -> str:
    """Return `root` (trusted, kept as it is) followed by the names. No name can lead out of `root`."""
    return "/".join((root.rstrip("/") if len(root) > 1 else root, *map(require_name, names))).replace("//", "/", 1)


def whole_path(path: str) -> str:
    """Return a path from the root of the file system, without `..` and without symbolic links."""
    return os.path.realpath(path)
