"""HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG and GET_CONSUMER_LIST_BY_GROUP.

RocketMQ: ClientManageProcessor, ConsumerManageProcessor.getConsumerListByGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.effects import ClientEffects
from aerobee.broker.membership.filters import ConsumerFilters
from aerobee.broker.membership.members import (
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    Client,
    GroupHeartbeat,
)
from aerobee.broker.membership.subscriptions import TAG, Subscription
from aerobee.broker.refusal import filters_are_off
from aerobee.broker.topics import Catalog, ensure_topic
from aerobee.errors import InvalidArgumentError
from aerobee.model.names import client_id_problem, group_problem, retry_topic
from aerobee.model.topic import TOPIC_UNIT_SUB
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.groups import ConsumerList
from aerobee.protocol.bodies.heartbeat import (
    CONSUME_FROM_LAST_OFFSET,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from aerobee.protocol.codes import FOR_USER_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from aerobee.runtime.seams import Clock

# RocketMQ: MixAll.IS_SUPPORT_HEART_BEAT_V2, IS_SUB_CHANGE.
SUPPORTS_V2: Final = "IS_SUPPORT_HEART_BEAT_V2"
SUB_CHANGED: Final = "IS_SUB_CHANGE"
# Topics of one consumer group. Apache has no bound; each of its heartbeats goes through all of them.
SUBSCRIPTIONS_MAX: Final = 4096
_SLICE: Final = 20
# A full heartbeat of version 1 has no fingerprint, and differs from every one that a version 2 may bring.
_VERSION_1: Final = -1


class ClientHandlers:
    """The requests by which clients register. `config` returns the settings in force."""

    def __init__(
        self,
        catalog: Catalog,
        clients: Clients,
        effects: ClientEffects,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        filters: ConsumerFilters,
    ) -> None:
        self._catalog = catalog
        self._clients = clients
        self._effects = effects
        self._clock = clock
        self._config = config
        self._filters = filters
        effects.on_group_gone = filters.unregister

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
        }

    def heartbeat(self, channel: Channel, command: Command) -> Sliced:
        return Sliced(self._heartbeat(channel, command))

    def _heartbeat(self, channel: Channel, command: Command) -> Slices:
        data = yield from HeartbeatData.decode_slices(command.body)
        if not data.client_id:
            raise InvalidArgumentError("a heartbeat names no client", code=ResponseCode.SYSTEM_ERROR)
        problem = client_id_problem(data.client_id)
        if problem is not None:
            raise InvalidArgumentError(problem, code=ResponseCode.SYSTEM_ERROR)
        client = Client(
            channel.id, data.client_id, command.language, command.version, channel.remote_address,
            channel.user and command.ext.get(FOR_USER_FIELD, channel.user),
        )  # fmt: skip
        channel.client_id = data.client_id
        version_2 = data.heartbeat_fingerprint != 0
        # A heartbeat of version 1 is answered "changed", as Apache answers it.
        changed = not version_2
        for consumer in data.consumer_data_set:
            subscriptions = yield from _subscriptions(consumer)
            changed = (yield from self._register(client, data, consumer, subscriptions)) or changed
            yield
        now_s = self._clock.monotonic()
        for number, producer in enumerate(data.producer_data_set):
            if group_problem(producer.group_name) is not None:
                continue
            self._clients.register_producer(producer.group_name, client, now_s)
            if number % _SLICE == 0:
                yield
        return response(command, ext={SUPPORTS_V2: "true", SUB_CHANGED: "true" if changed else "false"})

    def _register(
        self, client: Client, data: HeartbeatData, consumer: ConsumerData, subscriptions: tuple[Subscription, ...]
    ) -> Generator[None, None, bool]:
        """Register one consumer group of a heartbeat. Tell whether its client should send a full one next."""
        if self._config().reject_pull_consumer_enable and consumer.consume_type == CONSUME_ACTIVELY:
            return False
        group = self._catalog.group(consumer.group_name)
        if group is None:
            return False
        ordered = any(self._is_ordered(one.topic) for one in subscriptions)
        short = data.heartbeat_fingerprint != 0 and data.without_sub
        ensure_topic(
            self._catalog,
            retry_topic(consumer.group_name),
            group.retry_queue_nums,
            TOPIC_UNIT_SUB if consumer.unit_mode else 0,
            # A short heartbeat does not tell what is subscribed.
            order=None if short else ordered,
        )
        _, effects = self._clients.register_consumer(
            GroupHeartbeat(
                consumer.group_name,
                consumer.consume_type or CONSUME_PASSIVELY,
                consumer.message_model or CLUSTERING,
                consumer.consume_from_where or CONSUME_FROM_LAST_OFFSET,
                subscriptions,
            ),
            client,
            self._clock.monotonic(),
            notify=group.notify_consumer_ids_changed_enable,
            with_subscriptions=not short,
        )
        if not short:
            yield from self._filters.register_slices(consumer.group_name, subscriptions)
        self._effects.perform(effects)
        changed = self._clients.heartbeat_changed(
            consumer.group_name, data.heartbeat_fingerprint if data.heartbeat_fingerprint else _VERSION_1
        )
        living = self._clients.group(consumer.group_name)
        # After a restart of the broker a short heartbeat may be the first: its subscriptions are not known here. Apache
        # says "unchanged" and serves the client by what its pulls carry.
        return changed or (short and living is not None and not living.subscriptions)

    def _is_ordered(self, topic: str) -> bool:
        config = self._catalog.find(topic)
        return config is not None and config.order

    def unregister(self, channel: Channel, command: Command) -> Command:
        header = decode_header(UnregisterClientRequestHeader, command)
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, channel.id)
        if header.consumer_group is not None:
            group = self._catalog.group(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            effects = self._clients.unregister_consumer(header.consumer_group, channel.id, notify=notify)
            self._effects.perform(effects)
        return response(command)

    def check_config(self, channel: Channel, command: Command) -> Command:
        """Tell whether a subscription can be used: tags always, other expressions where filters are served."""
        body = CheckClientRequestBody.decode(command.body)
        wanted = body.subscription_data
        if wanted is None or wanted.expression_type in ("", TAG):
            return response(command)
        if not self._config().enable_property_filter:
            remark = filters_are_off(wanted.expression_type)
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        try:
            self._filters.compile(wanted.sub_string, wanted.expression_type)
        except InvalidArgumentError as error:
            return response(command, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=error.message)
        return response(command)

    def consumer_list(self, channel: Channel, command: Command) -> Command:
        group = decode_header(GetConsumerListByGroupRequestHeader, command).consumer_group
        ids = self._clients.consumer_ids(group)
        if not ids:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {group}")
        return response(command, body=ConsumerList(tuple(ids)).encode())


def _subscriptions(consumer: ConsumerData) -> Generator[None, None, tuple[Subscription, ...]]:
    count = len(consumer.subscription_data_set)
    if count > SUBSCRIPTIONS_MAX:
        remark = f"group {consumer.group_name} subscribes to {count} topics, {SUBSCRIPTIONS_MAX} are the most"
        raise InvalidArgumentError(remark, code=ResponseCode.SYSTEM_ERROR)
    found = []
    for one in consumer.subscription_data_set:
        found.append(subscription_of(one))
        yield
    return tuple(found)


def subscription_of(data: SubscriptionData) -> Subscription:
    """Return the subscription that a heartbeat carries."""
    return Subscription.from_json(data.to_json())
