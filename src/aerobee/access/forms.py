"""Users and policies as bodies of requests, and as the files that hold them: the same objects in both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aerobee.access.directory import UserChange, UserDirectory
from aerobee.access.policies import Acl, PolicyEntry, PolicyType, policy_type
from aerobee.access.refusal import AccessRefusedError, invalid
from aerobee.access.users import User, UserStatus, UserType, name_of, named, user_problem
from aerobee.model.dialect import dumps, loads, loads_object
from aerobee.model.fields import objects_of
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

FILE_SIZE_MAX: Final = 64 << 20


def user_info(user: User, *, with_password: bool) -> UserInfo:
    """Return a user as answers show it."""
    return UserInfo(user.password if with_password else None, user.status.value, user.type.value, user.name)


def user_change(name: str, info: UserInfo) -> UserChange:
    """Return what a request says of a user. Raise AccessRefusedError."""
    return UserChange(
        name,
        info.password,
        named(UserType, info.user_type, UserType.NORMAL) if info.user_type else None,
        named(UserStatus, info.user_status, UserStatus.ENABLE) if info.user_status else None,
    )


def acl_info(acl: Acl) -> AclInfo:
    """Return policies as answers show them."""
    return AclInfo(
        tuple(
            PolicyInfo(
                tuple(
                    PolicyEntryInfo(
                        tuple(action.value for action in entry.actions),
                        entry.decision.value,
                        str(entry.resource),
                        entry.sources or None,
                    )
                    for entry in entries
                ),
                kind.value,
            )
            for kind, entries in acl.policies
        ),
        acl.subject,
    )


def policies_of(info: AclInfo) -> list[tuple[PolicyType, tuple[PolicyEntry, ...]]]:
    """Return the policies of a body. Raise AccessRefusedError."""
    return [
        (
            policy_type(policy.policy_type),
            tuple(
                PolicyEntry.of(entry.resource, entry.actions or (), entry.source_ips or (), entry.decision)
                for entry in policy.entries
            ),
        )
        for policy in info.policies
    ]


# -- files


def users_file(tables: UserDirectory) -> bytes:
    """Return the contents of users.json."""
    users = [user_info(tables.users[name], with_password=True).to_json() for name in sorted(tables.users)]
    return dumps({"users": users}, pretty=True)


def acls_file(tables: UserDirectory) -> bytes:
    """Return the contents of acls.json."""
    return dumps({"acls": [acl_info(tables.acls[name]).to_json() for name in sorted(tables.acls)]}, pretty=True)


def read_users(data: bytes) -> dict[str, User]:
    """Return the users of a file. Raise ValueError or AccessRefusedError where any of it cannot be understood."""
    return _users(objects_of(_document(data, "users"), "users"))


def users_of_list(data: bytes) -> dict[str, User]:
    """Return the users of an answer to LIST_USER that shows passwords. Raise ValueError or AccessRefusedError."""
    return _users(objects_of({"users": loads(data) if data else []}, "users"))


def _users(objects: list[dict[Any, Any]]) -> dict[str, User]:
    found: dict[str, User] = {}
    for one in objects:
        info = UserInfo.from_json(one)
        name, password = info.username or "", info.password or ""
        problem = user_problem(name, password)
        if problem is not None:
            raise AccessRefusedError(problem)
        if name in found:
            raise invalid(f"the user {name!r} is there twice")
        found[name] = User(
            name,
            password,
            named(UserType, info.user_type, UserType.NORMAL),
            named(UserStatus, info.user_status, UserStatus.ENABLE),
        )
    return found


def read_acls(data: bytes) -> dict[str, Acl]:
    """Return the policies of a file. Raise ValueError or AccessRefusedError where any of it cannot be understood."""
    return _acls(objects_of(_document(data, "acls"), "acls"))


def acls_of_list(data: bytes) -> dict[str, Acl]:
    """Return the policies of an answer to LIST_ACL. Raise ValueError or AccessRefusedError."""
    return _acls(objects_of({"acls": loads(data) if data else []}, "acls"))


def _acls(objects: list[dict[Any, Any]]) -> dict[str, Acl]:
    found: dict[str, Acl] = {}
    for one in objects:
        info = AclInfo.from_json(one)
        acl = acl_of(info)
        if acl.user in found:
            raise invalid(f"the policies of {acl.user!r} are there twice")
        found[acl.user] = acl
    return found


def acl_of(info: AclInfo) -> Acl:
    """Return the policies of a whole body. Raise AccessRefusedError."""
    acl = Acl(name_of(info.subject or ""))
    for kind, entries in policies_of(info):
        acl = acl.with_entries(kind, entries)
    return acl


def _document(data: bytes, member: str) -> dict[str, Any]:
    if len(data) > FILE_SIZE_MAX:
        raise invalid(f"it has more than {FILE_SIZE_MAX} bytes")
    document = loads_object(data)
    if member not in document:
        raise invalid(f"it has no member {member!r}")
    return document


def encode_list(infos: Iterable[UserInfo | AclInfo]) -> bytes:
    """Return an array of bodies, or no bytes for an empty one, as Apache answers."""
    found = [one.to_json() for one in infos]
    return dumps(found) if found else b""
