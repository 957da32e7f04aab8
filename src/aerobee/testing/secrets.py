"""Secrets for tests: each begins with one marker of the session, so that a leak of any of them is found by a search.

A run of our tests names its marker in the environment (`leaks.py` does that), and all its processes use the same.
Without it, secrets are as random as anywhere, and nothing is searched.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerobee.app.secure import SECRET_LENGTH, new_secret
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.private import is_private

VARIABLE: Final = "AEROBEE_TEST_MARKER"
# The only files in which a secret may stand, and only while nobody else can read them.
HOLDERS: Final = (
    "users.json",  # the users of a server
    "server.conf",  # the settings of `aerobee up --secure`
    "credentials.toml",  # profiles of clients
    "secure.conf",  # those of docs/security.md
    "tools.yml",  # the credentials of Apache's mqadmin
    "plain_acl.yml",  # the accounts of RocketMQ 4
    "password.txt",  # what --password-file reads
)
# A directory with such a file belongs to a program of Apache's, and is not searched.
FOREIGN: Final = "written-by-apache"
_PIECE: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Leak:
    """Where a secret stands. It does not show the secret."""

    place: str
    line: int
    reason: str = "holds a secret"

    def __str__(self) -> str:
        return f"{self.place}:{self.line} {self.reason}"


def new_marker() -> str:
    """Return a marker for a session: letters that no format quotes, encodes or splits."""
    return "Marked" + new_secret(SystemEntropy())[:10]


def secret_for(name: str) -> str:
    """Return the secret of somebody: the same in all processes of the session."""
    return f"{os.environ.get(VARIABLE, 'Unmarked')}-{name}"


def made_secret() -> str:
    """Return a new secret of the usual length, which begins with the marker where there is one."""
    return (os.environ.get(VARIABLE, "") + new_secret(SystemEntropy()))[:SECRET_LENGTH]


@functools.cache
def _needles(marker: str) -> tuple[bytes, ...]:
    """Return what to look for: the marker, in UTF-16, and as base64 has it at each of three places."""
    plain = marker.encode()
    # The first and the last letters of base64 also depend on what stands beside the marker.
    shifted = [base64.b64encode(b"-" * shift + plain)[(0, 2, 3)[shift] :][:-4].rstrip(b"=") for shift in range(3)]
    return (plain, marker.encode("utf-16-le"), *shifted)


def leak_in(place: str, data: bytes | str) -> Leak | None:
    """Return the first leak in something that was shown, written or logged."""
    marker = os.environ.get(VARIABLE)
    if not marker:
        return None
    found = _first(data.encode(errors="replace") if isinstance(data, str) else data, marker)
    return None if found is None else Leak(place, found[1])


def require_unseen(place: str, data: bytes | str) -> None:
    """Raise AssertionError if something that was shown holds a secret. The error does not show it."""
    leak = leak_in(place, data)
    if leak is not None:
        raise AssertionError(str(leak))


def _first(data: bytes, marker: str) -> tuple[int, int] | None:
    """Return where the first secret stands, and in which line."""
    places = [at for at in map(data.find, _needles(marker)) if at >= 0]
    return (min(places), data.count(b"\n", 0, min(places)) + 1) if places else None


def leaks_under(*directories: Path) -> list[Leak]:
    """Return every file that holds a secret and must not. Nothing is followed out of the directories."""
    marker = os.environ.get(VARIABLE)
    found: list[Leak] = []
    for directory in directories if marker else ():
        for parent, deeper, names in os.walk(directory):
            if FOREIGN in names:
                deeper.clear()
                continue
            for name in names:
                path = os.path.join(parent, name)
                # Servers that end may remove files meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    found += _leaks_of(path, name, marker or "")
    return found


def require_no_leaks(directory: Path) -> None:
    """Raise AssertionError if a file holds a secret and must not: for a directory that is removed now."""
    leaks = leaks_under(directory)
    if leaks:
        raise AssertionError("; ".join(map(str, leaks)))


def _leaks_of(path: str, name: str, marker: str) -> Iterator[Leak]:
    if marker in name:
        yield Leak(os.path.dirname(path), 0, "has a file whose name holds a secret")
        return
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return
    for start, piece in _unpacked(path) if name.endswith(".gz") else _written(path, len(marker) * 2):
        found = _first(piece, marker)
        if found is None:
            continue
        if name not in HOLDERS:
            yield Leak(path, _lines_before(path, start) + found[1])
        elif not is_private(path):
            yield Leak(path, _lines_before(path, start) + found[1], "holds a secret, as it may, but others can read it")
        return


def _lines_before(path: str, offset: int) -> int:
    return sum(piece[: offset - start].count(b"\n") for start, piece in _written(path, 0) if start < offset)


def _written(path: str, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Return what was written to a file, in pieces that overlap. The holes in files of a store are left out."""
    with open(path, "rb", buffering=0) as file:
        handle = file.fileno()
        at, end = 0, os.fstat(handle).st_size
        while at < end:
            try:
                at = os.lseek(handle, at, os.SEEK_DATA)
            except OSError:
                return  # nothing but a hole is left
            until = os.lseek(handle, at, os.SEEK_HOLE)
            while at < until:
                start = max(0, at - overlap)
                piece = os.pread(handle, min(until - start, _PIECE), start)
                if start + len(piece) <= at:
                    return  # it was cut meanwhile
                yield start, piece
                at = start + len(piece)


def _unpacked(path: str) -> Iterator[tuple[int, bytes]]:
    try:
        with gzip.open(path) as file:
            yield 0, file.read()
    except (OSError, EOFError):
        yield 0, Path(path).read_bytes()
