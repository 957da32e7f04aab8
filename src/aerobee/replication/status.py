"""A replica's status, for commands, metrics and HA status on the wire."""

from __future__ import annotations

from aerobee.replication.ownlog import OwnLog
from aerobee.replication.progress import Follower
from aerobee.replication.roles import ReplicaMachine
from aerobee.replication.values import FollowerStatus, GroupState, ReplicaStatus


def status_of(group: str, machine: ReplicaMachine, own: OwnLog, now_s: float) -> ReplicaStatus:
    """Return how a replica stands now."""
    state = machine.state
    members = {} if machine.view is None else machine.view.members
    followers: tuple[FollowerStatus, ...] = ()
    if machine.progress is not None:
        followers = tuple(_follower(one, state, own.end) for one in machine.progress.followers.values())
    return ReplicaStatus(
        group=group,
        id=machine.id,
        incarnation=machine.incarnation,
        role=machine.role,
        epoch=machine.epoch,
        master=None if state.master is None else members.get(state.master),
        state=state,
        epochs=own.epochs.entries,
        log_start=own.start,
        log_end=own.end,
        confirmed=own.confirmed,
        followers=followers,
        elections=machine.elections,
        set_changes=machine.set_changes,
        reason=machine.halted or machine.refusal(now_s),
    )


def _follower(one: Follower, state: GroupState, end: int) -> FollowerStatus:
    return FollowerStatus(
        id=one.id,
        address=one.address,
        acked=one.stored,
        lag_bytes=max(0, end - one.stored),
        in_sync=state.in_sync.get(one.id) == one.incarnation,
        learner=one.learner,
        connected=one.connected,
    )
