"""The requests about users and policies, 3001 to 3010, as Apache's mqadmin and dashboard send them.

The guard has let them through already: changes to Super users, reads to those who may, and to users about themselves.
Passwords are shown to Super users only. RocketMQ: AdminBrokerProcessor.createUser and those below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from aerobee.access.audit import Audit
from aerobee.access.directory import (
    UserDirectory,
    acls_like,
    created_user,
    deleted_entries,
    deleted_user,
    put_entries,
    updated_user,
    users_like,
)
from aerobee.access.door import Access
from aerobee.access.files import AccessFiles
from aerobee.access.forms import acl_info, encode_list, policies_of, user_change, user_info
from aerobee.access.policies import Resource, policy_type
from aerobee.access.refusal import AccessRefusedError, invalid
from aerobee.access.rows import GET, AccessRow, of_cluster
from aerobee.access.sources import host_of
from aerobee.access.users import User, name_of
from aerobee.errors import AerobeeError
from aerobee.model.dialect import DialectError
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.bodies.access import AclInfo, UserInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response

# RocketMQ: RemotingCommand.createResponseCommand, whose remark stays when the code is set to success.
DONE: Final = "not set any response code"
_R: Final = RequestCode
_CHANGE: Final = AccessRow(super_only=True)

ACCESS_ROWS: Final[dict[int, AccessRow]] = {
    **dict.fromkeys(
        (
            _R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER, _R.AUTH_DELETE_USER,
            _R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL, _R.AUTH_DELETE_ACL,
        ),
        _CHANGE,
    ),
    _R.AUTH_GET_USER: AccessRow(of_cluster(GET), own="username"),
    _R.AUTH_LIST_USER: AccessRow(of_cluster(GET)),
    _R.AUTH_GET_ACL: AccessRow(of_cluster(GET), own="subject"),
    _R.AUTH_LIST_ACL: AccessRow(of_cluster(GET)),
}  # fmt: skip


class AccessRequests:
    """Serves the ten requests of one server."""

    def __init__(self, access: Access, files: AccessFiles, audit: Audit) -> None:
        self._access = access
        self._files = files
        self._audit = audit
        self._kept: dict[str, bytes] = {}
        self._kept_epoch = -1

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by code."""
        found: dict[int, Callable[[User, Command], tuple[str, UserDirectory] | bytes]] = {
            _R.AUTH_CREATE_USER: self._create_user,
            _R.AUTH_UPDATE_USER: self._update_user,
            _R.AUTH_DELETE_USER: self._delete_user,
            _R.AUTH_GET_USER: self._get_user,
            _R.AUTH_LIST_USER: self._list_users,
            _R.AUTH_CREATE_ACL: self._put_acl,
            _R.AUTH_UPDATE_ACL: self._put_acl,
            _R.AUTH_DELETE_ACL: self._delete_acl,
            _R.AUTH_GET_ACL: self._get_acl,
            _R.AUTH_LIST_ACL: self._list_acls,
        }
        return {code: self._serving(work) for code, work in found.items()}

    def _serving(self, work: Callable[[User, Command], tuple[str, UserDirectory] | bytes]) -> Handler:
        def handler(channel: Channel, command: Command) -> Command:
            user = self._access.user_of(command.ext)
            try:
                outcome = work(user, command)
                if isinstance(outcome, tuple):
                    self._change(user, host_of(channel.remote_address), command, *outcome)
                    outcome = b""
            except DialectError as error:
                return response(command, ResponseCode.INVALID_PARAMETER, remark=error.message)
            except AerobeeError as error:
                return response(command, error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
            except OSError as error:
                remark = f"users and rights cannot be written: {error.strerror or error}"
                return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
            return response(command, body=outcome, remark=DONE)

        return handler

    def _change(self, user: User, source: str, command: Command, name: str, tables: UserDirectory) -> None:
        before = described(self._access.tables, name)
        secret = self._access.tables.users.get(name)
        self._files.save(tables)
        now = tables.users.get(name)
        after = described(tables, name)
        if after is not None and secret is not None and now is not None and secret.password != now.password:
            after["passwordChanged"] = True
        self._audit.done(user, source, command.code, before=before, after=after, resource=f"User:{name}")

    # -- users

    def _create_user(self, user: User, command: Command) -> tuple[str, UserDirectory]:
        name = _username(command)
        change = user_change(name, _user_body(command))
        return name, created_user(self._access.tables, change)

    def _update_user(self, user: User, command: Command) -> tuple[str, UserDirectory]:
        name = _username(command)
        return name, updated_user(self._access.tables, user_change(name, _user_body(command)))

    def _delete_user(self, user: User, command: Command) -> tuple[str, UserDirectory]:
        name = command.ext.get("username", "")
        return name, deleted_user(self._access.tables, name)

    def _get_user(self, user: User, command: Command) -> bytes:
        found = self._access.tables.users.get(_username(command))
        return b"" if found is None else user_info(found, with_password=user.is_super).encode()

    def _list_users(self, user: User, command: Command) -> bytes:
        found = users_like(self._access.tables, command.ext.get("filter"))
        kind = "all users" if user.is_super and not command.ext.get("filter") else ""
        return self._listed(kind, (user_info(one, with_password=user.is_super) for one in found))

    def _listed(self, kind: str, infos: Iterable[UserInfo | AclInfo]) -> bytes:
        """Return a list. One with a kind is kept until users or rights change: replicas ask for it every 5 s."""
        if self._kept_epoch != self._access.epoch:
            self._kept_epoch = self._access.epoch
            self._kept.clear()
        if kind not in self._kept:
            found = encode_list(infos)
            if not kind:
                return found
            self._kept[kind] = found
        return self._kept[kind]

    # -- policies

    def _put_acl(self, user: User, command: Command) -> tuple[str, UserDirectory]:
        if not command.body:
            raise AccessRefusedError("The body of acl is null")
        info = AclInfo.decode(command.body)
        if not info.policies:
            raise AccessRefusedError("The body of acl is null")
        name = name_of(info.subject or command.ext.get("subject", ""))
        return name, put_entries(self._access.tables, name, policies_of(info))

    def _delete_acl(self, user: User, command: Command) -> tuple[str, UserDirectory]:
        name = _subject(command)
        resource = command.ext.get("resource")
        kind = policy_type(command.ext.get("policyType"))
        found = Resource.parse(resource.strip()) if resource and resource.strip() else None
        return name, deleted_entries(self._access.tables, name, kind, found)

    def _get_acl(self, user: User, command: Command) -> bytes:
        name = _subject(command)
        if name not in self._access.tables.users:
            raise AccessRefusedError("The subject is not exist.")
        found = self._access.tables.acls.get(name)
        return b"" if found is None else acl_info(found).encode()

    def _list_acls(self, user: User, command: Command) -> bytes:
        ext = command.ext
        found = acls_like(self._access.tables, ext.get("subjectFilter"), ext.get("resourceFilter"))
        kind = "" if ext.get("subjectFilter") or ext.get("resourceFilter") else "all rights"
        return self._listed(kind, map(acl_info, found))


def _username(command: Command) -> str:
    name = command.ext.get("username", "")
    if not name.strip():
        raise invalid("The username is blank")
    return name


def _subject(command: Command) -> str:
    subject = command.ext.get("subject", "")
    if not subject.strip():
        raise AccessRefusedError("The subject is null.")
    return name_of(subject)


def _user_body(command: Command) -> UserInfo:
    return UserInfo.decode(command.body) if command.body else UserInfo()


def described(tables: UserDirectory, name: str) -> dict[str, object] | None:
    """Return a user and the rights of that user without the password, or None if there is no such user."""
    user = tables.users.get(name)
    if user is None:
        return None
    acl = tables.acls.get(name)
    rules: Iterable[str] = () if acl is None else (f"{kind.value}: {one}" for kind, es in acl.policies for one in es)
    return {"type": user.type.value, "status": user.status.value, "rules": list(rules)}
