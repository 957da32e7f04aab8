"""Requests of administrators about a replicated group: Apache's controller codes, the HA status, and our own two.

There is no controller process. Every replica answers about its own group, and says that the master is the controller's
leader, so that Apache's mqadmin asks the master to change something. RocketMQ: ControllerRequestProcessor.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.config import BrokerConfig
from aerobee.errors import AerobeeError
from aerobee.model.numbers import parse_int
from aerobee.model.route import MASTER_ID
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.bodies.cluster import (
    EpochEntry,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    ReplicaIdentity,
    ReplicasInfo,
)
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetReplicaInfoRequestHeader,
)
from aerobee.protocol.headers.declarations import ReplicaForceRequestHeader
from aerobee.replication.coordinator import Coordinator, Outcome
from aerobee.replication.values import GroupState, GroupView, ReplicaRole, ReplicaStatus
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

if TYPE_CHECKING:
    from aerobee.app.replica import GroupRoot
    from aerobee.replication.replica import Replica

_INT_MAX: Final = 2**31 - 1
_NAMES_MAX: Final = 1000
_IDS_MAX: Final = 100
_log = get_log("replica")


class RefusedAdminError(AerobeeError):
    """An administrator's request about a group is not carried out. `code` is the answer's."""


class ReplicaRequests:
    """Answers administrators about the group of one broker. Without a group it says that there is none."""

    def __init__(self, config: BrokerConfig, group: GroupRoot | None, tasks: Tasks) -> None:
        self._config = config
        self._group = group
        self._tasks = tasks

    def handlers(self) -> dict[int, Handler]:
        found: dict[int, Handler] = {
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.sync_state,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
            RequestCode.GET_CONTROLLER_CONFIG: self.settings,
            RequestCode.CLEAN_BROKER_DATA: self.clean,
            PrivateRequestCode.REPLICA_STATUS: self.status,
            PrivateRequestCode.REPLICA_FORCE: self.force,
        }
        if self._group is not None:
            found[RequestCode.GET_BROKER_HA_STATUS] = self.ha_status
        return found

    # -- looking

    def ha_status(self, channel: Channel, command: Command) -> Command:
        """Show the followers of a master, or the master of a follower."""
        try:
            status = self._replica().status()
        except RefusedAdminError as error:
            return _refusal(command, error)
        if status.role is not ReplicaRole.LEADER:
            master = status.master
            link = HAClientRuntimeInfo(
                master_addr=None if master is None else master.ha_address,
                max_offset=status.log_end,
                master_flush_offset=status.confirmed,
                activated=status.role is ReplicaRole.FOLLOWER,
            )
            return response(command, body=HARuntimeInfo(ha_client_runtime_info=link).encode())
        followers = tuple(
            HAConnectionRuntimeInfo(
                addr=one.address,
                slave_ack_offset=one.acked,
                diff=one.lag_bytes,
                in_sync=one.in_sync,
                transferred_byte_in_second=one.bytes_per_s,
                transfer_from_where=one.acked,
            )
            for one in status.followers
            if one.connected
        )
        info = HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=status.log_end,
            in_sync_slave_nums=sum(one.in_sync for one in followers),
            ha_connection_info=followers,
        )
        return response(command, body=info.encode())

    def replica_info(self, channel: Channel, command: Command) -> Command:
        """Tell the master and the in-sync set. RocketMQ: ReplicasInfoManager.getReplicaInfo."""
        header = decode_header(GetReplicaInfoRequestHeader, command)
        try:
            view = self._view(header.broker_name)
        except RefusedAdminError as error:
            return _refusal(command, error)
        return _answer(command, _master_fields(view), _set_body(view.state))

    def metadata(self, channel: Channel, command: Command) -> Command:
        """Name the group's master as the controller's leader, or this replica where there is none."""
        try:
            view, status = self._view(None), self._replica().status()
        except RefusedAdminError as error:
            return _refusal(command, error)
        leader = status.id if view.state.master is None else view.state.master
        member = view.members.get(leader)
        fields = {
            "group": self._config.broker_name,
            "controllerLeaderId": str(leader),
            "controllerLeaderAddress": "" if member is None else member.address,
            "isLeader": "true" if leader == status.id else "false",
            "peers": ";".join(f"{number}:{one.address}" for number, one in sorted(view.members.items())),
        }
        return _answer(command, fields)

    def sync_state(self, channel: Channel, command: Command) -> Command:
        """Tell master, in-sync set and the others of each group that is asked for and is this one."""
        try:
            names = msgspec.json.decode(command.body or b"[]", type=list[str])
            if len(names) > _NAMES_MAX:
                raise RefusedAdminError(f"more than {_NAMES_MAX} names", code=ResponseCode.CONTROLLER_INVALID_REQUEST)
            view = self._view(None)
        except (ValueError, RecursionError) as error:
            return response(command, ResponseCode.CONTROLLER_INVALID_REQUEST, remark=f"the body is no list: {error}")
        except RefusedAdminError as error:
            return _refusal(command, error)
        name = self._config.broker_name
        table = {name: _replicas_info(name, view).to_json()} if name in names else {}
        return response(command, body=_json({"replicasInfoTable": table}))

    def epochs(self, channel: Channel, command: Command) -> Command:
        """Tell the epochs of this replica's log."""
        try:
            status = self._replica().status()
        except RefusedAdminError as error:
            return _refusal(command, error)
        ends = [one.start for one in status.epochs[1:]] + [status.log_end]
        entries = [
            EpochEntry(one.number, one.start, end).to_json() for one, end in zip(status.epochs, ends, strict=True)
        ]
        body = {
            "clusterName": self._config.cluster_name,
            "brokerName": self._config.broker_name,
            "brokerId": _broker_id(status),
            "epochList": entries,
            "maxOffset": status.log_end,
        }
        return response(command, body=_json(body))

    def settings(self, channel: Channel, command: Command) -> Command:
        """Tell the settings that decide about elections, as a controller tells its own."""
        try:
            view = self._view(None)
        except RefusedAdminError as error:
            return _refusal(command, error)
        settings = {
            "brokerClusterName": self._config.cluster_name,
            "brokerName": self._config.broker_name,
            "minInSyncReplicas": view.state.min_in_sync,
            "enableElectUncleanMaster": "false",
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        return response(command, body=text.encode())

    def status(self, channel: Channel, command: Command) -> Command:
        """Tell everything that this replica knows of itself and its group."""
        try:
            status, view = self._replica().status(), self._view(None)
        except RefusedAdminError as error:
            return _refusal(command, error)
        told = {**asdict(status), "cluster": self._config.cluster_name}
        told["members"] = [asdict(one) for _, one in sorted(view.members.items())]
        told["live"] = [asdict(one) for _, one in sorted(view.live.items())]
        return response(command, body=msgspec.json.encode(told))

    # -- changing

    def elect(self, channel: Channel, command: Command) -> None:
        """Hand the role of master to the replica that is named."""
        header = decode_header(ElectMasterRequestHeader, command)
        self._begin(channel, command, self._elect(header, channel.remote_address))

    async def _elect(self, header: ElectMasterRequestHeader, peer: str) -> tuple[dict[str, str], bytes]:
        view, replica = self._view(header.broker_name), self._replica()
        if header.broker_id < 1:
            code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            raise RefusedAdminError("replicas elect by themselves: name the replica that is to lead", code=code)
        if header.broker_id not in view.members:
            raise RefusedAdminError(
                f"there is no replica {header.broker_id}", code=ResponseCode.CONTROLLER_INVALID_REPLICAS
            )
        if view.state.master != header.broker_id:
            if replica.status().role is not ReplicaRole.LEADER:
                raise RefusedAdminError("this replica is not the master", code=ResponseCode.CONTROLLER_NOT_LEADER)
            _log.warning("an operator hands over the role of master", replica=header.broker_id, peer=peer)
            try:
                await replica.switch_to(header.broker_id)
            except AerobeeError as error:
                code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
                raise RefusedAdminError(error.message, code=code) from None
            view = await self._coordinator().view()
        addresses = {_id_at(number, view): one.address for number, one in sorted(view.members.items())}
        group = {"cluster": self._config.cluster_name, "brokerName": self._config.broker_name, "brokerAddrs": addresses}
        # Apache's controller wraps the group, and Apache's client reads it without the wrapper. This answer suits both.
        body = {**group, "brokerMemberGroup": group, "syncStateSet": sorted(view.state.in_sync)}
        return _master_fields(view), _json(body)

    def clean(self, channel: Channel, command: Command) -> None:
        """Remove replicas that are gone for good."""
        header = decode_header(CleanControllerBrokerDataRequestHeader, command)
        self._begin(channel, command, self._clean(header, channel.remote_address))

    async def _clean(self, header: CleanControllerBrokerDataRequestHeader, peer: str) -> tuple[dict[str, str], bytes]:
        refused = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        try:
            words = (header.broker_controller_ids_to_clean or "").split(";")[:_IDS_MAX]
            numbers = [parse_int(word.strip(), 1, _INT_MAX) for word in words if word.strip()]
        except ValueError as error:
            raise RefusedAdminError(f"the ids make no sense: {error}", code=refused) from None
        self._view(header.broker_name)
        view = await self._coordinator().view()
        for number in numbers:
            if number not in view.members:
                raise RefusedAdminError(f"there is no replica {number}", code=refused)
            if number in view.live:
                raise RefusedAdminError(f"replica {number} is alive: stop it first", code=refused)
            if number in view.state.in_sync or number in view.state.eligible or number == view.state.master:
                words_of = "it may hold messages that no other replica has"
                raise RefusedAdminError(f"replica {number} still counts for the group: {words_of}", code=refused)
        if not numbers:
            raise RefusedAdminError("no replica is named", code=refused)
        for number in numbers:
            _log.warning("an operator removes a replica", replica=number, peer=peer)
            if not await self._coordinator().remove(number):
                raise RefusedAdminError(f"the group changed meanwhile: try replica {number} again", code=refused)
        return {}, b""

    def force(self, channel: Channel, command: Command) -> None:
        """Make this replica the master although it may lack messages. Only while nobody better is alive."""
        header = decode_header(ReplicaForceRequestHeader, command)
        self._begin(channel, command, self._force(header, channel.remote_address))

    async def _force(self, header: ReplicaForceRequestHeader, peer: str) -> tuple[dict[str, str], bytes]:
        refused = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        self._view(header.broker_name)
        status = self._replica().status()
        if header.broker_id != status.id:
            raise RefusedAdminError(f"this is replica {status.id}: ask replica {header.broker_id}", code=refused)
        view = await self._coordinator().view()
        better = {**view.state.eligible, **view.state.in_sync}
        for number, live in view.live.items():
            if better.get(number) == live.incarnation:
                raise RefusedAdminError(f"replica {number} is alive and can lead without loss", code=refused)
        state, own = view.state, view.live.get(status.id)
        if own is None or own.incarnation != status.incarnation:
            raise RefusedAdminError("this replica's lease is not known yet: try again", code=refused)
        forced = replace(
            state,
            epoch=state.epoch + 1,
            master=status.id,
            in_sync={status.id: status.incarnation},
            eligible={},
            forced=f"replica {status.id} was forced to lead epoch {state.epoch + 1}, in place of {sorted(better)}",
        )
        _log.warning(
            "an operator forces this replica to lead; messages that only others had are lost", peer=peer,
            replica=status.id, epoch=forced.epoch, log_end=status.log_end, not_asked=sorted(better),
        )  # fmt: skip
        outcome = await self._coordinator().replace(state, forced)
        if outcome is not Outcome.DONE:
            raise RefusedAdminError(
                f"the coordination store answered {outcome.value}: look, and try again", code=refused
            )
        return {}, b""

    def _begin(
        self, channel: Channel, command: Command, work: Coroutine[object, object, tuple[dict[str, str], bytes]]
    ) -> None:
        async def run() -> None:
            try:
                fields, body = await work
            except AerobeeError as error:
                answer = _refusal(command, error)
            else:
                answer = _answer(command, fields, body)
            if not channel.closed:
                channel.send(answer)

        self._tasks.start(run(), name=f"administrator's request {command.code}")

    # -- inside

    def _replica(self) -> Replica:
        if self._group is None or self._group.replica is None:
            raise RefusedAdminError(
                "this broker has no replicas (coordinatorAddr is not set)",
                code=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
            )
        return self._group.replica

    def _coordinator(self) -> Coordinator:
        self._replica()
        assert self._group is not None
        return self._group.coordinator

    def _view(self, name: str | None) -> GroupView:
        """Return the newest view. Raise RefusedAdminError if there is none, or if another group is meant."""
        view = self._replica().machine.view
        unknown = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        if name is not None and name != self._config.broker_name:
            raise RefusedAdminError(f"this broker is of group {self._config.broker_name}, not {name}", code=unknown)
        if view is None:
            raise RefusedAdminError("the coordination store has not answered this replica yet", code=unknown)
        return view


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _answer(command: Command, fields: dict[str, str], body: bytes = b"") -> Command:
    return replace(response(command, body=body), ext=fields)


def _refusal(command: Command, error: AerobeeError) -> Command:
    return response(command, error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)


def _id_at(number: int, view: GroupView) -> int:
    """Return the broker id that name servers have for a replica."""
    return MASTER_ID if number == view.state.master else number


def _broker_id(status: ReplicaStatus) -> int:
    return MASTER_ID if status.role is ReplicaRole.LEADER else status.id


def _set_epoch(state: GroupState) -> int:
    """Return a number that grows with each change of the set, as Apache's does."""
    return min(state.revision, _INT_MAX)


def _set_body(state: GroupState) -> bytes:
    return _json({"syncStateSet": sorted(state.in_sync), "syncStateSetEpoch": _set_epoch(state)})


def _master_fields(view: GroupView) -> dict[str, str]:
    state = view.state
    fields = {"masterEpoch": str(state.epoch), "syncStateSetEpoch": str(_set_epoch(state))}
    if state.master is not None:
        fields["masterBrokerId"] = str(state.master)
        if state.master in view.members:
            fields["masterAddress"] = view.members[state.master].address
    return fields


def _replicas_info(name: str, view: GroupView) -> ReplicasInfo:
    state = view.state
    master = None if state.master is None else view.members.get(state.master)
    known = [
        (number in state.in_sync, ReplicaIdentity(name, number, one.address, number in view.live))
        for number, one in sorted(view.members.items())
    ]
    return ReplicasInfo(
        master_broker_id=state.master,
        master_address=None if master is None else master.address,
        master_epoch=state.epoch,
        sync_state_set_epoch=_set_epoch(state),
        in_sync_replicas=tuple(one for is_in, one in known if is_in),
        not_in_sync_replicas=tuple(one for is_in, one in known if not is_in),
    )
