"""How a replica presents itself: to the coordinator, to its master, and to its followers."""

from __future__ import annotations

from aerobee.replication.frames import DIALECT, Hello
from aerobee.replication.ownlog import OwnLog
from aerobee.replication.settings import ReplicaSettings
from aerobee.replication.transfer import MasterLog, pairs_of
from aerobee.replication.values import ReplicaMember


def member_of(settings: ReplicaSettings, own: OwnLog) -> ReplicaMember:
    """Return the replica as it joins its group. An id of 0 asks for one."""
    return ReplicaMember(
        id=own.identity.id,
        incarnation=own.identity.incarnation,
        address=settings.address,
        ha_address=settings.ha_address,
        learner=settings.learner,
        priority=settings.priority,
        release=settings.release,
        dialect=DIALECT,
        segment_size=own.store.config.mapped_file_size_commit_log,
        start=settings.start_id,
    )


def hello_of(settings: ReplicaSettings, own: OwnLog, nonce: str) -> Hello:
    """Return a follower's first words."""
    return Hello(
        cluster=settings.cluster,
        group=settings.group,
        id=own.identity.id,
        incarnation=own.identity.incarnation,
        epoch=own.identity.epoch,
        epochs=pairs_of(own.epochs),
        start=own.start,
        end=own.end,
        segment_size=own.store.config.mapped_file_size_commit_log,
        learner=settings.learner,
        release=settings.release,
        nonce=nonce,
    )


def master_log_of(settings: ReplicaSettings, own: OwnLog, number: int, epoch: int) -> MasterLog:
    """Return what a master tells its followers of itself."""
    return MasterLog(
        cluster=settings.cluster,
        group=settings.group,
        id=number,
        epoch=epoch,
        epochs=own.epochs,
        start=own.start,
        end=own.end,
        confirmed=own.confirmed,
        segment_size=own.store.config.mapped_file_size_commit_log,
        release=settings.release,
    )
