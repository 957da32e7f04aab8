"""Keeps users and rights in two files, and reads them again when somebody has changed them.

A change is on disk before it counts, so that a crash leaves the old tables or the new ones. A file that cannot be
understood stops the start, and changes nothing while the server runs: a server must not go on with fewer rules, or with
rules that were withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from aerobee.access.directory import UserDirectory
from aerobee.access.door import Access
from aerobee.access.forms import FILE_SIZE_MAX, acls_file, read_acls, read_users, users_file
from aerobee.access.refusal import invalid
from aerobee.errors import AerobeeError, StoreError
from aerobee.runtime.bases import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

T = TypeVar("T")
# What a save that failed left in the files.
_UNKNOWN: Final = (b"unknown", b"unknown")
LOOK_INTERVAL_S: Final = 1.0
_log = get_log("access")


class KeptFile(Protocol):
    """One file that is replaced as a whole, durably."""

    path: str
    problems: list[str]

    def load(self, decode: Callable[[bytes], T]) -> T | None: ...
    def save(self, content: bytes) -> None: ...


class AccessFiles:
    """users.json and acls.json of one server."""

    def __init__(self, access: Access, users: KeptFile, acls: KeptFile, clock: Clock) -> None:
        self._access = access
        self._users = users
        self._acls = acls
        self._warn = RateLimitedLog(_log, clock)
        # What the files hold.
        self._content = (b"", b"")

    def load(self) -> None:
        """Take up what the files hold. Raise StoreError where it cannot be understood."""
        tables, self._content = self._read()
        self._access.take(tables)

    def _read(self) -> tuple[UserDirectory, tuple[bytes, bytes]]:
        seen = [b"", b""]

        # What has not changed is not decoded again: that takes seconds for very many users.
        def users(data: bytes) -> object:
            seen[0] = data
            return self._access.tables.users if data == self._content[0] else read_users(data)

        def acls(data: bytes) -> object:
            seen[1] = data
            return self._access.tables.acls if data == self._content[1] else read_acls(data)

        found_users, found_acls = self._users.load(users), self._acls.load(acls)
        for file in (self._users, self._acls):
            if file.problems:
                raise StoreError(f"users and rights cannot be read: {'; '.join(file.problems)}")
        tables = UserDirectory(found_users or {}, found_acls or {})  # type: ignore[arg-type]
        return tables, (seen[0], seen[1])

    def save(self, tables: UserDirectory) -> None:
        """Make these tables durable, and go on with them. Rights are written first where some are withdrawn."""
        if tables == self._access.tables and self._content != _UNKNOWN:
            return
        content = (users_file(tables), acls_file(tables))
        if max(map(len, content)) > FILE_SIZE_MAX:
            # A file that is larger is not read again.
            raise invalid(f"Users and rights would take more than {FILE_SIZE_MAX} bytes: use prefixes.")
        before, self._content = self._content, _UNKNOWN
        # A user without rights may do nothing, so this order is safe: rights of a deleted user never outlive the user.
        if content[1] != before[1]:
            self._acls.save(content[1])
        if content[0] != before[0]:
            self._users.save(content[0])
        self._content = content
        self._access.take(tables)

    def look(self) -> bool:
        """Read the files again if they were changed by somebody else; tell whether they were."""
        try:
            tables, content = self._read()
        except (AerobeeError, OSError) as error:
            self._warn.error("files", "changed users or rights cannot be read: the old ones stay", reason=str(error))
            return False
        if content == self._content:
            return False
        self._content = content
        self._access.take(tables)
        _log.info("users and rights were read again", users=len(tables.users), acls=len(tables.acls))
        return True
