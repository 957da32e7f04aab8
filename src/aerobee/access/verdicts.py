"""The decision about one action on one resource, and the entry that made it. RocketMQ: AclAuthorizationHandler.

A custom entry matches by kind, name, any of the actions, and source address. Where none does, default entries are
asked. Of several, one of a named kind comes before `*`, a literal name before a prefix before `Topic:*`, a longer
prefix before a shorter one, and then Deny before Allow. Where none matches, the request is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aerobee.access.policies import Acl, Action, Pattern, PolicyDecision, PolicyEntry, PolicyType, ResourceKind
from aerobee.access.sources import Address, is_within
from aerobee.access.users import User


class Claim(NamedTuple):
    """A right: any of the actions on a resource. Without actions it is a right of Super users alone."""

    kind: ResourceKind
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name} ({'|'.join(action.value for action in self.actions) or 'Super'})"


# What a request needs: any of these claims. A request may have several needs, all of which must be met. A need without
# claims is met by Super users alone.
Need = tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """Whether a request is allowed, and by which entry. `need` is the one that was decided last."""

    allowed: bool
    rule: str
    need: Need = ()


def matching(acl: Acl, kind: PolicyType, claim: Claim, source: Address | None) -> list[PolicyEntry]:
    """Return the entries of one type that speak about a claim."""
    wanted = claim.actions
    return [
        entry
        for entry in acl.about(kind, claim.kind, claim.name)
        if (Action.ALL in entry.actions or any(action in entry.actions for action in wanted))
        and is_within(source, entry.networks)
    ]


def _rank(entry: PolicyEntry) -> tuple[bool, Pattern, int, bool]:
    resource = entry.resource
    length = len(resource.name) if resource.pattern is Pattern.PREFIXED else 0
    return resource.kind is ResourceKind.ANY, resource.pattern, -length, entry.decision is PolicyDecision.ALLOW


def deciding(acl: Acl | None, claim: Claim, source: Address | None) -> tuple[PolicyType, PolicyEntry] | None:
    """Return the entry that decides about a claim, or None if no entry does."""
    if acl is None or not claim.actions:
        return None
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        found = matching(acl, kind, claim, source)
        if found:
            return kind, min(found, key=_rank)
    return None


def decide(user: User, acl: Acl | None, needs: Iterable[Need], source: Address | None) -> AccessVerdict:
    """Return whether every need is met."""
    if user.is_super:
        return AccessVerdict(True, "a Super user may do everything")
    last = AccessVerdict(True, "every user may")
    for need in needs:
        last = _one(acl, need, source)
        if not last.allowed:
            return last
    return last


def may_somewhere(acl: Acl | None, kind: ResourceKind, action: Action, source: Address | None) -> bool:
    """Return whether some entry allows this action on some resource of this kind."""
    return acl is not None and any(
        entry.decision is PolicyDecision.ALLOW
        and entry.resource.kind in (kind, ResourceKind.ANY)
        and (action in entry.actions or Action.ALL in entry.actions)
        and is_within(source, entry.networks)
        for policy in PolicyType
        for entry in acl.entries(policy)
    )


def _one(acl: Acl | None, need: Sequence[Claim], source: Address | None) -> AccessVerdict:
    refused = "no matched policies"
    for claim in need:
        found = deciding(acl, claim, source)
        if found is None:
            continue
        kind, entry = found
        rule = f"{kind.value}: {entry}"
        if entry.decision is PolicyDecision.ALLOW:
            return AccessVerdict(True, rule, tuple(need))
        refused = f"the decision is deny ({rule})"
    return AccessVerdict(False, refused, tuple(need))
