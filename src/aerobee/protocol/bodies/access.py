"""Bodies of requests about users and policies (3001-3010). RocketMQ: UserInfo, AclInfo."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.protocol.bodies.base import Body


@dataclass(frozen=True, slots=True)
class UserInfo(Body):
    """A user. `repr` does not show the password."""

    password: str | None = field(default=None, repr=False)
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyEntryInfo(Body):
    """One rule: actions on a resource, allowed or denied."""

    actions: tuple[str, ...] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PolicyInfo(Body):
    """The rules of one type: Custom or Default."""

    entries: tuple[PolicyEntryInfo, ...] = ()
    policy_type: str | None = None


@dataclass(frozen=True, slots=True)
class AclInfo(Body):
    """The policies of a subject such as `User:alice`."""

    policies: tuple[PolicyInfo, ...] = ()
    subject: str | None = None
