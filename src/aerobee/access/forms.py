"""Users and policies as bodies of requests, and as the files that hold them: the same objects in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from aerobee.access.directory import UserChange
from aerobee.access.policies import Acl, PolicyEntry, PolicyType, policy_type
from aerobee.access.refusal import AccessRefusedError, invalid
from aerobee.access.users import User, UserStatus, UserType, name_of, named, user_problem
from aerobee.model.dialect import Slices, loads, loads_object, run_slices
from aerobee.model.fields import objects_of
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

FILE_SIZE_MAX: Final = 64 << 20
# Of a long text only the bounds of its parts are found at once. Each part is read in its turn.
_PARTS: Final = msgspec.json.Decoder(dict[str, list[msgspec.Raw]])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_USERS: Final = 100
_ENTRIES: Final = 50


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


def entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    """Return an entry as answers show it."""
    actions = tuple(action.value for action in entry.actions)
    return PolicyEntryInfo(actions, entry.decision.value, str(entry.resource), entry.sources or None)


def acl_info(acl: Acl) -> AclInfo:
    """Return policies as answers show them."""
    return AclInfo(
        tuple(
            PolicyInfo(
                tuple(map(entry_info, entries)),
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
            tuple(map(_entry, policy.entries)),
        )
        for policy in info.policies
    ]


def _entry(entry: PolicyEntryInfo) -> PolicyEntry:
    return PolicyEntry.of(entry.resource, entry.actions or (), entry.source_ips or (), entry.decision)


# -- files, and answers that list everything


def read_users(data: bytes) -> dict[str, User]:
    """Return the users of a file. Raise ValueError or AccessRefusedError where any of it cannot be understood."""
    return run_slices(users_in_slices(data))


def users_in_slices(data: bytes) -> Slices[dict[str, User]]:
    """Read a file as `read_users` does, with pauses."""
    return (yield from _users(_of_file(data, "users")))


def users_of_list(data: bytes) -> Slices[dict[str, User]]:
    """Return the users of an answer to LIST_USER that shows passwords. Raise ValueError or AccessRefusedError."""
    return (yield from _users(_of_list(data, "users")))


def _users(objects: Iterable[dict[Any, Any]]) -> Slices[dict[str, User]]:
    found: dict[str, User] = {}
    for number, one in enumerate(objects, 1):
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
        if number % _USERS == 0:
            yield
    return found


def read_acls(data: bytes) -> dict[str, Acl]:
    """Return the policies of a file. Raise ValueError or AccessRefusedError where any of it cannot be understood."""
    return run_slices(acls_in_slices(data))


def acls_in_slices(data: bytes) -> Slices[dict[str, Acl]]:
    """Read a file as `read_acls` does, with pauses."""
    return (yield from _acls(_of_file(data, "acls")))


def acls_of_list(data: bytes) -> Slices[dict[str, Acl]]:
    """Return the policies of an answer to LIST_ACL. Raise ValueError or AccessRefusedError."""
    return (yield from _acls(_of_list(data, "acls")))


def _acls(objects: Iterable[dict[Any, Any]]) -> Slices[dict[str, Acl]]:
    found: dict[str, Acl] = {}
    for one in objects:
        acl = yield from _acl(one)
        if acl.user in found:
            raise invalid(f"the policies of {acl.user!r} are there twice")
        found[acl.user] = acl
    return found


def _acl(document: dict[Any, Any]) -> Slices[Acl]:
    acl = Acl(name_of(AclInfo.from_json({"subject": document.get("subject")}).subject or ""))
    for policy in objects_of(document, "policies"):
        entries = []
        for number, one in enumerate(objects_of(policy, "entries"), 1):
            entries.append(_entry(PolicyEntryInfo.from_json(one)))
            if number % _ENTRIES == 0:
                yield
        kind = PolicyInfo.from_json({"policyType": policy.get("policyType")}).policy_type
        acl = acl.with_entries(policy_type(kind), entries)
    yield
    return acl


def acl_of(info: AclInfo) -> Acl:
    """Return the policies of a whole body. Raise AccessRefusedError."""
    acl = Acl(name_of(info.subject or ""))
    for kind, entries in policies_of(info):
        acl = acl.with_entries(kind, entries)
    return acl


def _of_file(data: bytes, member: str) -> Iterator[dict[Any, Any]]:
    if len(data) > FILE_SIZE_MAX:
        raise invalid(f"it has more than {FILE_SIZE_MAX} bytes")
    try:
        parts = _PARTS.decode(data)[member]
    except (ValueError, KeyError, RecursionError):
        # It is Apache's JSON, or none at all.
        document = loads_object(data)
        if member not in document:
            raise invalid(f"it has no member {member!r}") from None
        return iter(objects_of(document, member))
    return map(_part, parts)


def _of_list(data: bytes, member: str) -> Iterator[dict[Any, Any]]:
    try:
        return map(_part, _LIST.decode(data) if data else [])
    except (ValueError, RecursionError):
        return iter(objects_of({member: loads(data)}, member))


def _part(part: msgspec.Raw) -> dict[Any, Any]:
    found = msgspec.json.decode(part)
    if not isinstance(found, dict):
        raise invalid("it lists something that is not an object")
    return found
