"""Handlers with which operators list and change topics and clusters.

RocketMQ: DefaultRequestProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.model.dialect import dumps, loads_object
from aerobee.model.names import topic_problem
from aerobee.model.route import TopicRouteData
from aerobee.namesrv.state import Handler, NamesrvState, Peer, encoded
from aerobee.net.turns import Sliced
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.bodies.topics import TopicList
from aerobee.protocol.codes import AWAY_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.route import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from aerobee.protocol.headers.topic import GetTopicsByClusterRequestHeader
from aerobee.telemetry.stdlog import get_log

_log = get_log("namesrv")


class TopicHandlers:
    """Answers requests for lists, deletions and permissions."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_broker_cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }

    def get_broker_cluster_info(self, peer: Peer, command: Command) -> Sliced:
        routes = self._state.routes
        away = routes.away_groups() if AWAY_FIELD in command.ext else {}
        ext = {AWAY_FIELD: dumps(away).decode()} if away else None
        return encoded(command, ClusterInfo(routes.brokers(), routes.clusters()), ext)

    def get_all_topics(self, peer: Peer, command: Command) -> Command | Sliced:
        topics: Sequence[str] = self._state.routes.topics()
        if AWAY_FIELD in command.ext:
            topics = sorted({*topics, *self._state.routes.declared.topics()})
        return self._list(command, self._state.config.enable_all_topic_list, topics)

    def get_topics_by_cluster(self, peer: Peer, command: Command) -> Command | Sliced:
        if not self._state.config.enable_topic_list:
            return _disabled(command)
        header = decode_header(GetTopicsByClusterRequestHeader, command)
        return self._list(command, True, self._state.routes.topics_of_cluster(header.cluster))

    def get_system_topics(self, peer: Peer, command: Command) -> Command:
        """List the topics that are named after clusters and brokers, and tell which broker knows the others."""
        routes = self._state.routes
        names = {name for cluster, brokers in routes.clusters().items() for name in (cluster, *brokers)}
        first = next(iter(routes.brokers().values()), None)
        addr = first.address() if first else None
        return response(command, body=TopicList(tuple(sorted(names)), addr).encode())

    def get_unit_topics(self, peer: Peer, command: Command) -> Command | Sliced:
        return self._units(command, self._state.routes.unit_topics(unit=True))

    def get_unit_sub_topics(self, peer: Peer, command: Command) -> Command | Sliced:
        return self._units(command, self._state.routes.unit_topics(unit_sub=True))

    def get_unit_sub_ununit_topics(self, peer: Peer, command: Command) -> Command | Sliced:
        return self._units(command, self._state.routes.unit_topics(unit=False, unit_sub=True))

    def _units(self, command: Command, topics: Sequence[str]) -> Command | Sliced:
        return self._list(command, self._state.config.enable_topic_list, topics)

    def _list(self, command: Command, enabled: bool, topics: Sequence[str]) -> Command | Sliced:
        if not enabled:
            return _disabled(command)
        return encoded(command, TopicList(tuple(topics)))

    def register_topic(self, peer: Peer, command: Command) -> Command:
        header = decode_header(RegisterTopicRequestHeader, command)
        problem = topic_problem(header.topic)
        if problem is not None:
            return response(command, ResponseCode.INVALID_PARAMETER, remark=problem)
        if command.body:
            route = TopicRouteData.from_json(loads_object(command.body))
            if route.queue_datas and not self._state.routes.register_topic(header.topic, route.queue_datas):
                _log.warning(
                    "ignored a topic of an unknown broker",
                    topic=header.topic,
                    peer=peer.remote_address,
                )
        return response(command)

    def delete_topic(self, peer: Peer, command: Command) -> Command:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, command)
        self._state.routes.delete_topic(header.topic, header.cluster_name or None)
        _log.info("topic deleted", topic=header.topic, cluster=header.cluster_name, peer=peer.remote_address)
        return response(command)

    def wipe_write_perm(self, peer: Peer, command: Command) -> Command:
        header = decode_header(WipeWritePermOfBrokerRequestHeader, command)
        count = self._state.routes.wipe_write_perm(header.broker_name)
        _log.info("write permission wiped", broker=header.broker_name, topics=count, peer=peer.remote_address)
        return response(command, header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, peer: Peer, command: Command) -> Command:
        header = decode_header(AddWritePermOfBrokerRequestHeader, command)
        count = self._state.routes.add_write_perm(header.broker_name)
        _log.info("write permission added", broker=header.broker_name, topics=count, peer=peer.remote_address)
        return response(command, header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))


def _disabled(command: Command) -> Command:
    return response(command, ResponseCode.SYSTEM_ERROR, remark="disable")
