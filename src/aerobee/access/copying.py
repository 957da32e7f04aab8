"""Reads the users and rights of another server, as the inner user: for replicas, and for proxies."""

from __future__ import annotations

from aerobee.access.directory import UserDirectory
from aerobee.access.files import in_turns
from aerobee.access.forms import acls_of_list, users_of_list
from aerobee.errors import AerobeeError
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request


class UserReader:
    """Reads all users and rights of a broker. It decodes them only where they differ from the last answer."""

    def __init__(self, client: RemotingClient) -> None:
        """`client` signs as the inner user."""
        self._client = client
        # The answers of the last round, and what they say.
        self._last: tuple[bytes, bytes, UserDirectory] = (b"", b"", UserDirectory())

    async def read(self, address: str) -> UserDirectory:
        """Return what the broker has. Raise AerobeeError or ValueError where it cannot be had, or has no Super user."""
        # Rights are read first: those of a user who is gone meanwhile are dropped.
        told_acls = await self._ask(address, RequestCode.AUTH_LIST_ACL)
        told_users = await self._ask(address, RequestCode.AUTH_LIST_USER)
        if (told_acls, told_users) != self._last[:2]:
            acls, users = await in_turns(acls_of_list(told_acls)), await in_turns(users_of_list(told_users))
            found = UserDirectory(users, {name: acl for name, acl in acls.items() if name in users})
            self._last = told_acls, told_users, found
        tables = self._last[2]
        # A broker whose users could all be gone is one that could not read its files: keep what is here.
        if not any(user.is_super and user.is_enabled for user in tables.users.values()):
            raise AerobeeError(f"the broker at {address} has no Super user")
        return tables

    async def _ask(self, address: str, code: int) -> bytes:
        return (await self._client.ask(address, request(code, opaque=self._client.next_opaque()))).body
