"""Brings the users and rights of the master to a broker that follows it: every 5 s, as the inner user.

They are not in the log: a log that is copied or archived must not hold secrets. RocketMQ does not copy them at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.access.directory import UserDirectory
from aerobee.access.files import AccessFiles, in_turns
from aerobee.access.forms import acls_of_list, users_of_list
from aerobee.errors import AerobeeError
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

INTERVAL_S: Final = 5.0
_log = get_log("broker.slave")


class UserSync:
    """Copies users and rights from the broker that `master` names; an empty text means that there is none."""

    def __init__(self, files: AccessFiles, client: RemotingClient, clock: Clock, master: Callable[[], str]) -> None:
        self._files = files
        self._client = client
        self._master = master
        self._warn = RateLimitedLog(_log, clock)
        # The answers of the last round, and what they say.
        self._last: tuple[bytes, bytes, UserDirectory] = (b"", b"", UserDirectory())
        # How many times everything was copied.
        self.rounds = 0

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(INTERVAL_S)

    async def once(self) -> bool:
        """Copy everything now. Return whether that was possible."""
        address = self._master()
        if not address:
            return False
        try:
            tables = await self._read(address)
            # A master whose users could all be gone is one that could not read its files: keep what is here.
            if not any(user.is_super and user.is_enabled for user in tables.users.values()):
                raise AerobeeError("the master has no Super user")
            await self._files.change(lambda _: tables)
        except (AerobeeError, OSError, ValueError) as error:
            self._warn.warning(
                address, "users and rights cannot be copied from the master now", master=address, reason=str(error)
            )
            return False
        self.rounds += 1
        return True

    async def _read(self, address: str) -> UserDirectory:
        """Return what the master has. Rights are read first: those of a user who is gone meanwhile are dropped."""
        told_acls = await self._ask(address, RequestCode.AUTH_LIST_ACL)
        told_users = await self._ask(address, RequestCode.AUTH_LIST_USER)
        if (told_acls, told_users) != self._last[:2]:
            acls, users = await in_turns(acls_of_list(told_acls)), await in_turns(users_of_list(told_users))
            found = UserDirectory(users, {name: acl for name, acl in acls.items() if name in users})
            self._last = told_acls, told_users, found
        return self._last[2]

    async def _ask(self, address: str, code: int) -> bytes:
        return (await self._client.ask(address, request(code, opaque=self._client.next_opaque()))).body
