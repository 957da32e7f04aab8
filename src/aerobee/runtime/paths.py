"""How a path is built from names that came from outside (topics, groups, file names): one guard for all."""

from __future__ import annotations

from aerobee.errors import InvalidArgumentError


def require_name(name: str) -> str:
    """One path component, or InvalidArgumentError. Both slashes are refused everywhere: stores move between
    systems."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidArgumentError(f"{name!r} cannot be the name of a file")
    return name


def join(root: str, *names: str) -> str:
    """`root` (trusted, kept as it is) and below it each name, none of which can lead out."""
    return "/".join((root.rstrip("/") if len(root) > 1 else root, *map(require_name, names))).replace("//", "/", 1)
