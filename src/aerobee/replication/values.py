"""What replicas of one group know about each other: members, the agreed state, and the status of a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReplicaRole(StrEnum):
    """What a replica does now."""

    # It has no master to follow and no authority to lead: the group has no master, or the replica is joining.
    WAITING = "waiting"
    FOLLOWER = "follower"
    # It was elected, and the tail of earlier epochs is not confirmed yet. It accepts no request that changes anything.
    PROMOTING = "promoting"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The time of one master: every record from `start` to the start of the next epoch was written by it."""

    number: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMember:
    """A replica as it joined its group."""

    # 1, 2, 3...; never given to another replica of the group.
    id: int
    # 32 hex digits. A replica whose log may have lost its tail comes back with another incarnation.
    incarnation: str
    # Where clients reach it, and where other replicas do: host:port.
    address: str
    ha_address: str
    # A learner copies the log. It is never in the in-sync set and never becomes master.
    learner: bool = False
    priority: int = 0
    release: str = ""
    # The newest version of the replication dialect that it speaks.
    dialect: int = 1
    segment_size: int = 0
    # What the process drew when it started. It tells the process from one on a copy of its directory.
    start: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplica:
    """What a replica said last while its lease was alive."""

    id: int
    incarnation: str
    epoch: int
    log_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What the group has agreed on. Every change is one compare-and-swap of the revision."""

    epoch: int = 0
    master: int | None = None
    # The in-sync set and, while it is smaller than the least size, those who left it last: id -> incarnation.
    in_sync: Mapping[int, str] = field(default_factory=dict)
    eligible: Mapping[int, str] = field(default_factory=dict)
    min_in_sync: int = 1
    # The store's revision of this state; 0 where nothing is stored yet. It is not part of what is stored.
    revision: int = 0
    # Words about the last change that an operator forced, empty if none was.
    forced: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """Everything that the coordinator holds about a group, as of one revision of its store."""

    state: GroupState
    members: Mapping[int, ReplicaMember] = field(default_factory=dict)
    live: Mapping[int, LiveReplica] = field(default_factory=dict)
    # The store's revision. Of two views the one with the higher revision is the newer one.
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerStatus:
    """How far one follower is, as its master sees it."""

    id: int
    address: str
    acked: int
    lag_bytes: int
    in_sync: bool
    learner: bool
    connected: bool
    bytes_per_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """A replica's own status, for commands, metrics and HA status on the wire."""

    group: str
    id: int
    incarnation: str
    role: ReplicaRole
    epoch: int
    master: ReplicaMember | None
    state: GroupState
    epochs: tuple[Epoch, ...]
    log_start: int
    log_end: int
    confirmed: int
    followers: tuple[FollowerStatus, ...] = ()
    # Counters since the process started.
    elections: int = 0
    set_changes: int = 0
    # Why the replica does not serve, empty while it does.
    reason: str = ""
