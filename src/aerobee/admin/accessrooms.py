"""The rooms of `aerobee.Admin` for users and their rights.

A change returns what each server answered: look at `is_complete`. `cluster` and `server` narrow an operation.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from aerobee.admin import acls
from aerobee.admin import users as people
from aerobee.admin.acls import ALLOW, CUSTOM, DEFAULT, DENY, Explanation, Right, RightListing
from aerobee.admin.connection import AdminConnection
from aerobee.admin.everyserver import Changed
from aerobee.admin.users import DISABLED, ENABLED, NORMAL, SUPER, UserChanges, UserListing


class UserRoom:
    """Users, on every name server and broker."""

    def __init__(self, connection: AdminConnection) -> None:
        self._admin = connection

    async def list(self, part: str = "", *, cluster: str | None = None, server: str | None = None) -> UserListing:
        """Return all users, or those whose name contains a text, and what differs between servers."""
        return await people.list_users(self._admin, part, cluster=cluster, server=server)

    async def show(self, name: str, *, cluster: str | None = None, server: str | None = None) -> UserListing:
        """Return one user. Raise InvalidArgumentError if no server knows it."""
        return await people.show_user(self._admin, name, cluster=cluster, server=server)

    async def create(
        self,
        name: str,
        password: str,
        *,
        is_super: bool = False,
        enabled: bool = True,
        cluster: str | None = None,
        server: str | None = None,
    ) -> Changed:
        """Create a user. The password is the secret key that the user's clients sign with."""
        change = UserChanges(password, SUPER if is_super else NORMAL, ENABLED if enabled else DISABLED)
        return await people.create_user(self._admin, name, change, cluster=cluster, server=server)

    async def update(
        self,
        name: str,
        *,
        password: str | None = None,
        is_super: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
        server: str | None = None,
    ) -> Changed:
        """Change a user. What is None stays."""
        kind = None if is_super is None else (SUPER if is_super else NORMAL)
        status = None if enabled is None else (ENABLED if enabled else DISABLED)
        change = UserChanges(password, kind, status)
        return await people.update_user(self._admin, name, change, cluster=cluster, server=server)

    async def delete(self, name: str, *, cluster: str | None = None, server: str | None = None) -> Changed:
        """Delete a user with all rights."""
        return await people.delete_user(self._admin, name, cluster=cluster, server=server)


class RightRoom:
    """Rights of users, on every name server and broker."""

    def __init__(self, connection: AdminConnection) -> None:
        self._admin = connection

    async def list(
        self, user: str = "", resource: str = "", *, cluster: str | None = None, server: str | None = None
    ) -> RightListing:
        """Return all rights, or those of users and on resources whose names contain these texts."""
        return await acls.list_rights(self._admin, user, resource, cluster=cluster, server=server)

    async def show(self, user: str, *, cluster: str | None = None, server: str | None = None) -> RightListing:
        """Return the rights of one user."""
        return await acls.show_rights(self._admin, user, cluster=cluster, server=server)

    async def grant(
        self,
        user: str,
        resource: str,
        actions: builtins.list[str],
        *,
        deny: bool = False,
        default: bool = False,
        sources: Sequence[str] = (),
        cluster: str | None = None,
        server: str | None = None,
    ) -> Changed:
        """Allow or deny a user actions on a resource such as `Topic:orders` or `Topic:ord*`."""
        right = Right(
            user, resource, tuple(actions), DENY if deny else ALLOW, DEFAULT if default else CUSTOM, tuple(sources)
        )
        return await acls.grant(self._admin, [right], cluster=cluster, server=server)

    async def revoke(
        self,
        user: str,
        resource: str | None = None,
        *,
        default: bool = False,
        cluster: str | None = None,
        server: str | None = None,
    ) -> Changed:
        """Remove a user's entry for a resource, or without a resource all rights of the user."""
        policy = DEFAULT if default else CUSTOM
        return await acls.revoke(self._admin, user, resource, policy=policy, cluster=cluster, server=server)

    async def check(
        self,
        user: str,
        resource: str,
        action: str,
        *,
        source: str = "",
        cluster: str | None = None,
        server: str | None = None,
    ) -> Explanation:
        """Return whether a user may do something, and the entry that decides, on every server."""
        return await acls.explain(self._admin, user, resource, action, source=source, cluster=cluster, server=server)
