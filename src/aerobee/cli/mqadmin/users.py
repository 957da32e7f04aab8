"""mqadmin's sub-commands about users and access control lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aerobee.cli.mqadmin.printed import nothing
from aerobee.cli.mqadmin.tool import Tool, commands_of, opts, row, sub_command
from aerobee.errors import InvalidArgumentError
from aerobee.errors.codes import SystemFailureError
from aerobee.model.dialect import dumps, loads
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.auth import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from aerobee.protocol.headers.base import Header

_USER: Final = "%-16s  %-22s  %-22s  %-22s"
_ACL: Final = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"
_HIDDEN: Final = "***"
_SHOW: Final = "+- show-secrets print passwords, which Apache's tool always does"


def _places(verb: str) -> tuple[str, str]:
    return (f"/c clusterName {verb} which cluster", f"/b brokerAddr {verb} which broker")


async def _each(tool: Tool, code: int, header: Header, body: bytes, done: str) -> None:
    """Ask one broker, or masters and slaves of a cluster one after the other."""
    given = tool.given
    for address in [given.text("b")] if given.has("b") else await tool.members_of(given.text("c")):
        await tool.admin.ask(address, code, header, body)
        tool.line(f"{done} to {address} success.")


async def _read_from(tool: Tool) -> list[str]:
    if tool.given.has("b"):
        return [tool.given.text("b")]
    masters = await tool.masters_of(tool.given.text("c"))
    if not masters:
        raise InvalidArgumentError("there is no broker in cluster.")
    return masters


async def _values(tool: Tool, address: str, code: int, header: Header) -> list[dict[str, Any]]:
    """Return the objects of an answer: a list, one, or none where there is no body."""
    body = (await tool.admin.ask(address, code, header)).body
    found = loads(body) if body else None
    if isinstance(found, Mapping):
        return [dict(found)]
    return [dict(one) for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _objects(**values: object) -> bytes:
    return dumps({name: value for name, value in values.items() if value is not None and value != ""})


# -- users


@sub_command(
    "createUser",
    "Create user to cluster.",
    *opts(
        *_places("create user to"),
        "!u username the username of user to create.",
        "!p password the password of user to create",
        "t userType the userType of user to create",
    ),
)
async def create_user(tool: Tool) -> None:
    given = tool.given
    name = given.text("u")
    body = _objects(username=name, password=given.text("p"), userType=given.text("t"))
    await _each(tool, RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username=name), body, "create user")


@sub_command(
    "updateUser",
    "Update user to cluster.",
    *opts(
        *_places("update user to"),
        "!u username the username of user to update",
        "|p password the password of user to update",
        "|t userType the userType of user to update",
        "|s userStatus the userStatus of user to update",
    ),
)
async def update_user(tool: Tool) -> None:
    given = tool.given
    name = given.text("u")
    body = _objects(username=name, password=given.text("p"), userType=given.text("t"), userStatus=given.text("s"))
    await _each(tool, RequestCode.AUTH_UPDATE_USER, UpdateUserRequestHeader(username=name), body, "update user")


@sub_command(
    "deleteUser",
    "Delete user from cluster.",
    *opts(*_places("delete user from"), "!u username the username of user to delete."),
)
async def delete_user(tool: Tool) -> None:
    header = DeleteUserRequestHeader(username=tool.given.text("u"))
    await _each(tool, RequestCode.AUTH_DELETE_USER, header, b"", "delete user")


def _print_users(tool: Tool, users: Sequence[Mapping[str, Any]]) -> None:
    if not users:
        return
    tool.line(row(_USER, "#UserName", "#Password", "#UserType", "#UserStatus"))
    for one in users:
        password = nothing(one.get("password"))
        if one.get("password") is not None and not tool.given.has("show-secrets"):
            password = _HIDDEN
        tool.line(
            row(
                _USER,
                nothing(one.get("username")),
                password,
                nothing(one.get("userType")),
                nothing(one.get("userStatus")),
            )
        )


@sub_command(
    "getUser",
    "Get user from cluster.",
    *opts(*_places("get user for"), "u username the username of user to get", _SHOW),
)
async def get_user(tool: Tool) -> None:
    header = GetUserRequestHeader(username=tool.given.text("u"))
    for address in await _read_from(tool):
        found = await _values(tool, address, RequestCode.AUTH_GET_USER, header)
        _print_users(tool, found)
        if found:
            break


@sub_command(
    "listUser",
    "List user from cluster.",
    *opts(*_places("list user for"), "f filter the filter to list users", _SHOW),
)
async def list_user(tool: Tool) -> None:
    header = ListUsersRequestHeader(filter=tool.given.text("f") or None)
    for address in await _read_from(tool):
        found = await _values(tool, address, RequestCode.AUTH_LIST_USER, header)
        _print_users(tool, found)
        if found:
            if tool.given.has("c"):
                tool.line(f"get user from {address} success.")
            break


async def _known(tool: Tool, address: str, code: int, header: Header) -> bool:
    try:
        return bool(await _values(tool, address, code, header))
    except SystemFailureError:
        return False


@sub_command(
    "copyUser",
    "Copy user to cluster.",
    *opts(
        "!f fromBroker the source broker that the users copy from",
        "!t toBroker the target broker that the users copy to",
        "u usernames the username list of user to copy.",
    ),
)
async def copy_user(tool: Tool) -> None:
    source, target = tool.given.text("f"), tool.given.text("t")
    names = [name.strip() for name in tool.given.text("u").split(",") if name.strip()]
    users: list[dict[str, Any]] = []
    for name in names:
        users += await _values(tool, source, RequestCode.AUTH_GET_USER, GetUserRequestHeader(username=name))
    if not names:
        users = await _values(tool, source, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader())
    for user in users:
        name = str(user.get("username"))
        if await _known(tool, target, RequestCode.AUTH_GET_USER, GetUserRequestHeader(username=name)):
            await tool.admin.ask(
                target, RequestCode.AUTH_UPDATE_USER, UpdateUserRequestHeader(username=name), dumps(user)
            )
        else:
            await tool.admin.ask(
                target, RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username=name), dumps(user)
            )
        tool.line(f"copy user of {name} from {source} to {target} success.")


# -- access control lists


def _acl(tool: Tool) -> bytes:
    """Return the body of CREATE_ACL and UPDATE_ACL. RocketMQ: AclInfo.of."""
    given = tool.given

    def words(key: str) -> list[str] | None:
        return [word.strip() for word in given.text(key).split(",") if word.strip()] if given.has(key) else None

    entries = [
        {
            name: value
            for name, value in (
                ("actions", words("a")),
                ("decision", given.text("d") or None),
                ("resource", resource),
                ("sourceIps", words("i")),
            )
            if value is not None
        }
        for resource in words("r") or ()
    ]
    return dumps({"policies": [{"entries": entries}], "subject": given.text("s")})


def _acl_options(verb: str, *, required: bool) -> tuple[str, ...]:
    must = "!" if required else ""
    return (
        *_places(f"{verb} acl to"),
        f"!s subject the subject of acl to {verb}.",
        f"{must}r resources the resources of acl to {verb}",
        f"{must}a actions the actions of acl to {verb}",
        f"i sourceIp the sourceIps of acl to {verb}",
        f"{must}d decision the decision of acl to {verb}",
    )


@sub_command("createAcl", "Create acl to cluster.", *opts(*_acl_options("create", required=True)))
async def create_acl(tool: Tool) -> None:
    header = CreateAclRequestHeader(subject=tool.given.text("s"))
    await _each(tool, RequestCode.AUTH_CREATE_ACL, header, _acl(tool), "create acl")


@sub_command("updateAcl", "Update acl to cluster.", *opts(*_acl_options("update", required=True)))
async def update_acl(tool: Tool) -> None:
    header = UpdateAclRequestHeader(subject=tool.given.text("s"))
    await _each(tool, RequestCode.AUTH_UPDATE_ACL, header, _acl(tool), "update acl")


@sub_command(
    "deleteAcl",
    "Delete acl from cluster.",
    *opts(
        *_places("delete acl from"),
        "!s subject the subject of acl to delete.",
        "r resources the resources of acl to delete",
    ),
)
async def delete_acl(tool: Tool) -> None:
    header = DeleteAclRequestHeader(subject=tool.given.text("s"), resource=tool.given.text("r") or None)
    await _each(tool, RequestCode.AUTH_DELETE_ACL, header, b"", "delete acl")


def _list(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else nothing(value)


def _print_acls(tool: Tool, acls: Sequence[Mapping[str, Any]]) -> None:
    if not acls:
        return
    tool.line(row(_ACL, "#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"))
    for one in acls:
        policies = one.get("policies") or ()
        if not policies:
            tool.line(row(_ACL, nothing(one.get("subject")), "", "", "", "", ""))
        for policy in policies:
            for entry in policy.get("entries") or ():
                tool.line(
                    row(_ACL, nothing(one.get("subject")), nothing(policy.get("policyType")),
                        nothing(entry.get("resource")), _list(entry.get("actions")), _list(entry.get("sourceIps")),
                        nothing(entry.get("decision")))
                )  # fmt: skip


@sub_command("getAcl", "Get acl from cluster.", *opts(*_places("get acl for"), "s subject the subject of acl to get"))
async def get_acl(tool: Tool) -> None:
    header = GetAclRequestHeader(subject=tool.given.text("s"))
    for address in await _read_from(tool):
        _print_acls(tool, await _values(tool, address, RequestCode.AUTH_GET_ACL, header))


@sub_command(
    "listAcl",
    "List acl from cluster.",
    *opts(
        *_places("list acl for"),
        "s subject the subject of acl to filter.",
        "r resource the resource of acl to filter.",
    ),
)
async def list_acl(tool: Tool) -> None:
    header = ListAclsRequestHeader(
        subject_filter=tool.given.text("s") or None, resource_filter=tool.given.text("r") or None
    )
    for address in await _read_from(tool):
        _print_acls(tool, await _values(tool, address, RequestCode.AUTH_LIST_ACL, header))


@sub_command(
    "copyAcl",
    "Copy acl to cluster.",
    *opts(
        "!f fromBroker the source broker that the acls copy from",
        "!t toBroker the target broker that the acls copy to",
        "s subjects the subject list of acl to copy.",
    ),
)
async def copy_acl(tool: Tool) -> None:
    source, target = tool.given.text("f"), tool.given.text("t")
    subjects = [name.strip() for name in tool.given.text("s").split(",") if name.strip()]
    acls: list[dict[str, Any]] = []
    for name in subjects:
        acls += await _values(tool, source, RequestCode.AUTH_GET_ACL, GetAclRequestHeader(subject=name))
    if not subjects:
        acls = await _values(tool, source, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader())
    for acl in acls:
        name = str(acl.get("subject"))
        if await _known(tool, target, RequestCode.AUTH_GET_ACL, GetAclRequestHeader(subject=name)):
            await tool.admin.ask(target, RequestCode.AUTH_UPDATE_ACL, UpdateAclRequestHeader(subject=name), dumps(acl))
        else:
            await tool.admin.ask(target, RequestCode.AUTH_CREATE_ACL, CreateAclRequestHeader(subject=name), dumps(acl))
        tool.line(f"copy acl of {name} from {source} to {target} success.")


COMMANDS: Final = commands_of(
    create_user,
    update_user,
    delete_user,
    get_user,
    list_user,
    copy_user,
    create_acl,
    update_acl,
    delete_acl,
    get_acl,
    list_acl,
    copy_acl,
)
