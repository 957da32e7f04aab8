"""Policies: which actions on which resources a user is allowed or denied, and from where. RocketMQ: Acl, Policy.

Differences from Apache, all of them stricter. A star stands only at the end of a resource. An unknown action or source
address is refused, where Apache drops actions in silence.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from aerobee.access.refusal import invalid
from aerobee.access.sources import Network, network_of
from aerobee.access.users import subject_of

RESOURCE_LENGTH_MAX: Final = 300
ENTRIES_MAX: Final = 10_000
SOURCES_MAX: Final = 100


class ResourceKind(enum.Enum):
    """Kinds of resource. ANY is the resource `*`."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(enum.IntEnum):
    """How a resource names what it stands for. The order is that of precedence."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Action(enum.Enum):
    """What a request does. ALL stands for all of them, in policies only."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class PolicyDecision(enum.Enum):
    """What an entry that matches decides."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.Enum):
    """Default entries count only where no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


_KINDS: Final = {kind.value.lower(): kind for kind in ResourceKind if kind is not ResourceKind.ANY}
_ACTIONS: Final = {action.value.lower(): action for action in Action}
_DECISIONS: Final = {decision.value.lower(): decision for decision in PolicyDecision}
_TYPES: Final = {kind.value.lower(): kind for kind in PolicyType}


@dataclass(frozen=True, slots=True)
class Resource:
    """What an entry speaks of: `Topic:orders`, `Topic:ord*`, `Topic:*` or `*`."""

    kind: ResourceKind
    name: str
    pattern: Pattern

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Return the resource of a text. Raise AccessRefusedError."""
        if text == "*":
            return cls(ResourceKind.ANY, "", Pattern.ANY)
        kind_name, colon, name = text.partition(":")
        kind = _KINDS.get(kind_name.strip().lower())
        if kind is None or not colon or not name.strip():
            raise invalid(
                f"The resource {text[:60]!r} is not of the form Topic:name, Group:name, Cluster:name, Namespace:name "
                "or *."
            )
        if len(text) > RESOURCE_LENGTH_MAX or not name.isprintable() or name != name.strip():
            raise invalid(f"The resource {text[:60]!r} is too long or holds characters that no name has.")
        if name == "*":
            return cls(kind, "", Pattern.ANY)
        if "*" in name[:-1]:
            raise invalid(f"The resource {text[:60]!r} has a star before its end: a star stands for what follows only.")
        if name.endswith("*"):
            return cls(kind, name[:-1], Pattern.PREFIXED)
        return cls(kind, name, Pattern.LITERAL)

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.kind.value}:{self.name}{star}"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule. Without sources it holds for every address."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: PolicyDecision
    sources: tuple[str, ...] = ()
    networks: tuple[Network, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(
        cls, resource: str | None, actions: Iterable[str], sources: Iterable[str] = (), decision: str | None = None
    ) -> PolicyEntry:
        """Return the entry of texts. Raise AccessRefusedError."""
        if resource is None or not resource.strip():
            raise invalid("The resource is null.")
        found = Resource.parse(resource.strip())
        told = tuple(dict.fromkeys(_action(one) for one in actions))
        if not told:
            raise invalid("The actions is empty.")
        decided = _DECISIONS.get((decision or "").strip().lower())
        if decided is None:
            raise invalid("The decision is null or illegal.")
        texts = tuple(dict.fromkeys(one.strip() for one in sources))
        if len(texts) > SOURCES_MAX:
            raise invalid(f"An entry has at most {SOURCES_MAX} source ips; use CIDR blocks.")
        return cls(found, told, decided, texts, tuple(network_of(one) for one in texts))

    def __str__(self) -> str:
        actions = ",".join(action.value for action in self.actions)
        where = f" from {','.join(self.sources)}" if self.sources else ""
        return f"{self.decision.value} {actions} on {self.resource}{where}"


def _action(text: str) -> Action:
    found = _ACTIONS.get(text.strip().lower())
    if found is None:
        known = ", ".join(action.value for action in Action)
        raise invalid(f"{text[:40]!r} is no action: {known} are.")
    return found


def policy_type(text: str | None) -> PolicyType:
    """Return the type of a policy; an absent one is Custom."""
    if text is None or not text.strip():
        return PolicyType.CUSTOM
    found = _TYPES.get(text.strip().lower())
    if found is None:
        raise invalid(f"{text[:40]!r} is no policy type: Custom and Default are.")
    return found


class _Index:
    """The entries of one type by what they name."""

    def __init__(self, entries: Iterable[PolicyEntry]) -> None:
        self._entries = {(one.resource.kind, one.resource.pattern, one.resource.name): one for one in entries}
        self._lengths = sorted({len(name) for _, pattern, name in self._entries if pattern is Pattern.PREFIXED})

    def about(self, kind: ResourceKind, name: str) -> list[PolicyEntry]:
        keys = [(kind, Pattern.LITERAL, name), (kind, Pattern.ANY, ""), (ResourceKind.ANY, Pattern.ANY, "")]
        keys += [(kind, Pattern.PREFIXED, name[:length]) for length in self._lengths if length <= len(name)]
        return [self._entries[key] for key in keys if key in self._entries]


@dataclass(frozen=True, slots=True)
class Acl:
    """The policies of one user: entries by type, one for each resource, in the order in which they came."""

    user: str
    policies: tuple[tuple[PolicyType, tuple[PolicyEntry, ...]], ...] = ()
    _index: dict[PolicyType, _Index] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def subject(self) -> str:
        """Return `User:name`."""
        return subject_of(self.user)

    def entries(self, kind: PolicyType) -> tuple[PolicyEntry, ...]:
        """Return the entries of one type."""
        for one, entries in self.policies:
            if one is kind:
                return entries
        return ()

    def about(self, policy: PolicyType, kind: ResourceKind, name: str) -> list[PolicyEntry]:
        """Return the entries of one type whose resource stands for this one, without a look at all the others."""
        index = self._index.get(policy)
        if index is None:
            index = self._index[policy] = _Index(self.entries(policy))
        return index.about(kind, name)

    def with_entries(self, kind: PolicyType, changed: Iterable[PolicyEntry]) -> Acl:
        """Return the policies after entries were added; each takes the place of one for the same resource."""
        merged = {entry.resource: entry for entry in self.entries(kind)}
        merged.update((entry.resource, entry) for entry in changed)
        return self._with(kind, tuple(merged.values()))

    def without(self, kind: PolicyType, resource: Resource) -> Acl:
        """Return the policies without the entry for a resource."""
        return self._with(kind, tuple(entry for entry in self.entries(kind) if entry.resource != resource))

    def _with(self, kind: PolicyType, entries: tuple[PolicyEntry, ...]) -> Acl:
        kept = dict(self.policies)
        kept[kind] = entries
        if sum(len(found) for found in kept.values()) > ENTRIES_MAX:
            raise invalid(f"{self.subject} would have more than {ENTRIES_MAX} entries: use prefixes.")
        return Acl(self.user, tuple((one, found) for one, found in kept.items() if found))
