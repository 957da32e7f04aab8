"""Users and policies as JSON texts, each made once: a change of one user writes that user's text anew, not all of them.

Texts are made in slices, because there may be 20,000 users, and 10,000 entries of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from aerobee.access.directory import UserDirectory
from aerobee.access.forms import entry_info, user_info
from aerobee.access.policies import Acl, PolicyEntry
from aerobee.access.users import User
from aerobee.model.dialect import Slices, dumps

V = TypeVar("V")
_ENTRIES: Final = 50
_VALUES: Final = 500
_MADE: Final = 10


class Texts(Generic[V]):
    """The texts of all users, or of all policies."""

    def __init__(self, encode: Callable[[V], Slices[bytes]]) -> None:
        self._encode = encode
        self._known: dict[str, tuple[V, bytes]] = {}

    def of(self, values: Mapping[str, V]) -> Slices[list[bytes]]:
        """Return the texts in the order of the names. Texts of values that are gone are forgotten."""
        before, kept = self._known, {}
        made = 0
        for number, name in enumerate(sorted(values), 1):
            value = values[name]
            known = before.get(name)
            if known is None or known[0] is not value:
                known = value, (yield from self._encode(value))
                made += 1
            kept[name] = known
            if number % _VALUES == 0 or made == _MADE:
                made = 0
                yield
        self._known = kept
        return [text for _, text in kept.values()]


class TableTexts:
    """The texts of one server's tables."""

    def __init__(self) -> None:
        self._users: Texts[User] = Texts(user_text)
        self._acls: Texts[Acl] = Texts(acl_text)

    def users_file(self, tables: UserDirectory) -> Slices[bytes]:
        """Return the contents of users.json: a user in each line."""
        return _file(b"users", (yield from self._users.of(tables.users)))

    def acls_file(self, tables: UserDirectory) -> Slices[bytes]:
        """Return the contents of acls.json: the policies of a user in each line."""
        return _file(b"acls", (yield from self._acls.of(tables.acls)))

    def users_list(self, tables: UserDirectory) -> Slices[bytes]:
        """Return an array of all users with their passwords."""
        return listed((yield from self._users.of(tables.users)))

    def acls_list(self, tables: UserDirectory) -> Slices[bytes]:
        """Return an array of all policies."""
        return listed((yield from self._acls.of(tables.acls)))


def user_text(user: User, *, with_password: bool = True) -> Slices[bytes]:
    """Return a user."""
    yield from ()
    return user_info(user, with_password=with_password).encode()


def acl_text(acl: Acl) -> Slices[bytes]:
    """Return the policies of a user, as `acl_info(acl).encode()` does."""
    parts: list[str] = []
    for kind, entries in acl.policies:
        texts: list[str] = []
        for number, entry in enumerate(entries, 1):
            texts.append(_entry_text(entry))
            if number % _ENTRIES == 0:
                yield
        parts.append(f'{{"entries":[{",".join(texts)}],"policyType":"{kind.value}"}}')
    subject = dumps(acl.subject).decode()
    return f'{{"policies":[{",".join(parts)}],"subject":{subject}}}'.encode()


def _entry_text(entry: PolicyEntry) -> str:
    return entry_info(entry).encode().decode()


def listed(texts: Iterable[bytes]) -> bytes:
    """Return an array of these texts, or no bytes for an empty one, as Apache answers."""
    found = b",".join(texts)
    return b"[" + found + b"]" if found else b""


def _file(member: bytes, texts: Iterable[bytes]) -> bytes:
    return b'{"' + member + b'":[\n' + b",\n".join(texts) + b"\n]}\n"
