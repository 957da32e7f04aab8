"""Users of RocketMQ's access control (ACL 2.0), on every server of a cluster. The codes are 3001 to 3005.

What is returned never holds a password, so that nothing can print one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.admin.connection import AdminConnection
from aerobee.admin.everyserver import Changed, OneServer, ask_each, change_each, servers_of
from aerobee.admin.values import Value
from aerobee.errors import InvalidArgumentError
from aerobee.model.dialect import DialectError, dumps_plain, loads, loads_object
from aerobee.protocol.bodies.access import UserInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.auth import (
    CreateUserRequestHeader,
    DeleteUserRequestHeader,
    GetUserRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)

SUPER = "Super"
NORMAL = "Normal"
ENABLED = "enable"
DISABLED = "disable"


@dataclass(frozen=True, slots=True)
class UserView(Value):
    """A user as these servers know it."""

    name: str
    type: str
    status: str
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserListing(Value):
    """All users. Servers that know one differently each have a line of their own."""

    users: tuple[UserView, ...]
    # Users that are missing somewhere or differ, and servers that could not be asked.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserChanges:
    """What to set. None leaves a value as it is; a new user is then Normal and enabled."""

    password: str | None = field(default=None, repr=False)
    type: str | None = None
    status: str | None = None


async def create_user(
    admin: AdminConnection, name: str, change: UserChanges, *, cluster: str | None = None, server: str | None = None
) -> Changed:
    """Create a user on every server, or on the chosen ones."""
    if not change.password:
        raise InvalidArgumentError("a user needs a password: it is the secret key of the user's requests")
    body, header = _body(name, change), CreateUserRequestHeader(username=name)
    return await change_each(
        await servers_of(admin, cluster=cluster, server=server),
        lambda address: admin.ask(address, RequestCode.AUTH_CREATE_USER, header, body),
    )


async def update_user(
    admin: AdminConnection, name: str, change: UserChanges, *, cluster: str | None = None, server: str | None = None
) -> Changed:
    """Change a user on every server, or on the chosen ones."""
    if change == UserChanges():
        raise InvalidArgumentError("nothing is to be changed", hint="Name a password, a type or a status.")
    body, header = _body(name, change), UpdateUserRequestHeader(username=name)
    return await change_each(
        await servers_of(admin, cluster=cluster, server=server),
        lambda address: admin.ask(address, RequestCode.AUTH_UPDATE_USER, header, body),
    )


async def delete_user(
    admin: AdminConnection, name: str, *, cluster: str | None = None, server: str | None = None
) -> Changed:
    """Delete a user with all rights on every server, or on the chosen ones."""
    header = DeleteUserRequestHeader(username=name)
    return await change_each(
        await servers_of(admin, cluster=cluster, server=server),
        lambda address: admin.ask(address, RequestCode.AUTH_DELETE_USER, header),
    )


async def show_user(
    admin: AdminConnection, name: str, *, cluster: str | None = None, server: str | None = None
) -> UserListing:
    """Return one user. Raise InvalidArgumentError if no server knows it."""

    async def ask(address: str) -> list[UserInfo]:
        found = await user_at(admin, address, name)
        return [] if found is None else [found]

    found, problems = await ask_each(await servers_of(admin, cluster=cluster, server=server), ask)
    if not any(users for _, users in found):
        raise InvalidArgumentError(f"there is no user {name}", hint="`aerobee user list` lists them.")
    return _merged(found, problems)


async def list_users(
    admin: AdminConnection, part: str = "", *, cluster: str | None = None, server: str | None = None
) -> UserListing:
    """Return all users, or those whose name contains `part`."""
    servers = await servers_of(admin, cluster=cluster, server=server)
    found, problems = await ask_each(servers, lambda address: users_at(admin, address, part))
    return _merged(found, problems)


async def copy_users(
    admin: AdminConnection, source: str, targets: Sequence[str], names: Sequence[str] = ()
) -> tuple[tuple[str, Changed], ...]:
    """Copy users with their secrets from one server to others: all users, or those named. Addresses are host:port.

    A user that a target has is changed to be equal. RocketMQ: CopyUsersSubCommand.
    """
    users = {user.username or "": user for user in await users_at(admin, source)}
    _require_known(users, names, source)
    copied: list[tuple[str, Changed]] = []
    for name in names or sorted(users):
        user = users[name]
        if not user.password:
            raise InvalidArgumentError(
                f"{source} does not tell the secret of {name}", hint="Only Super users are told secrets."
            )
        body = dumps_plain(user.to_json())

        async def put(address: str, name: str = name, body: bytes = body) -> None:
            if await user_at(admin, address, name) is None:
                header = CreateUserRequestHeader(username=name)
                await admin.ask(address, RequestCode.AUTH_CREATE_USER, header, body)
            else:
                await admin.ask(address, RequestCode.AUTH_UPDATE_USER, UpdateUserRequestHeader(username=name), body)

        copied.append((name, await change_each([OneServer(one, one) for one in targets], put)))
    return tuple(copied)


def _require_known(users: dict[str, UserInfo], names: Sequence[str], source: str) -> None:
    missing = [name for name in names if name not in users]
    if missing:
        raise InvalidArgumentError(f"{source} has no user {' and no user '.join(missing)}")


async def users_at(admin: AdminConnection, address: str, part: str = "") -> list[UserInfo]:
    """Return the users of one server, with what it tells of their passwords."""
    answer = await admin.ask(address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter=part))
    return [UserInfo.from_json(one) for one in objects_in(answer.body)]


async def user_at(admin: AdminConnection, address: str, name: str) -> UserInfo | None:
    """Return a user of one server, None where it has no such user."""
    answer = await admin.ask(address, RequestCode.AUTH_GET_USER, GetUserRequestHeader(username=name))
    return UserInfo.from_json(loads_object(answer.body)) if answer.body else None


def objects_in(body: bytes) -> list[dict[str, object]]:
    """Return the objects of a JSON array. No body stands for none."""
    found = loads(body) if body else []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise DialectError("not a list of objects")
    return found


def _body(name: str, change: UserChanges) -> bytes:
    info = UserInfo(username=name, password=change.password, user_type=change.type, user_status=change.status)
    return dumps_plain(info.to_json())


def _merged(found: Sequence[tuple[OneServer, list[UserInfo]]], problems: Sequence[str]) -> UserListing:
    """Return one line for users that all servers know alike, and a problem for each that they do not."""
    by_name: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for server, users in found:
        for user in users:
            # The secret takes part in the comparison and is not kept.
            known = (user.user_type or "", user.user_status or "", user.password or "")
            by_name.setdefault(user.username or "", {}).setdefault(known, []).append(_called(server))
    views, said = [], list(problems)
    every = [_called(server) for server, _ in found]
    for name in sorted(by_name):
        forms = by_name[name]
        views += [UserView(name, kind, status, tuple(servers)) for (kind, status, _), servers in forms.items()]
        missing = [server for server in every if not any(server in servers for servers in forms.values())]
        if missing:
            said.append(f"user {name} is missing at {', '.join(missing)}")
        places = " and ".join(", ".join(servers) for servers in forms.values())
        if len({form[2] for form in forms}) > 1:
            said.append(f"user {name} has not the same secret at {places}")
        elif len(forms) > 1:
            said.append(f"user {name} differs between {places}")
    return UserListing(tuple(views), tuple(said))


def _called(server: OneServer) -> str:
    return f"{server.role} {server.address}" if server.role != server.address else server.address
