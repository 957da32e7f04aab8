"""The requests about users and policies, 3001 to 3010, as Apache's mqadmin and dashboard send them.

The guard has let them through already: changes to Super users, reads to those who may, and to users about themselves.
Passwords are shown to Super users only. RocketMQ: AdminBrokerProcessor.createUser and those below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from aerobee.access.audit import Audit
from aerobee.access.directory import (
    UserDirectory,
    acl_like,
    created_user,
    deleted_entries,
    deleted_user,
    put_entries,
    updated_user,
    users_like,
)
from aerobee.access.door import Access
from aerobee.access.files import AccessFiles
from aerobee.access.forms import policies_of, user_change
from aerobee.access.policies import Acl, Resource, policy_type
from aerobee.access.refusal import AccessRefusedError, invalid
from aerobee.access.rows import GET, AccessRow, of_cluster
from aerobee.access.texts import acl_text, listed, user_text
from aerobee.access.users import User, name_of
from aerobee.errors import AerobeeError
from aerobee.model.dialect import DialectError, Slices
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, Handler
from aerobee.net.turns import Sliced
from aerobee.net.turns import Slices as AnswerSlices
from aerobee.protocol.bodies.access import AclInfo, UserInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response

# RocketMQ: RemotingCommand.createResponseCommand, whose remark stays when the code is set to success.
DONE: Final = "not set any response code"
# How many users are written in a slice, and how many rights the audit log names.
_USERS: Final = 100
_RULES_MAX: Final = 100
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


# A change of the tables, which raises where it is refused, and the user whom it is about.
_Change: TypeAlias = "tuple[str, Callable[[UserDirectory], UserDirectory]]"


class AccessRequests:
    """Serves the ten requests of one server. `close` gives up what is not saved yet."""

    def __init__(self, access: Access, files: AccessFiles, audit: Audit) -> None:
        self._access = access
        self._files = files
        self._audit = audit
        self._kept: dict[str, bytes] = {}
        self._kept_epoch = -1
        self._saving: dict[asyncio.Task[None], None] = {}

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by code."""
        changes: dict[int, Callable[[Command], _Change]] = {
            _R.AUTH_CREATE_USER: self._create_user,
            _R.AUTH_UPDATE_USER: self._update_user,
            _R.AUTH_DELETE_USER: self._delete_user,
            _R.AUTH_CREATE_ACL: self._put_acl,
            _R.AUTH_UPDATE_ACL: self._put_acl,
            _R.AUTH_DELETE_ACL: self._delete_acl,
        }
        reads: dict[int, Callable[[User, Command], Slices[bytes]]] = {
            _R.AUTH_GET_USER: self._get_user,
            _R.AUTH_LIST_USER: self._list_users,
            _R.AUTH_GET_ACL: self._get_acl,
            _R.AUTH_LIST_ACL: self._list_acls,
        }
        return {
            **{code: self._changing(work) for code, work in changes.items()},
            **{code: self._reading(work) for code, work in reads.items()},
        }

    def close(self) -> None:
        """Stop the changes under way. Each has happened or not when the files are read next."""
        for task in list(self._saving):
            task.cancel()

    def _reading(self, work: Callable[[User, Command], Slices[bytes]]) -> Handler:
        def handler(channel: Channel, command: Command) -> Answer:
            user = self._access.user_of(command.ext)

            def slices() -> AnswerSlices:
                try:
                    body = yield from work(user, command)
                except AerobeeError as error:
                    return _failed(command, error)
                return response(command, body=body, remark=DONE)

            return Sliced(slices())

        return handler

    def _changing(self, work: Callable[[Command], _Change]) -> Handler:
        def handler(channel: Channel, command: Command) -> Answer:
            try:
                name, changed = work(command)
            except AerobeeError as error:
                return _failed(command, error)
            # Later requests of the connection find what this one has changed.
            channel.begin_work()
            user, source = self._access.user_of(command.ext), channel.source

            async def save() -> None:
                try:
                    answer = await self._change(user, source, command, name, changed)
                finally:
                    channel.end_work()
                if not command.is_oneway and not channel.closed:
                    channel.send(answer)

            task = asyncio.get_running_loop().create_task(save())
            self._saving[task] = None
            task.add_done_callback(lambda done: self._saving.pop(done, None))
            return None

        return handler

    async def _change(
        self, user: User, source: str, command: Command, name: str, changed: Callable[[UserDirectory], UserDirectory]
    ) -> Command:
        try:
            before, tables = await self._files.change(changed)
        except AerobeeError as error:
            return _failed(command, error)
        except OSError as error:
            remark = f"users and rights cannot be written: {error.strerror or error}"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        was, now = before.users.get(name), tables.users.get(name)
        told = described(before, tables, name), described(tables, before, name)
        if told[1] is not None and was is not None and now is not None and was.password != now.password:
            told[1]["passwordChanged"] = True
        self._audit.done(user, source, command.code, before=told[0], after=told[1], resource=f"User:{name}")
        return response(command, remark=DONE)

    # -- users

    def _create_user(self, command: Command) -> _Change:
        change = user_change(_username(command), _user_body(command))
        return change.name, lambda tables: created_user(tables, change)

    def _update_user(self, command: Command) -> _Change:
        change = user_change(_username(command), _user_body(command))
        return change.name, lambda tables: updated_user(tables, change)

    def _delete_user(self, command: Command) -> _Change:
        name = command.ext.get("username", "")
        return name, lambda tables: deleted_user(tables, name)

    def _get_user(self, user: User, command: Command) -> Slices[bytes]:
        found = self._access.tables.users.get(_username(command))
        return b"" if found is None else (yield from user_text(found, with_password=user.is_super))

    def _list_users(self, user: User, command: Command) -> Slices[bytes]:
        tables, part = self._access.tables, command.ext.get("filter")
        if user.is_super and not part:
            return (yield from self._listed("users", self._files.texts.users_list(tables)))
        texts = []
        for number, one in enumerate(users_like(tables, part), 1):
            texts.append((yield from user_text(one, with_password=user.is_super)))
            if number % _USERS == 0:
                yield
        return listed(texts)

    def _listed(self, kind: str, made: Slices[bytes]) -> Slices[bytes]:
        """Return a list, which is kept until users or rights change: replicas ask for it every 5 s."""
        epoch = self._access.epoch
        if self._kept_epoch != epoch:
            self._kept_epoch = epoch
            self._kept.clear()
        if kind not in self._kept:
            found = yield from made
            if epoch != self._access.epoch:
                return found
            self._kept[kind] = found
        return self._kept[kind]

    # -- policies

    def _put_acl(self, command: Command) -> _Change:
        if not command.body:
            raise AccessRefusedError("The body of acl is null")
        info = AclInfo.decode(command.body)
        if not info.policies:
            raise AccessRefusedError("The body of acl is null")
        name = name_of(info.subject or command.ext.get("subject", ""))
        policies = policies_of(info)
        return name, lambda tables: put_entries(tables, name, policies)

    def _delete_acl(self, command: Command) -> _Change:
        name = _subject(command)
        resource = command.ext.get("resource")
        kind = policy_type(command.ext.get("policyType"))
        found = Resource.parse(resource.strip()) if resource and resource.strip() else None
        return name, lambda tables: deleted_entries(tables, name, kind, found)

    def _get_acl(self, user: User, command: Command) -> Slices[bytes]:
        name = _subject(command)
        if name not in self._access.tables.users:
            raise AccessRefusedError("The subject is not exist.")
        found = self._access.tables.acls.get(name)
        return b"" if found is None else (yield from acl_text(found))

    def _list_acls(self, user: User, command: Command) -> Slices[bytes]:
        tables, subject, resource = self._access.tables, *map(command.ext.get, ("subjectFilter", "resourceFilter"))
        if not subject and not resource:
            return (yield from self._listed("acls", self._files.texts.acls_list(tables)))
        texts = []
        for name in sorted(tables.acls):
            found = acl_like(tables.acls[name], subject, resource)
            if found is not None:
                texts.append((yield from acl_text(found)))
            yield
        return listed(texts)


def _failed(command: Command, error: AerobeeError) -> Command:
    code = ResponseCode.INVALID_PARAMETER if isinstance(error, DialectError) else error.code
    return response(command, code or ResponseCode.SYSTEM_ERROR, remark=error.message)


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


def described(tables: UserDirectory, other: UserDirectory, name: str) -> dict[str, object] | None:
    """Return a user and the rights of that user without the password, or None if there is no such user.

    Of very many rights only those are named that `other` has not.
    """
    user = tables.users.get(name)
    if user is None:
        return None
    acl = tables.acls.get(name) or Acl(name)
    rules = [(kind, entry) for kind, entries in acl.policies for entry in entries]
    told: dict[str, object] = {"type": user.type.value, "status": user.status.value}
    if len(rules) > _RULES_MAX:
        # A change keeps the entries that it does not touch.
        known = {id(entry) for _, entries in (other.acls.get(name) or acl).policies for entry in entries}
        same = len(rules)
        rules = [(kind, entry) for kind, entry in rules if id(entry) not in known]
        told["sameRules"] = same - len(rules)
    told["rules"] = [f"{kind.value}: {entry}" for kind, entry in rules]
    return told
