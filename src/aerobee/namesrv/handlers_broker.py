"""Handlers of what brokers send: registration, unregistration, heartbeat, data version, group members.

RocketMQ: DefaultRequestProcessor.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import dumps, loads_object
from aerobee.namesrv.effects import Departure, Effect, Registration
from aerobee.namesrv.kvconfig import ORDER_TOPIC_CONFIG
from aerobee.namesrv.state import Handler, NamesrvState, Peer
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.cluster import BrokerMemberGroup, GetBrokerMemberGroupResponseBody, KVTable
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.bodies.topics import TopicConfigSerializeWrapper
from aerobee.protocol.codes import GROUPS_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.cluster import GetBrokerMemberGroupRequestHeader
from aerobee.protocol.headers.route import (
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

_ZONE_NAME = "__ZONE_NAME"

# In earlier versions a registration is the bare topic table. RocketMQ: MQVersion.V3_0_11.ordinal()
_VERSION_WITH_FILTER_SERVERS = 37


class BrokerHandlers:
    """Answers the requests of brokers. `perform` performs the effects of a request of one connection."""

    def __init__(self, state: NamesrvState, perform: Callable[[Iterable[Effect], Peer | None], None]) -> None:
        self._state = state
        self._perform = perform

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
        }

    def register_broker(self, peer: Peer, command: Command) -> Sliced:
        return Sliced(self._register_broker(peer, command))

    def _register_broker(self, peer: Peer, command: Command) -> Slices:
        header = decode_header(RegisterBrokerRequestHeader, command)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(command.body) & 0x7FFFFFFF:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        registration = yield from _registration(peer, command, header)
        problem = self._state.routes.problem(registration)
        if problem:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=f"register broker failed: {problem}")
        result, learning = self._state.routes.enter(registration, self._state.now_ms())
        # From here on a lost connection removes the broker, even while its topics are being added.
        self._perform(result.effects, peer)
        if not result.accepted:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="register broker failed")
        yield from learning
        answer = RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_addr, master_addr=result.master_addr)
        known = self._state.routes.digest(registration.broker_name) if GROUPS_FIELD in command.ext else None
        ext = None if known is None else {GROUPS_FIELD: known}
        return response(command, header=answer, body=self._order_topics(), ext=ext)

    def _order_topics(self) -> bytes:
        table = self._state.kv.namespace(ORDER_TOPIC_CONFIG)
        if table is None or not self._state.config.return_order_topic_config_to_broker:
            return b""
        return KVTable(dict(table)).encode()

    def unregister_broker(self, peer: Peer, command: Command) -> Command:
        header = decode_header(UnRegisterBrokerRequestHeader, command)
        gone = Departure(header.cluster_name, header.broker_name, header.broker_addr)
        self._perform(self._state.routes.unregister([gone]), None)
        return response(command)

    def broker_heartbeat(self, peer: Peer, command: Command) -> Command:
        header = decode_header(BrokerHeartbeatRequestHeader, command)
        self._state.routes.heartbeat(header.cluster_name, header.broker_addr, self._state.now_ms())
        return response(command)

    def query_data_version(self, peer: Peer, command: Command) -> Command:
        """Tell whether the topics changed. This is a heartbeat, too: a broker without changes sends nothing else."""
        header = decode_header(QueryDataVersionRequestHeader, command)
        known = self._state.routes.data_version(header.cluster_name, header.broker_addr)
        asked = DataVersion.from_json(loads_object(command.body)) if command.body else None
        self._state.routes.heartbeat(header.cluster_name, header.broker_addr, self._state.now_ms())
        return response(
            command,
            header=QueryDataVersionResponseHeader(changed=known is None or known != asked),
            body=b"" if known is None else dumps(known.to_json()),
        )

    def get_broker_member_group(self, peer: Peer, command: Command) -> Command:
        header = decode_header(GetBrokerMemberGroupRequestHeader, command)
        members = self._state.routes.members(header.broker_name)
        group = BrokerMemberGroup(header.cluster_name, header.broker_name, members)
        return response(command, body=GetBrokerMemberGroupResponseBody(group).encode())


def _registration(
    peer: Peer, command: Command, header: RegisterBrokerRequestHeader
) -> Generator[None, None, Registration]:
    filter_servers: tuple[str, ...] | None = None
    mappings: dict[str, dict[str, Any]] = {}
    if command.version < _VERSION_WITH_FILTER_SERVERS:
        old = yield from TopicConfigSerializeWrapper.decode_slices(command.body)
        topics, data_version = old.topic_config_table, old.data_version
    else:
        body = yield from _body(command, header.compressed)
        filter_servers = body.filter_server_list
        wrapper = body.topic_config_serialize_wrapper
        topics, data_version = wrapper.topic_config_table, wrapper.data_version
        for topic, info in wrapper.topic_queue_mapping_info_map.items():
            mappings[topic] = info.to_json()
            yield
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        broker_addr=header.broker_addr,
        ha_server_addr=header.ha_server_addr,
        channel_id=peer.id,
        data_version=data_version,
        topics=topics,
        mappings=mappings,
        heartbeat_timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
        zone_name=command.ext.get(_ZONE_NAME),
        filter_servers=filter_servers,
    )


def _body(command: Command, compressed: bool) -> Generator[None, None, RegisterBrokerBody]:
    if compressed and command.body:
        return (yield from RegisterBrokerBody.decode_compressed_slices(command.body, command.version))
    return (yield from RegisterBrokerBody.decode_slices(command.body))
