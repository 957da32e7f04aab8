"""Requests about connected clients and their subscriptions. RocketMQ: AdminBrokerProcessor."""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.broker.answers import encoded
from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import GroupClient
from aerobee.broker.membership.subscriptions import Subscription
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced
from aerobee.protocol.bodies.groups import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
)
from aerobee.runtime.seams import Clock


class ClientAdmin:
    """Requests about producers, consumers and their subscriptions."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def consumers(self, channel: Channel, command: Command) -> Command | Sliced:
        header = decode_header(GetConsumerConnectionListRequestHeader, command)
        group = self._clients.group(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            return response(command, ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        body = ConsumerConnection(
            _connections(group.members.values()),
            {topic: subscription_data(one) for topic, one in group.subscriptions.items()},
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return encoded(command, body)

    def producers(self, channel: Channel, command: Command) -> Command | Sliced:
        header = decode_header(GetProducerConnectionListRequestHeader, command)
        members = self._clients.producers().get(header.producer_group)
        if members is None:
            remark = f"the producer group[{header.producer_group}] not exist"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        return encoded(command, ProducerConnection(_connections(members.values())))

    def all_producers(self, channel: Channel, command: Command) -> Sliced:
        """List all producers. The wall time of a heartbeat is computed from its age."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        table = {
            group: tuple(
                ProducerInfo(
                    member.client.client_id,
                    member.client.address,
                    member.client.language,
                    member.client.version,
                    now_ms - int((now_s - member.seen_s) * 1000),
                )
                for member in members.values()
            )
            for group, members in self._clients.producers().items()
        }
        return encoded(command, ProducerTableInfo(table))

    def subscription(self, channel: Channel, command: Command) -> Command:
        header = decode_header(QuerySubscriptionByConsumerRequestHeader, command)
        topic = header.topic or ""
        found = self._clients.subscription(header.group, topic)
        data = None if found is None else subscription_data(found)
        return response(command, body=QuerySubscriptionResponseBody(data, header.group, topic).encode())


def subscription_data(one: Subscription) -> SubscriptionData:
    """Return a subscription as bodies carry it."""
    return SubscriptionData(
        one.topic, one.expression, tuple(sorted(one.tags)), tuple(sorted(one.codes)), one.version,
        one.expression_type, one.class_filter_mode,
    )  # fmt: skip


def _connections(members: Iterable[GroupClient]) -> tuple[ClientConnection, ...]:
    return tuple(
        ClientConnection(one.client.client_id, one.client.address, one.client.language, one.client.version)
        for one in members
    )
