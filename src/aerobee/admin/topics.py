"""Topics over all brokers of a cluster: settings, queues and routes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.pending import Pending, pending_of
from aerobee.admin.values import Value
from aerobee.errors.codes import TopicExistError, TopicNotExistError
from aerobee.model.dialect import loads_object
from aerobee.model.names import is_dlq_topic, is_retry_topic, is_system_topic, require_topic
from aerobee.model.topic import GENERATION, PERM_READ, PERM_WRITE, TopicConfig, perm_text
from aerobee.protocol.bodies.groups import GroupList
from aerobee.protocol.bodies.offsets import TopicStatsTable
from aerobee.protocol.bodies.topics import TopicConfigSerializeWrapper
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.route import DeleteTopicFromNamesrvRequestHeader
from aerobee.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)

DEFAULT_QUEUES = 8
_ROUTED_TRIES = 100
_ROUTED_STEP_S = 0.03


@dataclass(frozen=True, slots=True)
class TopicSummary(Value):
    """One topic over all brokers. The queue counts are sums."""

    topic: str
    kind: str  # normal, retry, dlq or system
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicListing(Value):
    """All topics, and the brokers that could not be asked."""

    topics: tuple[TopicSummary, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSettings(Value):
    """A topic on one broker."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueStatus(Value):
    """The offsets of one queue."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp: int

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicDetails(Value):
    """Everything about one topic."""

    topic: str
    kind: str
    settings: tuple[TopicSettings, ...]
    queues: tuple[QueueStatus, ...]
    put_tps: float
    groups: tuple[str, ...]
    # Only for the topics in which delayed, timed and half messages wait.
    pending: tuple[Pending, ...]
    problems: tuple[str, ...]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


@dataclass(frozen=True, slots=True)
class RouteEntry(Value):
    """A topic's queues on one broker group."""

    cluster: str
    broker: str
    addresses: Mapping[int, str]
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The values that a create or update sets. None keeps the present value, or the default of a new topic."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None
    # `+name` to set, `-name` to remove.
    attributes: Mapping[str, str] | None = None

    def applied_to(self, current: TopicConfig) -> TopicConfig:
        """Return the topic as it would be, without attributes, which a request carries in another form."""
        return replace(
            current,
            attributes={},
            read_queue_nums=current.read_queue_nums if self.read_queues is None else self.read_queues,
            write_queue_nums=current.write_queue_nums if self.write_queues is None else self.write_queues,
            perm=current.perm if self.perm is None else self.perm,
            order=current.order if self.order is None else self.order,
        )


# -- look


async def list_topics(admin: AdminConnection, *, cluster: str | None = None) -> TopicListing:
    masters = await admin.masters(cluster=cluster, with_away=True)
    tables, problems = await from_each(masters, lambda broker: _table(admin, broker))
    return TopicListing(summaries(tables), tuple(problems))


def summaries(tables: Sequence[tuple[KnownBroker, Mapping[str, TopicConfig]]]) -> tuple[TopicSummary, ...]:
    """Return all topics of these brokers, by name."""
    system = {one.name for one, _ in tables} | {one.cluster for one, _ in tables}
    found: dict[str, TopicSummary] = {}
    for broker, table in tables:
        for name, config in table.items():
            kind = "system" if name in system else kind_of(name)
            known = found.get(name)
            found[name] = TopicSummary(
                name,
                kind,
                (*known.brokers, broker.name) if known else (broker.name,),
                config.read_queue_nums + (known.read_queues if known else 0),
                config.write_queue_nums + (known.write_queues if known else 0),
                config.perm | (known.perm if known else 0),
                config.order or (known is not None and known.order),
                {**(known.attributes if known else {}), **_attributes(config)},
            )
    return tuple(found[name] for name in sorted(found))


async def _table(admin: AdminConnection, broker: KnownBroker) -> dict[str, TopicConfig]:
    answer = await admin.ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG)
    return TopicConfigSerializeWrapper.decode(answer.body).topic_config_table


def kind_of(topic: str) -> str:
    """Return normal, retry, dlq or system, judging by the name."""
    if is_retry_topic(topic):
        return "retry"
    if is_dlq_topic(topic):
        return "dlq"
    return "system" if is_system_topic(topic) or topic.endswith("_REPLY_TOPIC") else "normal"


async def topic_details(admin: AdminConnection, topic: str) -> TopicDetails:
    masters = await admin.masters_of(topic)
    configs, problems = await from_each(masters, lambda broker: _config(admin, broker, topic))
    held = [(broker, config) for broker, config in configs if config is not None]
    if not held:
        raise not_there(topic, problems)
    brokers = [broker for broker, _ in held]
    stats, unreached = await from_each(brokers, lambda broker: _stats(admin, broker, topic))
    groups, _ = await from_each(brokers, lambda broker: _groups(admin, broker, topic))
    pending, untold = await pending_of(admin, brokers, topic)
    queues = [
        QueueStatus(queue.broker_name, queue.queue_id, ends.min_offset, ends.max_offset, ends.last_update_timestamp)
        for _, table in stats
        for queue, ends in table.offset_table.items()
    ]
    return TopicDetails(
        topic,
        kind_of(topic),
        tuple(_settings(broker, config) for broker, config in held),
        tuple(sorted(queues, key=lambda one: (one.broker, one.queue_id))),
        sum(table.topic_put_tps for _, table in stats),
        tuple(sorted({group for _, names in groups for group in names})),
        pending,
        (*problems, *unreached, *(one for one in untold if one not in unreached)),
    )


async def _config(admin: AdminConnection, broker: KnownBroker, topic: str) -> TopicConfig | None:
    try:
        header = GetTopicConfigRequestHeader(topic=topic)
        answer = await admin.ask(broker.address, RequestCode.GET_TOPIC_CONFIG, header)
    except TopicNotExistError:
        return None
    return TopicConfig.from_json(loads_object(answer.body), topic)


async def _stats(admin: AdminConnection, broker: KnownBroker, topic: str) -> TopicStatsTable:
    header = GetTopicStatsInfoRequestHeader(topic=topic)
    return TopicStatsTable.decode((await admin.ask(broker.address, RequestCode.GET_TOPIC_STATS_INFO, header)).body)


async def _groups(admin: AdminConnection, broker: KnownBroker, topic: str) -> tuple[str, ...]:
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    answer = await admin.ask(broker.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    return GroupList.decode(answer.body).group_list


def _settings(broker: KnownBroker, config: TopicConfig) -> TopicSettings:
    return TopicSettings(
        broker.name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.order,
        config.topic_filter_type,
        _attributes(config),
    )


def _attributes(config: TopicConfig) -> dict[str, str]:
    """Return the attributes that users set. The generation is given by the broker."""
    return {name: value for name, value in config.attributes.items() if name != GENERATION}


async def topic_route(admin: AdminConnection, topic: str) -> tuple[RouteEntry, ...]:
    route = await admin.route(topic)
    if route is None:
        raise not_there(topic, await admin.missing_from(topic))
    groups = {data.broker_name: data for data in route.broker_datas}
    return tuple(
        RouteEntry(
            groups[queues.broker_name].cluster if queues.broker_name in groups else "",
            queues.broker_name,
            dict(groups[queues.broker_name].broker_addrs) if queues.broker_name in groups else {},
            queues.read_queue_nums,
            queues.write_queue_nums,
            queues.perm,
        )
        for queues in sorted(route.queue_datas, key=lambda one: one.broker_name)
    )


def not_there(topic: str, problems: Sequence[str] = ()) -> TopicNotExistError:
    """Return the error for a topic that no broker has."""
    hint = "; ".join(problems) or "`aerobee topic list` lists the topics."
    words = f"topic {topic} is on no broker that answers" if problems else f"topic {topic} does not exist"
    return TopicNotExistError(words, code=ResponseCode.TOPIC_NOT_EXIST, hint=hint)


# -- change


async def create_topic(
    admin: AdminConnection, topic: str, change: TopicChange, *, cluster: str | None = None, broker: str | None = None
) -> tuple[TopicSettings, ...]:
    """Create a topic on the chosen brokers. Raise TopicExistError if one of them has it already."""
    require_topic(topic)
    masters = await admin.masters(cluster=cluster, broker=broker)
    current = await asyncio.gather(*(_config(admin, one, topic) for one in masters))
    held = [one.name for one, config in zip(masters, current, strict=True) if config is not None]
    if held:
        hint = "`aerobee topic update` changes it."
        where = ", ".join(held)
        raise TopicExistError(f"topic {topic} exists already on {where}", code=18, hint=hint)
    fresh = TopicConfig(topic, DEFAULT_QUEUES, DEFAULT_QUEUES, PERM_READ | PERM_WRITE)
    return await _put(admin, masters, {one.name: fresh for one in masters}, change)


async def _until_routed(admin: AdminConnection, topic: str, made: Sequence[TopicSettings]) -> None:
    """Wait until the name server has the new route, which brokers register a little later.

    A producer that asks earlier would take the topic for a new one and assume its queues, or go on writing to queues
    that are no longer writable.
    """
    wanted = {(one.broker, one.read_queues, one.write_queues, one.perm) for one in made}
    for _ in range(_ROUTED_TRIES):
        route = await admin.route(topic)
        if route is not None and wanted <= {
            (one.broker_name, one.read_queue_nums, one.write_queue_nums, one.perm) for one in route.queue_datas
        }:
            return
        await asyncio.sleep(_ROUTED_STEP_S)


@dataclass(frozen=True, slots=True)
class TopicUpdatePlan(Value):
    """The changes that an update would make."""

    topic: str
    brokers: tuple[str, ...]
    # In words, such as "read queues 8 to 4".
    changes: tuple[str, ...]
    # Messages in queues that would no longer be read.
    out_of_reach: int


async def plan_update(
    admin: AdminConnection, topic: str, change: TopicChange, *, cluster: str | None = None, broker: str | None = None
) -> TopicUpdatePlan:
    """Return what `update_topic` would change, and how many messages could no longer be read."""
    masters = await admin.masters(cluster=cluster, broker=broker)
    current = await asyncio.gather(*(_config(admin, one, topic) for one in masters))
    held = [(one, config) for one, config in zip(masters, current, strict=True) if config is not None]
    if not held:
        raise not_there(topic)
    changes: dict[str, None] = {}
    out_of_reach = 0
    for one, config in held:
        wanted = change.applied_to(config)
        for label, before, after in (
            ("read queues", config.read_queue_nums, wanted.read_queue_nums),
            ("write queues", config.write_queue_nums, wanted.write_queue_nums),
            ("permission", perm_text(config.perm), perm_text(wanted.perm)),
            ("order", config.order, wanted.order),
        ):
            if before != after:
                changes[f"{label} {before} to {after}"] = None
        if wanted.read_queue_nums < config.read_queue_nums:
            stats = await _stats(admin, one, topic)
            out_of_reach += sum(
                at.max_offset - at.min_offset
                for queue, at in stats.offset_table.items()
                if queue.queue_id >= wanted.read_queue_nums
            )
    for name, value in (change.attributes or {}).items():
        changes[f"attribute {name[1:]} = {value}" if name.startswith("+") else f"remove attribute {name[1:]}"] = None
    return TopicUpdatePlan(topic, tuple(one.name for one, _ in held), tuple(changes), out_of_reach)


async def update_topic(
    admin: AdminConnection, topic: str, change: TopicChange, *, cluster: str | None = None, broker: str | None = None
) -> tuple[TopicSettings, ...]:
    """Change a topic on the chosen brokers that have it. Values that are not named stay."""
    masters = await admin.masters(cluster=cluster, broker=broker)
    current = await asyncio.gather(*(_config(admin, one, topic) for one in masters))
    held = {one.name: config for one, config in zip(masters, current, strict=True) if config is not None}
    if not held:
        raise not_there(topic)
    return await _put(admin, [one for one in masters if one.name in held], held, change)


async def _put(
    admin: AdminConnection, masters: Sequence[KnownBroker], current: Mapping[str, TopicConfig], change: TopicChange
) -> tuple[TopicSettings, ...]:
    async def put(broker: KnownBroker) -> TopicSettings:
        wanted = change.applied_to(current[broker.name])
        await admin.ask(
            broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(wanted, change.attributes or {})
        )
        made = await _config(admin, broker, wanted.topic_name)
        return _settings(broker, made or wanted)

    made = tuple(await asyncio.gather(*(put(broker) for broker in masters)))
    await _until_routed(admin, next(iter(current.values())).topic_name, made)
    return made


def topic_header(wanted: TopicConfig, attributes: Mapping[str, str]) -> CreateTopicRequestHeader:
    """Return the request that creates or changes a topic. Attributes are `+name` to set and `-name` to remove."""
    words = (f"{name}={value}" if name.startswith("+") else name for name, value in attributes.items())
    return CreateTopicRequestHeader(
        topic=wanted.topic_name,
        default_topic="TBW102",
        read_queue_nums=wanted.read_queue_nums,
        write_queue_nums=wanted.write_queue_nums,
        perm=wanted.perm,
        topic_filter_type=wanted.topic_filter_type,
        topic_sys_flag=wanted.topic_sys_flag,
        order=wanted.order,
        attributes=",".join(words) or None,
    )


async def delete_topic(admin: AdminConnection, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
    """Delete a topic from every broker that has it, then from the name servers. Return the brokers' names."""
    masters = await admin.masters(cluster=cluster)
    current = await asyncio.gather(*(_config(admin, one, topic) for one in masters))
    held = [one for one, config in zip(masters, current, strict=True) if config is not None]
    if not held:
        raise not_there(topic)
    header = DeleteTopicRequestHeader(topic=topic)
    await asyncio.gather(*(admin.ask(one.address, RequestCode.DELETE_TOPIC_IN_BROKER, header) for one in held))
    await admin.ask_namesrvs(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
    )
    return tuple(one.name for one in held)
