"""Replicated groups: who leads, who is in sync, how far the others are; and the changes an operator may ask for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from aerobee.admin.connection import AdminConnection, KnownBroker
from aerobee.admin.values import Value
from aerobee.config.properties import parse_properties
from aerobee.errors import AerobeeError, BrokerError, InvalidArgumentError, TransportError
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.headers.controller import CleanControllerBrokerDataRequestHeader, ElectMasterRequestHeader
from aerobee.protocol.headers.declarations import ReplicaForceRequestHeader

# What a new replica must have in common with the others.
_SHARED_KEYS = ("brokerRole", "flushDiskType", "mappedFileSizeCommitLog", "minInSyncReplicas")


@dataclass(frozen=True, slots=True)
class ReplicaView(Value):
    """One replica of a group."""

    replica: int
    address: str
    # leader, promoting, follower or waiting; "away" if it does not answer.
    role: str
    in_sync: bool
    eligible: bool
    alive: bool
    learner: bool
    epoch: int
    log_end: int
    confirmed: int
    # Bytes that it lacks of the master's log, or -1 if nobody knows.
    lag_bytes: int
    release: str
    # Why it does not serve.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupReplicas(Value):
    """A replicated group as its newest view shows it."""

    cluster: str
    group: str
    epoch: int
    # The replica that leads, or None.
    master: int | None
    min_in_sync: int
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...]
    # Words about the last change that an operator forced.
    forced: str
    # Counters of the replica that leads, since its process started.
    elections: int
    set_changes: int
    replicas: tuple[ReplicaView, ...]

    @property
    def is_sound(self) -> bool:
        """Whether the group has a master and enough replicas in sync to take messages."""
        return self.master is not None and len(self.in_sync) >= self.min_in_sync


class _Member(msgspec.Struct):
    id: int
    address: str
    learner: bool = False
    release: str = ""


class _Live(msgspec.Struct):
    id: int
    epoch: int = 0
    log_end: int = 0


class _Follower(msgspec.Struct):
    id: int
    lag_bytes: int = -1


class _State(msgspec.Struct):
    epoch: int = 0
    master: int | None = None
    in_sync: dict[int, str] = {}
    eligible: dict[int, str] = {}
    min_in_sync: int = 1
    revision: int = 0
    forced: str = ""


class _Told(msgspec.Struct):
    """The answer to REPLICA_STATUS."""

    cluster: str
    group: str
    id: int
    role: str
    state: _State
    epoch: int = 0
    log_end: int = 0
    confirmed: int = 0
    followers: list[_Follower] = []
    members: list[_Member] = []
    live: list[_Live] = []
    elections: int = 0
    set_changes: int = 0
    reason: str = ""


async def replicated_groups(admin: AdminConnection, group: str | None = None) -> tuple[GroupReplicas, ...]:
    """Return every group that has replicas, or one of them. Raise InvalidArgumentError if that one has none."""
    brokers = [one for one in await admin.brokers() if group in (None, one.name)]
    told = await asyncio.gather(*(_told(admin, one) for one in brokers))
    found: dict[tuple[str, str], list[_Told]] = {}
    for one in told:
        if one is not None:
            found.setdefault((one.cluster, one.group), []).append(one)
    if group is not None and not found:
        known = ", ".join(sorted({one.name for one in await admin.brokers()})) or "none"
        raise InvalidArgumentError(
            f"no replica of group {group} answers", hint=f"The name server knows these brokers: {known}."
        )
    return tuple(_group(tolds) for _, tolds in sorted(found.items()))


async def switch_master(admin: AdminConnection, group: str, replica: int) -> GroupReplicas:
    """Hand the role of master to a replica that is in sync, and return the group afterwards."""
    before = await _one(admin, group)
    header = ElectMasterRequestHeader(
        cluster_name=before.cluster, broker_name=group, broker_id=replica, designate_elect=True
    )
    await admin.ask(_master_address(before), RequestCode.CONTROLLER_ELECT_MASTER, header)
    return await _one(admin, group)


async def remove_replica(admin: AdminConnection, group: str, replica: int) -> GroupReplicas:
    """Remove a replica that is gone for good, and return the group afterwards. A replica that is alive is refused."""
    before = await _one(admin, group)
    header = CleanControllerBrokerDataRequestHeader(
        cluster_name=before.cluster, broker_name=group, broker_controller_ids_to_clean=str(replica)
    )
    await admin.ask(_master_address(before), RequestCode.CLEAN_BROKER_DATA, header)
    return await _one(admin, group)


async def force_master(admin: AdminConnection, group: str, replica: int) -> None:
    """Make a replica the master although it may lack messages. It is refused while a better one is alive."""
    before = await _one(admin, group)
    addresses = {one.replica: one.address for one in before.replicas}
    if replica not in addresses:
        raise InvalidArgumentError(f"group {group} has no replica {replica}", hint="See `aerobee replica status`.")
    header = ReplicaForceRequestHeader(broker_name=group, broker_id=replica)
    await admin.ask(addresses[replica], PrivateRequestCode.REPLICA_FORCE, header)


async def settings_of_a_new_replica(admin: AdminConnection, group: str) -> dict[str, str]:
    """Return the settings with which a broker joins a group as a new replica. The coordination store is not told."""
    before = await _one(admin, group)
    answer = await admin.ask(_master_address(before), RequestCode.GET_BROKER_CONFIG)
    running = parse_properties(answer.body.decode(errors="replace"))
    own = {"brokerClusterName": before.cluster, "brokerName": group, "namesrvAddr": ";".join(admin.namesrvs)}
    count = len(before.replicas) + 1
    return {**own, "totalReplicas": str(count), **{key: running[key] for key in _SHARED_KEYS if key in running}}


async def _one(admin: AdminConnection, group: str) -> GroupReplicas:
    (found,) = await replicated_groups(admin, group)
    return found


def _master_address(group: GroupReplicas) -> str:
    for one in group.replicas:
        if one.replica == group.master:
            return one.address
    raise InvalidArgumentError(f"group {group.group} has no master", hint="See `aerobee replica status`.")


async def _told(admin: AdminConnection, broker: KnownBroker) -> _Told | None:
    """Return what a broker says about its group, or None if it has none or does not answer."""
    try:
        answer = await admin.ask(broker.address, PrivateRequestCode.REPLICA_STATUS)
        return msgspec.json.decode(answer.body, type=_Told)
    except TransportError:
        return None
    except BrokerError as error:
        unknown = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)
        if error.code in unknown:
            return None
        raise
    except ValueError as error:
        raise AerobeeError(f"the answer of {broker.address} is not understood: {error}") from None


def _group(told: list[_Told]) -> GroupReplicas:
    newest = max(told, key=lambda one: one.state.revision)
    state, answered = newest.state, {one.id: one for one in told}
    leader = answered.get(state.master or 0)
    lags = {} if leader is None else {one.id: one.lag_bytes for one in leader.followers}
    live = {one.id: one for one in newest.live}
    replicas = []
    for member in newest.members:
        own, shown = answered.get(member.id), live.get(member.id, _Live(id=member.id))
        replicas.append(
            ReplicaView(
                replica=member.id,
                address=member.address,
                role="away" if own is None else own.role,
                in_sync=member.id in state.in_sync,
                eligible=member.id in state.eligible,
                alive=member.id in live,
                learner=member.learner,
                epoch=shown.epoch if own is None else own.epoch,
                log_end=shown.log_end if own is None else own.log_end,
                confirmed=0 if own is None else own.confirmed,
                lag_bytes=0 if member.id == state.master else lags.get(member.id, -1),
                release=member.release,
                reason="" if own is None else own.reason,
            )
        )
    return GroupReplicas(
        cluster=newest.cluster,
        group=newest.group,
        epoch=state.epoch,
        master=state.master,
        min_in_sync=state.min_in_sync,
        in_sync=tuple(sorted(state.in_sync)),
        eligible=tuple(sorted(state.eligible)),
        forced=state.forced,
        elections=0 if leader is None else leader.elections,
        set_changes=0 if leader is None else leader.set_changes,
        replicas=tuple(replicas),
    )
