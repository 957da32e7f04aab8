"""What the collector knows of a cluster at a moment. Pages with lists read it and ask nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aerobee.admin.cluster import BrokerStatus
from aerobee.admin.connection import KnownBroker
from aerobee.admin.groups import GroupSettings, Member
from aerobee.admin.topics import TopicSummary
from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX


@dataclass(slots=True)
class TopicNumbers:
    """The traffic of a topic on the brokers that answer, as it was when it was last asked for. None is unknown."""

    asked_ms: int = 0
    in_s: float | None = None
    messages: int | None = None
    last_store_ms: int = 0


@dataclass(slots=True)
class GroupNumbers:
    """The progress of a group, as it was when it was last asked for. `oldest_ms` is the age of the oldest message that
    it has not consumed."""

    asked_ms: int = 0
    lag: int | None = None
    oldest_ms: int | None = None
    tps: float | None = None
    members: int | None = None
    mode: str = ""
    clients: tuple[Member, ...] = ()
    topics: tuple[str, ...] = ()
    # The sum of its offsets, how fast that grew, when it last did, and the time between its last two steps, since this
    # was first asked.
    consumed: int = 0
    rows_s: float | None = None
    moved_ms: int = 0
    step_ms: int = 0


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group as the brokers have it."""

    name: str
    is_system: bool
    brokers: tuple[str, ...]
    may_consume: bool
    settings: tuple[GroupSettings, ...]


@dataclass(slots=True)
class Snapshot:
    """Everything at once. The tables are replaced as a whole, the numbers one by one."""

    at_ms: int = 0
    known: tuple[KnownBroker, ...] = ()
    brokers: tuple[BrokerStatus, ...] = ()
    infos: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # By address: why a broker does not answer.
    silent: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, TopicSummary] = field(default_factory=dict)
    topics_ms: int = 0
    groups: Mapping[str, KnownGroup] = field(default_factory=dict)
    topic_numbers: dict[str, TopicNumbers] = field(default_factory=dict)
    group_numbers: dict[str, GroupNumbers] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def dead_of(self, group: str) -> int | None:
        """Return how many dead letters a group has, None if it is not known."""
        return self._kept_in(DLQ_PREFIX + group)

    def retries_of(self, group: str) -> int | None:
        """Return how many messages the retry topic of a group keeps, None if it is not known."""
        return self._kept_in(RETRY_PREFIX + group)

    def _kept_in(self, topic: str) -> int | None:
        if topic not in self.topics:
            return 0
        found = self.topic_numbers.get(topic)
        return None if found is None else found.messages

    @property
    def unasked(self) -> str:
        """Return a sentence if topics or groups have not been asked for their numbers yet."""
        topics, groups = len(self.topics), len(self.groups)
        left = topics - len(self.topic_numbers) + groups - len(self.group_numbers)
        if left <= 0:
            return ""
        return (
            f"{left:,} of {topics:,} topics and {groups:,} groups have not told their numbers yet: sums leave them out"
        )
