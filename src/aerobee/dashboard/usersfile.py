"""A file of people for clusters without users: one line each, `name:role:scrypt:salt:hash`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from aerobee.dashboard.security import Person, Role
from aerobee.errors import ConfigError

_COST: Final = 1 << 14
_BLOCK: Final = 8
_SALT_BYTES: Final = 16
_NAME_MAX: Final = 64


def hashed(password: str, salt: bytes) -> bytes:
    """Return the hash of a password. It takes some 50 ms and 16 MiB, so that guessing is dear."""
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=1, dklen=32, maxmem=64 << 20)


def line_of(name: str, role: Role, password: str, token: Callable[[int], bytes]) -> str:
    """Return the line of a person. Raise ConfigError for a name or a password that cannot be used."""
    if not name or ":" in name or not name.isprintable() or len(name) > _NAME_MAX or name.startswith("#"):
        raise ConfigError([f"{name!r} cannot be the name of a person: printable, without a colon, not over 64 letters"])
    if len(password) < 8:
        raise ConfigError(["a password needs at least 8 characters"])
    salt = token(_SALT_BYTES)
    return f"{name}:{role.name}:scrypt:{_text(salt)}:{_text(hashed(password, salt))}"


class UsersFile:
    """The people of a file. The file is read again when its contents have changed."""

    def __init__(self, path: str, read: Callable[[str], bytes | None]) -> None:
        self._path = path
        self._read = read
        self._contents: bytes | None = None
        self._people: Mapping[str, tuple[Role, bytes, bytes]] = {}
        # Whoever is unknown is compared with this, so that the time of an answer tells nothing.
        self._nobody = (bytes(_SALT_BYTES), bytes(32))
        self.load()

    def load(self) -> None:
        """Read the file if it has changed. Raise ConfigError if it is missing or broken."""
        contents = self._read(self._path)
        if contents is None:
            raise ConfigError([f"there is no file {self._path}: `aerobee dashboard --users FILE --add NAME` makes one"])
        if contents == self._contents:
            return
        self._people = _parsed(contents.decode("utf-8", "replace"), self._path)
        self._contents = contents

    def check(self, name: str, password: str) -> Person | None:
        """Return the person with this name and password, or None."""
        role, salt, wanted = self._people.get(name, (None, *self._nobody))
        fits = hmac.compare_digest(hashed(password[:1024], salt), wanted)
        return Person(name, role) if fits and role is not None else None

    def role_of(self, name: str) -> Role | None:
        """Return the role of a person, None if the file no longer has it."""
        found = self._people.get(name)
        return None if found is None else found[0]


def _parsed(text: str, path: str) -> dict[str, tuple[Role, bytes, bytes]]:
    people: dict[str, tuple[Role, bytes, bytes]] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.strip().split(":")
        try:
            name, role, kind, salt, wanted = words
            if kind != "scrypt" or name in people:
                raise ValueError
            people[name] = Role[role], base64.b64decode(salt, validate=True), base64.b64decode(wanted, validate=True)
        except (ValueError, KeyError, binascii.Error):
            problems.append(f"line {number} of {path} is not name:role:scrypt:salt:hash with a new name")
    if problems:
        raise ConfigError(problems)
    return people


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
