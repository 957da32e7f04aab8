"""Keeps users and rights in two files, and reads them again when somebody has changed them.

A change is on disk before it counts, so that a crash leaves the old tables or the new ones. A file that cannot be
understood stops the start, and changes nothing while the server runs: a server must not go on with fewer rules, or with
rules that were withdrawn.

While the server runs, all of this is done in slices: writing 120,000 entries takes seconds, and nobody waits for it but
who asked for the change. Changes are done one after the other, each to what the one before it left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from aerobee.access.directory import UserDirectory
from aerobee.access.door import Access
from aerobee.access.forms import FILE_SIZE_MAX, acls_in_slices, users_in_slices
from aerobee.access.refusal import invalid
from aerobee.access.texts import TableTexts
from aerobee.errors import AerobeeError, StoreError
from aerobee.model.dialect import Slices, run_slices
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
    def submit(self, content: bytes, done: Callable[[OSError | StoreError | None], None]) -> None: ...


async def in_turns(slices: Slices[T]) -> T:
    """Do the work one slice in each turn of the loop."""
    while True:
        try:
            next(slices)
        except StopIteration as stop:
            result: T = stop.value
            return result
        await asyncio.sleep(0)


class AccessFiles:
    """users.json and acls.json of one server."""

    def __init__(self, access: Access, users: KeptFile, acls: KeptFile, clock: Clock) -> None:
        self.texts = TableTexts()
        self._access = access
        self._users = users
        self._acls = acls
        self._warn = RateLimitedLog(_log, clock)
        # What the files hold.
        self._content = (b"", b"")
        # Held by whoever changes or reads the files.
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Take up what the files hold. Raise StoreError where it cannot be understood."""
        content = self._read()
        self._access.take(run_slices(self._decoded(content)))
        self._content = content

    def _read(self) -> tuple[bytes, bytes]:
        found = self._users.load(bytes), self._acls.load(bytes)
        for file in (self._users, self._acls):
            if file.problems:
                raise StoreError(f"users and rights cannot be read: {'; '.join(file.problems)}")
        return found[0] or b"", found[1] or b""

    def _decoded(self, content: tuple[bytes, bytes]) -> Slices[UserDirectory]:
        """Return what new contents say. What has not changed is not decoded again: that takes seconds for very many."""
        now = self._access.tables
        users, acls = now.users, now.acls
        at = self._users.path
        try:
            if content[0] != self._content[0]:
                users = (yield from users_in_slices(content[0])) if content[0] else {}
            at = self._acls.path
            if content[1] != self._content[1]:
                acls = (yield from acls_in_slices(content[1])) if content[1] else {}
        except (ValueError, KeyError, TypeError, AttributeError, AerobeeError) as error:
            raise StoreError(f"users and rights cannot be read: {at}: {error}") from error
        return UserDirectory(users, acls)

    def save(self, tables: UserDirectory) -> None:
        """Make these tables durable, and go on with them. This blocks: it is for the start."""
        content = run_slices(self._encoded(tables))
        before, self._content = self._content, _UNKNOWN
        for place, file in self._order():
            if content[place] != before[place]:
                file.save(content[place])
        self._content = content
        self._access.take(tables)

    def _order(self) -> tuple[tuple[int, KeptFile], ...]:
        """Return the files in the order in which they are written. A user without rights may do nothing, so this order
        is safe: rights of a deleted user never outlive the user."""
        return (1, self._acls), (0, self._users)

    def _encoded(self, tables: UserDirectory) -> Slices[tuple[bytes, bytes]]:
        content = (yield from self.texts.users_file(tables)), (yield from self.texts.acls_file(tables))
        if max(map(len, content)) > FILE_SIZE_MAX:
            # A file that is larger is not read again.
            raise invalid(f"Users and rights would take more than {FILE_SIZE_MAX} bytes: use prefixes.")
        return content

    async def change(self, changed: Callable[[UserDirectory], UserDirectory]) -> tuple[UserDirectory, UserDirectory]:
        """Make a change durable, and go on with it; return the tables of before and after.

        Raise what `changed` raises, or OSError or StoreError where it cannot be written.
        """
        async with self._lock:
            before = self._access.tables
            tables = changed(before)
            content = await in_turns(self._encoded(tables))
            if content != self._content:
                written, self._content = self._content, _UNKNOWN
                for place, file in self._order():
                    if content[place] != written[place]:
                        await _submitted(file, content[place])
                self._content = content
                self._access.take(tables)
            return before, tables

    async def look(self) -> bool:
        """Read the files again if they were changed by somebody else; return whether they were."""
        if self._lock.locked():
            return False
        async with self._lock:
            try:
                content = self._read()
                if content == self._content:
                    return False
                tables = await in_turns(self._decoded(content))
            except (AerobeeError, OSError) as error:
                reason = str(error)
                self._warn.error("files", "changed users or rights cannot be read: the old ones stay", reason=reason)
                return False
            self._content = content
            self._access.take(tables)
            _log.info("users and rights were read again", users=len(tables.users), acls=len(tables.acls))
            return True


async def _submitted(file: KeptFile, content: bytes) -> None:
    done: asyncio.Future[OSError | StoreError | None] = asyncio.get_running_loop().create_future()

    def saved(error: OSError | StoreError | None) -> None:
        if not done.done():
            done.set_result(error)

    file.submit(content, saved)
    error = await done
    if error is not None:
        raise error
