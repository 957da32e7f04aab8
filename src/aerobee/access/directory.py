"""Users and their policies, and every change of them: a machine that reads no file and no clock.

A change returns new tables or raises AccessRefusedError with Apache's words. The holder swaps tables once they are on
disk; `epoch` then moves, and whatever was remembered of the old ones is void.
RocketMQ: AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from aerobee.access.policies import Acl, PolicyEntry, PolicyType, Resource
from aerobee.access.refusal import AccessRefusedError, invalid
from aerobee.access.users import User, UserStatus, UserType, user_problem

USERS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class UserDirectory:
    """All users by name, and all policies by the name of their user."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)

    def with_user(self, user: User) -> UserDirectory:
        """Return the tables after a user was made or changed."""
        return replace(self, users={**self.users, user.name: user})

    def with_acl(self, acl: Acl) -> UserDirectory:
        """Return the tables after policies were made or changed; empty ones are dropped."""
        acls = {name: one for name, one in self.acls.items() if name != acl.user}
        if acl.policies:
            acls[acl.user] = acl
        return replace(self, acls=acls)


@dataclass(frozen=True, slots=True)
class UserChange:
    """What a request says of a user. None leaves a value as it is."""

    name: str
    password: str | None = None
    type: UserType | None = None
    status: UserStatus | None = None


def created_user(tables: UserDirectory, change: UserChange) -> UserDirectory:
    """Return the tables with a new user. Policies that an older user of the name left are not taken over."""
    password = change.password or ""
    problem = user_problem(change.name, password)
    if problem is not None:
        raise AccessRefusedError(problem)
    if change.name in tables.users:
        raise AccessRefusedError("The user is existed")
    if len(tables.users) >= USERS_MAX:
        raise AccessRefusedError(f"there are {USERS_MAX} users already")
    user = User(
        change.name, password, change.type or UserType.NORMAL, change.status or UserStatus.ENABLE
    )  # fmt: skip
    return tables.with_acl(Acl(change.name)).with_user(user)


def updated_user(tables: UserDirectory, change: UserChange) -> UserDirectory:
    """Return the tables with a changed user."""
    old = tables.users.get(change.name)
    if old is None:
        raise AccessRefusedError("The user is not exist")
    user = User(
        old.name,
        change.password if change.password and change.password.strip() else old.password,
        change.type or old.type,
        change.status or old.status,
    )
    problem = user_problem(user.name, user.password)
    if problem is not None:
        raise AccessRefusedError(problem)
    changed = tables.with_user(user)
    _keep_a_super(tables, changed)
    return changed


def deleted_user(tables: UserDirectory, name: str) -> UserDirectory:
    """Return the tables without a user and without the policies of that user."""
    if not name.strip():
        raise AccessRefusedError("username can not be blank")
    changed = UserDirectory(
        {one: user for one, user in tables.users.items() if one != name},
        {one: acl for one, acl in tables.acls.items() if one != name},
    )
    _keep_a_super(tables, changed)
    return changed


def _keep_a_super(before: UserDirectory, after: UserDirectory) -> None:
    """Refuse a change after which nobody could undo it."""
    if any(map(_rules, before.users.values())) and not any(map(_rules, after.users.values())):
        raise AccessRefusedError(
            "This is the last enabled Super user: nobody could change users after that. Make another Super user first."
        )


def _rules(user: User) -> bool:
    return user.is_super and user.is_enabled


def put_entries(
    tables: UserDirectory, name: str, policies: Iterable[tuple[PolicyType, Iterable[PolicyEntry]]]
) -> UserDirectory:
    """Return the tables with entries added to the policies of a user."""
    if name not in tables.users:
        raise AccessRefusedError(f"The subject of User:{name} is not exist.")
    acl = tables.acls.get(name) or Acl(name)
    told = 0
    for kind, entries in policies:
        found = tuple(entries)
        if not found:
            raise invalid("The policy entries is empty.")
        acl = acl.with_entries(kind, found)
        told += 1
    if not told:
        raise invalid("The policies is empty.")
    return tables.with_acl(acl)


def deleted_entries(
    tables: UserDirectory, name: str, kind: PolicyType = PolicyType.CUSTOM, resource: Resource | None = None
) -> UserDirectory:
    """Return the tables without the entry for a resource, or without all policies of the user."""
    if name not in tables.users:
        raise AccessRefusedError("The subject is not exist.")
    acl = tables.acls.get(name)
    if acl is None:
        raise AccessRefusedError("The acl is not exist.")
    return tables.with_acl(Acl(name) if resource is None else acl.without(kind, resource))


def users_like(tables: UserDirectory, part: str | None) -> list[User]:
    """Return the users whose name contains a text, in the order of their names."""
    return [tables.users[name] for name in sorted(tables.users) if not part or part in name]


def acl_like(acl: Acl, subject: str | None, resource: str | None) -> Acl | None:
    """Return the entries of a user that match, by parts of subject and resource; None where there are none.

    RocketMQ: LocalAuthorizationMetadataProvider.listAcl.
    """
    if subject and subject not in acl.subject:
        return None
    if not resource:
        return acl
    kept = tuple(
        (kind, tuple(one for one in entries if resource in str(one.resource))) for kind, entries in acl.policies
    )
    found = Acl(acl.user, tuple((kind, entries) for kind, entries in kept if entries))
    return found if found.policies else None
