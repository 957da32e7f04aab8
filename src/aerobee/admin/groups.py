"""Consumer groups over all brokers of a cluster: settings, members and progress. And connected producers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.pops import in_flight
from aerobee.admin.values import Value
from aerobee.errors.codes import ConsumerError, GroupNotExistError, IllegalOperationError
from aerobee.model.dialect import dumps
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import SYSTEM_GROUP_PREFIX, require_group
from aerobee.protocol.bodies.groups import (
    ConsumerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionGroupWrapper,
)
from aerobee.protocol.bodies.offsets import ConsumeStats
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
)

# Every broker has these groups from the start. RocketMQ: SubscriptionGroupManager.init.
_SYSTEM_GROUPS = frozenset(
    (
        "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupSummary(Value):
    """One group over all brokers."""

    group: str
    is_system: bool
    brokers: tuple[str, ...]
    members: int
    message_model: str | None
    consume_enabled: bool
    retry_max_times: int


@dataclass(frozen=True, slots=True)
class GroupListing(Value):
    """All groups, and the brokers that could not be asked."""

    groups: tuple[GroupSummary, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member(Value):
    """A connected client."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class TopicSubscription(Value):
    """The filter of a group for one topic."""

    topic: str
    expression: str
    expression_type: str


@dataclass(frozen=True, slots=True)
class GroupSettings(Value):
    """A group on one broker."""

    broker: str
    consume_enabled: bool
    broadcast_enabled: bool
    orderly: bool
    retry_queues: int
    retry_max_times: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueLag(Value):
    """The progress of a group in one queue."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    in_flight: int
    last_consumed_timestamp: int

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupLag(Value):
    """The progress of a group in all its queues."""

    group: str
    queues: tuple[QueueLag, ...]
    consume_tps: float
    problems: tuple[str, ...]

    @property
    def lag(self) -> int | None:
        """Return the number of messages not consumed yet, or None if the group has no offset in any topic."""
        return sum(queue.lag for queue in self.queues) if self.queues else None


@dataclass(frozen=True, slots=True)
class GroupDetails(Value):
    """Everything about one group."""

    group: str
    settings: tuple[GroupSettings, ...]
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    members: tuple[Member, ...]
    subscriptions: tuple[TopicSubscription, ...]
    progress: GroupLag


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The values that a create or update sets. None keeps the present value."""

    consume_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    attributes: Mapping[str, str] | None = None

    def applied_to(self, current: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        names = (
            "consume_enable", "consume_broadcast_enable", "consume_message_orderly",
            "retry_queue_nums", "retry_max_times",
        )  # fmt: skip
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(current, attributes=dict(self.attributes or {}), **given)


def is_system_group(group: str) -> bool:
    return group in _SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


# -- look


async def list_groups(admin: AdminConnection, *, cluster: str | None = None, with_system: bool = False) -> GroupListing:
    masters = await admin.masters(cluster=cluster, with_away=True)
    tables, problems = await from_each(masters, lambda broker: _table(admin, broker))
    names = sorted({name for _, table in tables for name in table if with_system or not is_system_group(name)})
    connections = await asyncio.gather(*(connection_of(admin, masters, name) for name in names))
    found = []
    for name, connection in zip(names, connections, strict=True):
        held = [(broker.name, table[name]) for broker, table in tables if name in table]
        found.append(
            GroupSummary(
                name,
                is_system_group(name),
                tuple(broker for broker, _ in held),
                len(connection.connection_set) if connection else 0,
                connection.message_model if connection else None,
                all(config.consume_enable for _, config in held),
                max(config.retry_max_times for _, config in held),
            )
        )
    return GroupListing(tuple(found), tuple(problems))


async def _table(admin: AdminConnection, broker: KnownBroker) -> dict[str, SubscriptionGroupConfig]:
    answer = await admin.ask(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table


async def connection_of(admin: AdminConnection, masters: list[KnownBroker], group: str) -> ConsumerConnection | None:
    """Return the members. They connect to every broker, so the longest list is taken."""

    async def ask(broker: KnownBroker) -> ConsumerConnection | None:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        try:
            answer = await admin.ask(broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ConsumerError:
            return None
        return ConsumerConnection.decode(answer.body)

    said, _ = await from_each(masters, ask)
    found = [one for _, one in said if one is not None]
    return max(found, key=lambda one: len(one.connection_set), default=None)


async def group_details(admin: AdminConnection, group: str, settings: tuple[GroupSettings, ...] = ()) -> GroupDetails:
    masters = await admin.masters(with_away=True)
    problems: list[str] = []
    if not settings:
        tables, problems = await from_each(masters, lambda broker: _table(admin, broker))
        settings = tuple(settings_on(broker.name, table[group]) for broker, table in tables if group in table)
    connection = await connection_of(admin, masters, group) or ConsumerConnection()
    if not settings and not connection.connection_set:
        raise not_there(group, problems)
    members = (Member(one.client_id, one.client_addr, one.language, one.version) for one in connection.connection_set)
    subscriptions = (
        TopicSubscription(topic, data.sub_string, data.expression_type)
        for topic, data in connection.subscription_table.items()
    )
    return GroupDetails(
        group,
        settings,
        connection.consume_type,
        connection.message_model,
        connection.consume_from_where,
        tuple(sorted(members, key=lambda one: one.client_id)),
        tuple(sorted(subscriptions, key=lambda one: one.topic)),
        await group_lag(admin, group),
    )


def settings_on(broker: str, config: SubscriptionGroupConfig) -> GroupSettings:
    """Return the settings that a broker has of a group."""
    return GroupSettings(
        broker,
        config.consume_enable,
        config.consume_broadcast_enable,
        config.consume_message_orderly,
        config.retry_queue_nums,
        config.retry_max_times,
        dict(config.attributes),
    )


async def group_lag(admin: AdminConnection, group: str, *, topic: str | None = None) -> GroupLag:
    """Return how far the group is behind in each queue, in one topic or in all its topics.

    A broker names the topics in which the group has an offset there. It may have none yet on one of the brokers of a
    topic, or in a topic that it has just subscribed to. So each broker is asked about those topics by name.
    """
    masters = await (admin.masters(with_away=True) if topic is None else admin.masters_of(topic))

    async def stats_at(broker: KnownBroker, one: str | None) -> ConsumeStats:
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=one)
        return ConsumeStats.decode((await admin.ask(broker.address, RequestCode.GET_CONSUME_STATS, header)).body)

    said, problems = await from_each(masters, lambda broker: stats_at(broker, topic))
    if topic is None:
        named = {broker: {queue.topic for queue in stats.offset_table} for broker, stats in said}
        connection = await connection_of(admin, masters, group)
        every = set().union(*named.values(), connection.subscription_table if connection is not None else ())
        for one in sorted(every):
            others = [broker for broker, topics in named.items() if one not in topics]
            more, unreached = await from_each(others, functools.partial(stats_at, one=one))
            said += more
            problems += (problem for problem in unreached if problem not in problems)
    held = {
        (one.topic, one.broker, one.queue_id): one.in_flight
        for one in (await in_flight(admin, group=group, messages=0)).queues
    }
    queues = [
        QueueLag(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            at.broker_offset,
            at.consumer_offset,
            max(0, at.pull_offset - at.consumer_offset) + held.get((queue.topic, queue.broker_name, queue.queue_id), 0),
            at.last_timestamp,
        )
        for _, stats in said
        for queue, at in stats.offset_table.items()
    ]
    queues.sort(key=lambda one: (one.topic, one.broker, one.queue_id))
    return GroupLag(group, tuple(queues), sum(stats.consume_tps for _, stats in said), tuple(problems))


async def require_group_exists(admin: AdminConnection, group: str) -> None:
    """Raise GroupNotExistError if no broker has the group."""
    tables, problems = await from_each(await admin.masters(with_away=True), lambda broker: _table(admin, broker))
    if not any(group in table for _, table in tables):
        raise not_there(group, problems)


def not_there(group: str, problems: list[str] | tuple[str, ...] = ()) -> GroupNotExistError:
    hint = "; ".join(problems) or "`aerobee group list` lists the groups."
    words = f"group {group} is on no broker that answers" if problems else f"group {group} does not exist"
    return GroupNotExistError(words, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, hint=hint)


@dataclass(frozen=True, slots=True)
class ConnectedProducer(Value):
    """A producer of one group, with the brokers that it is connected to."""

    group: str
    client_id: str
    address: str
    language: str
    version: int
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProducerList(Value):
    """The connected producers, and the brokers that could not be asked."""

    producers: tuple[ConnectedProducer, ...]
    problems: tuple[str, ...]


async def list_producers(
    admin: AdminConnection, *, group: str | None = None, cluster: str | None = None
) -> ProducerList:
    """Return the connected producers of one producer group, or of all. RocketMQ: ProducerConnectionSubCommand."""

    async def ask(broker: KnownBroker) -> dict[str, tuple[ProducerInfo, ...]]:
        answer = await admin.ask(broker.address, RequestCode.GET_ALL_PRODUCER_INFO, GetAllProducerInfoRequestHeader())
        return ProducerTableInfo.decode(answer.body).data

    tables, problems = await from_each(await admin.masters(cluster=cluster, with_away=True), ask)
    found: dict[tuple[str, str], ConnectedProducer] = {}
    for broker, table in tables:
        for name, clients in table.items():
            for one in clients if group in (None, name) else ():
                known = found.get((name, one.client_id))
                brokers = (*known.brokers, broker.name) if known else (broker.name,)
                found[name, one.client_id] = ConnectedProducer(
                    name, one.client_id, one.remote_ip, one.language, one.version, brokers
                )
    return ProducerList(tuple(found[key] for key in sorted(found)), tuple(problems))


# -- change


async def create_group(
    admin: AdminConnection, group: str, change: GroupChange, *, cluster: str | None = None, broker: str | None = None
) -> tuple[GroupSettings, ...]:
    """Create a group on the chosen brokers. Raise IllegalOperationError if one of them has it already."""
    require_group(group)
    masters = await admin.masters(cluster=cluster, broker=broker)
    tables = dict(zip((one.name for one in masters), await _tables(admin, masters), strict=True))
    held = [name for name, table in tables.items() if group in table]
    if held:
        hint = "`aerobee group update` changes it."
        raise IllegalOperationError(f"group {group} exists already on {', '.join(held)}", hint=hint)
    return await _put(admin, masters, {one.name: SubscriptionGroupConfig(group) for one in masters}, change)


@dataclass(frozen=True, slots=True)
class GroupUpdatePlan(Value):
    """The changes that an update would make."""

    group: str
    brokers: tuple[str, ...]
    # In words, such as "retries 16 to 3".
    changes: tuple[str, ...]
    members: int


async def plan_update(
    admin: AdminConnection, group: str, change: GroupChange, *, cluster: str | None = None, broker: str | None = None
) -> GroupUpdatePlan:
    """Return what `update_group` would change."""
    masters = await admin.masters(cluster=cluster, broker=broker)
    tables = await _tables(admin, masters)
    held = [(one, table[group]) for one, table in zip(masters, tables, strict=True) if group in table]
    if not held:
        raise not_there(group)
    changes: dict[str, None] = {}
    for _, config in held:
        wanted = change.applied_to(config)
        for label, before, after in (
            ("may consume", config.consume_enable, wanted.consume_enable),
            ("may consume by broadcast", config.consume_broadcast_enable, wanted.consume_broadcast_enable),
            ("consumes in order", config.consume_message_orderly, wanted.consume_message_orderly),
            ("retry queues", config.retry_queue_nums, wanted.retry_queue_nums),
            ("retries", config.retry_max_times, wanted.retry_max_times),
        ):
            if before != after:
                changes[f"{label} {before} to {after}".replace("True", "yes").replace("False", "no")] = None
    for name, value in (change.attributes or {}).items():
        changes[f"attribute {name[1:]} = {value}" if name.startswith("+") else f"remove attribute {name[1:]}"] = None
    connection = await connection_of(admin, masters, group)
    members = 0 if connection is None else len(connection.connection_set)
    return GroupUpdatePlan(group, tuple(one.name for one, _ in held), tuple(changes), members)


async def update_group(
    admin: AdminConnection, group: str, change: GroupChange, *, cluster: str | None = None, broker: str | None = None
) -> tuple[GroupSettings, ...]:
    """Change a group on the chosen brokers that have it. Values that are not named stay."""
    masters = await admin.masters(cluster=cluster, broker=broker)
    tables = await _tables(admin, masters)
    held = {one.name: table[group] for one, table in zip(masters, tables, strict=True) if group in table}
    if not held:
        raise not_there(group)
    return await _put(admin, [one for one in masters if one.name in held], held, change)


async def _tables(admin: AdminConnection, masters: list[KnownBroker]) -> list[dict[str, SubscriptionGroupConfig]]:
    return list(await asyncio.gather(*(_table(admin, one) for one in masters)))


async def _put(
    admin: AdminConnection,
    masters: list[KnownBroker],
    current: Mapping[str, SubscriptionGroupConfig],
    change: GroupChange,
) -> tuple[GroupSettings, ...]:
    async def put(broker: KnownBroker) -> GroupSettings:
        wanted = change.applied_to(current[broker.name])
        body = dumps(wanted.to_json())
        await admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        made = (await _table(admin, broker)).get(wanted.group_name, wanted)
        return settings_on(broker.name, made)

    return tuple(await asyncio.gather(*(put(broker) for broker in masters)))


async def delete_group(
    admin: AdminConnection, group: str, *, cluster: str | None = None, keep_offsets: bool = False
) -> tuple[str, ...]:
    """Delete a group with its offsets from every broker that has it. Return the brokers' names."""
    masters = await admin.masters(cluster=cluster)
    tables = await _tables(admin, masters)
    held = [one for one, table in zip(masters, tables, strict=True) if group in table]
    if not held:
        raise not_there(group)
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=not keep_offsets)
    await asyncio.gather(*(admin.ask(one.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header) for one in held))
    return tuple(one.name for one in held)
