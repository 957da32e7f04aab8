"""Rights of users (ACL 2.0) on every server of a cluster, and why a request would be allowed.

The codes are 3006 to 3010.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aerobee.access.forms import acl_info, acl_of
from aerobee.access.plainacl import PlainAcls
from aerobee.access.policies import Acl, Action, Pattern, PolicyEntry, Resource, ResourceKind
from aerobee.access.refusal import invalid
from aerobee.access.sources import address_of
from aerobee.access.users import User, UserStatus, UserType, named
from aerobee.access.verdicts import Claim, decide
from aerobee.admin.connection import AdminConnection
from aerobee.admin.everyserver import Changed, OneServer, ask_each, change_each, servers_of
from aerobee.admin.users import objects_in, user_at
from aerobee.admin.values import Value
from aerobee.errors import BrokerError, InvalidArgumentError
from aerobee.model.dialect import dumps_plain, loads_object
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.auth import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    GetAclRequestHeader,
    ListAclsRequestHeader,
)

CUSTOM = "Custom"
DEFAULT = "Default"
ALLOW = "Allow"
DENY = "Deny"


@dataclass(frozen=True, slots=True)
class Right(Value):
    """One entry: what a user may do, or may not, on a resource. Without sources it holds from everywhere."""

    user: str
    resource: str
    actions: tuple[str, ...]
    decision: str = ALLOW
    policy: str = CUSTOM
    sources: tuple[str, ...] = ()
    # Who knows it; nothing in what is to be granted.
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RightListing(Value):
    """Rights, and what is not alike on all servers."""

    rights: tuple[Right, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained(Value):
    """Whether a request would be allowed, by which entry, and on which servers."""

    user: str
    resource: str
    action: str
    allowed: bool
    rule: str
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation(Value):
    """The verdicts on a request. There are several only where servers have different users or rights."""

    verdicts: tuple[Explained, ...]
    problems: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Tell whether every server allows it."""
        return all(one.allowed for one in self.verdicts)


async def grant(
    admin: AdminConnection, rights: Sequence[Right], *, cluster: str | None = None, server: str | None = None
) -> Changed:
    """Add entries to a user's rights on every server. An entry takes the place of one for the same resource.

    They are checked here first: Apache's servers drop words that they do not know in silence.
    """
    body, subject = _checked_body(rights)
    header = CreateAclRequestHeader(subject=subject)
    return await change_each(
        await servers_of(admin, cluster=cluster, server=server),
        lambda address: admin.ask(address, RequestCode.AUTH_CREATE_ACL, header, body),
    )


def _checked_body(rights: Sequence[Right]) -> tuple[bytes, str]:
    users = {one.user for one in rights}
    if len(users) != 1:
        raise InvalidArgumentError("the rights of one user are granted at a time")
    subject = f"User:{users.pop()}"
    info = AclInfo(subject=subject, policies=tuple(_policies(rights)))
    acl_of(info)
    return dumps_plain(info.to_json()), subject


def _policies(rights: Iterable[Right]) -> Iterable[PolicyInfo]:
    by_policy: dict[str, list[PolicyEntryInfo]] = {}
    for one in rights:
        # RocketMQ: an absent list of sources is null; an empty one would match nothing in old releases.
        entry = PolicyEntryInfo(
            resource=one.resource, actions=one.actions, source_ips=one.sources or None, decision=one.decision
        )
        by_policy.setdefault(one.policy, []).append(entry)
    for policy, entries in by_policy.items():
        yield PolicyInfo(policy_type=policy, entries=tuple(entries))


async def revoke(
    admin: AdminConnection,
    user: str,
    resource: str | None = None,
    *,
    policy: str = CUSTOM,
    cluster: str | None = None,
    server: str | None = None,
) -> Changed:
    """Remove a user's entry for a resource on every server, or without a resource all rights of the user."""
    if resource is not None:
        resource = str(Resource.parse(resource.strip()))
    header = DeleteAclRequestHeader(subject=f"User:{user}", policy_type=policy, resource=resource)
    return await change_each(
        await servers_of(admin, cluster=cluster, server=server),
        lambda address: admin.ask(address, RequestCode.AUTH_DELETE_ACL, header),
    )


async def list_rights(
    admin: AdminConnection,
    user: str = "",
    resource: str = "",
    *,
    cluster: str | None = None,
    server: str | None = None,
) -> RightListing:
    """Return all rights, or those of users and on resources whose names contain these texts."""
    servers = await servers_of(admin, cluster=cluster, server=server)
    found, problems = await ask_each(servers, lambda address: _listed(admin, address, user, resource))
    return _merged(found, problems)


async def show_rights(
    admin: AdminConnection, user: str, *, cluster: str | None = None, server: str | None = None
) -> RightListing:
    """Return the rights of one user."""

    async def ask(address: str) -> list[AclInfo]:
        found = await _acl_at(admin, address, user)
        return [] if found is None else [found]

    found, problems = await ask_each(await servers_of(admin, cluster=cluster, server=server), ask)
    return _merged(found, problems)


async def copy_rights(
    admin: AdminConnection, source: str, targets: Sequence[str], users: Sequence[str] = ()
) -> tuple[tuple[str, Changed], ...]:
    """Copy rights from one server to others: of all users, or of those named. Addresses are host:port.

    Entries of a target for other resources stay. RocketMQ: CopyAclsSubCommand.
    """
    acls = {one.subject or "": one for one in await _listed(admin, source, "", "")}
    subjects = [f"User:{user}" for user in users] or sorted(acls)
    missing = [subject for subject in subjects if subject not in acls]
    if missing:
        raise InvalidArgumentError(f"{source} has no rights of {' and of '.join(missing)}")
    copied = []
    for subject in subjects:
        body, header = dumps_plain(acls[subject].to_json()), CreateAclRequestHeader(subject=subject)

        async def put(address: str, header: CreateAclRequestHeader = header, body: bytes = body) -> None:
            await admin.ask(address, RequestCode.AUTH_CREATE_ACL, header, body)

        copied.append((subject, await change_each([OneServer(one, one) for one in targets], put)))
    return tuple(copied)


async def explain(
    admin: AdminConnection,
    user: str,
    resource: str,
    action: str,
    *,
    source: str = "",
    cluster: str | None = None,
    server: str | None = None,
) -> Explanation:
    """Return whether a user may do something, and the entry that decides, on every server.

    `source` is the address that the request would come from. The decision is made here, by what the servers tell of
    users and rights and by the rules of our servers.
    """
    claim = _claim(resource, action)
    address = address_of(source) if source else None
    if source and address is None:
        raise InvalidArgumentError(f"{source[:60]!r} is not an address")

    async def ask(place: str) -> tuple[bool, str]:
        info = await user_at(admin, place, user)
        if info is None:
            return False, "there is no such user"
        acl = await _acl_at(admin, place, user)
        known = User(
            user, "",
            named(UserType, info.user_type, UserType.NORMAL), named(UserStatus, info.user_status, UserStatus.ENABLE),
        )  # fmt: skip
        if not known.is_enabled:
            return False, "the user is disabled"
        verdict = decide(known, acl_of(acl) if acl is not None else Acl(user), ((claim,),), address)
        return verdict.allowed, verdict.rule

    found, problems = await ask_each(await servers_of(admin, cluster=cluster, server=server), ask)
    by_verdict: dict[tuple[bool, str], list[str]] = {}
    for one, verdict in found:
        by_verdict.setdefault(verdict, []).append(_called(one))
    verdicts = tuple(
        Explained(user, f"{claim.kind.value}:{claim.name}", claim.actions[0].value, allowed, rule, tuple(servers))
        for (allowed, rule), servers in by_verdict.items()
    )
    return Explanation(verdicts, problems)


def _claim(resource: str, action: str) -> Claim:
    """Return what would be asked. Raise an error for a pattern: a request names one thing."""
    found = Resource.parse(resource.strip())
    if found.kind is ResourceKind.ANY or found.pattern is not Pattern.LITERAL:
        raise InvalidArgumentError(f"{resource[:60]!r} is a pattern, and a request names one topic, group or cluster")
    entry = PolicyEntry.of(resource, [action], (), ALLOW)
    if entry.actions[0] is Action.ALL:
        raise invalid("All is no action of a request. Name one, such as Pub or Sub.")
    return Claim(found.kind, found.name, entry.actions)


@dataclass(frozen=True, slots=True)
class ImportReport(Value):
    """What became of each account of a plain_acl.yml."""

    answers: tuple[tuple[str, Changed], ...]
    # What has no counterpart, in sentences for the operator.
    dropped: tuple[str, ...]


async def import_plain_acl(
    admin: AdminConnection, plain: PlainAcls, *, cluster: str | None = None, server: str | None = None
) -> ImportReport:
    """Make the users of a plain_acl.yml with their rights on every server. A user that exists is left as it is."""
    servers = await servers_of(admin, cluster=cluster, server=server)
    answers: list[tuple[str, Changed]] = []
    for change, acl in plain.accounts:
        name = change.name
        info = UserInfo(username=name, password=change.password, user_type=(change.type or UserType.NORMAL).value)
        user, rights = dumps_plain(info.to_json()), dumps_plain(acl_info(acl).to_json())

        async def put(
            address: str, name: str = name, user: bytes = user, rights: bytes = rights, acl: Acl = acl
        ) -> None:
            if await user_at(admin, address, name) is not None:
                raise BrokerError("the user exists and stays as it is", code=ResponseCode.NO_PERMISSION)
            await admin.ask(address, RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username=name), user)
            if acl.policies:
                header = CreateAclRequestHeader(subject=acl.subject)
                await admin.ask(address, RequestCode.AUTH_CREATE_ACL, header, rights)

        answers.append((name, await change_each(servers, put)))
    return ImportReport(tuple(answers), plain.dropped)


async def _listed(admin: AdminConnection, address: str, user: str, resource: str) -> list[AclInfo]:
    header = ListAclsRequestHeader(subject_filter=user, resource_filter=resource)
    answer = await admin.ask(address, RequestCode.AUTH_LIST_ACL, header)
    return [AclInfo.from_json(one) for one in objects_in(answer.body)]


async def _acl_at(admin: AdminConnection, address: str, user: str) -> AclInfo | None:
    answer = await admin.ask(address, RequestCode.AUTH_GET_ACL, GetAclRequestHeader(subject=f"User:{user}"))
    return AclInfo.from_json(loads_object(answer.body)) if answer.body else None


def _merged(found: Sequence[tuple[OneServer, list[AclInfo]]], problems: Sequence[str]) -> RightListing:
    servers: dict[Right, list[str]] = {}
    for one, acls in found:
        for acl in acls:
            for right in _rights(acl):
                servers.setdefault(right, []).append(_called(one))
    every = [_called(one) for one, _ in found]
    said = list(problems)
    for right, having in servers.items():
        missing = [one for one in every if one not in having]
        if missing:
            said.append(f"{right.user} on {right.resource}: {', '.join(missing)} has not the same entry")
    rights = tuple(
        Right(one.user, one.resource, one.actions, one.decision, one.policy, one.sources, tuple(servers[one]))
        for one in sorted(servers, key=lambda one: (one.user, one.policy, one.resource))
    )
    return RightListing(rights, tuple(said))


def _rights(acl: AclInfo) -> Iterable[Right]:
    user = (acl.subject or "").removeprefix("User:")
    for policy in acl.policies:
        for entry in policy.entries:
            yield Right(
                user, entry.resource or "", tuple(entry.actions or ()), entry.decision or "",
                policy.policy_type or CUSTOM, tuple(entry.source_ips or ()),
            )  # fmt: skip


def _called(server: OneServer) -> str:
    return f"{server.role} {server.address}" if server.role != server.address else server.address
