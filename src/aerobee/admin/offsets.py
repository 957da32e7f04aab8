"""Resets the offsets of a group. A plan shows the change of each queue before it is carried out.

A broker with useServerSideResetOffset (on by default) takes every offset as planned, whether the group is connected or
not. The members learn of it with their next pull. Other brokers tell the connected members, and can reset by time only.
If the group has no members, its offsets are saved instead.

RocketMQ: DefaultMQAdminExtImpl.resetOffsetByTimestamp, resetOffsetByTimestampOld, resetOffsetByQueueId.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aerobee.admin.cluster import broker_settings
from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.groups import connection_of, require_group_exists
from aerobee.admin.topics import not_there
from aerobee.admin.values import Value
from aerobee.errors import InvalidArgumentError, TransportError
from aerobee.errors.codes import IllegalOperationError, QueryNotFoundError, SystemFailureError
from aerobee.model.route import TopicRoute
from aerobee.protocol.bodies.offsets import GetConsumerStatusBody
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.offset import (
    GetConsumerStatusRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

FIRST: Final = "first"
LAST: Final = "last"
# The three ways in which a reset is carried out.
BY_BROKER: Final = "broker"
BY_MEMBERS: Final = "members"
BY_COMMIT: Final = "commit"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target of a reset: `first`, `last`, the first message stored at a time or later, or an offset."""

    edge: str | None = None
    time_ms: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.edge, self.time_ms, self.offset)) != 1:
            raise InvalidArgumentError("a reset needs exactly one target: first, last, a time or an offset")
        if self.edge not in (None, FIRST, LAST):
            raise InvalidArgumentError(f"{self.edge!r} is neither {FIRST} nor {LAST}")

    def timestamp(self) -> int:
        """Return the target for brokers that can reset by time only. A negative time is the end."""
        if self.edge is not None:
            return 0 if self.edge == FIRST else -1
        return self.time_ms or 0


@dataclass(frozen=True, slots=True)
class QueueReset(Value):
    """The reset of one queue. `from_offset` is None if no offset is saved for the group."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    from_offset: int | None
    to_offset: int

    @property
    def replayed(self) -> int:
        """Return how many messages the group will get again. Deleted messages do not count."""
        if self.from_offset is None:
            return 0
        return max(0, min(self.from_offset, self.max_offset) - self.to_offset)

    @property
    def skipped(self) -> int:
        """Return how many messages the group has not consumed and will not get."""
        start = self.min_offset if self.from_offset is None else max(self.from_offset, self.min_offset)
        return max(0, self.to_offset - start)


@dataclass(frozen=True, slots=True)
class ResetPlan(Value):
    """The changes of a reset. `members` counts the connected consumers. `ways` tells the way of each broker."""

    group: str
    topic: str
    members: int
    ways: dict[str, str]
    queues: tuple[QueueReset, ...]

    @property
    def replayed(self) -> int:
        return sum(queue.replayed for queue in self.queues)

    @property
    def skipped(self) -> int:
        return sum(queue.skipped for queue in self.queues)


async def plan_reset(
    admin: AdminConnection, group: str, topic: str, target: ResetTarget, *, queue_id: int | None = None
) -> ResetPlan:
    """Return what the reset would do in each queue. Change nothing."""
    await require_group_exists(admin, group)
    places = await _readable(admin, topic)
    if queue_id is not None:
        places = [(broker, one) for broker, one in places if one == queue_id]
        if not places:
            raise InvalidArgumentError(f"topic {topic} has no queue {queue_id}")
    connection = await connection_of(admin, await admin.masters(), group)
    members = len(connection.connection_set) if connection else 0
    settings = await broker_settings(admin)
    ways = {}
    for broker, _ in places:
        here = settings.get(broker.name, {}).get("useServerSideResetOffset", "false").lower() == "true"
        ways[broker.name] = BY_BROKER if here else BY_MEMBERS if members else BY_COMMIT
    queues = await asyncio.gather(*(_planned(admin, group, topic, *place, target) for place in places))
    return ResetPlan(group, topic, members, ways, tuple(queues))


async def _readable(admin: AdminConnection, topic: str) -> list[tuple[KnownBroker, int]]:
    """Return every readable queue with its master. Raise TransportError if a master is away."""
    route = await admin.route(topic)
    if route is None:
        raise not_there(topic)
    masters = {one.name: one for one in await admin.masters()}
    found = []
    queues = TopicRoute.of(topic, route)
    for queue in queues.read_queues:
        name = queues.broker_of(queue)
        broker = masters.get(name)
        if broker is None:
            raise TransportError(f"broker {name} of topic {topic} has no master now")
        found.append((broker, queue.queue_id))
    return found


async def _planned(
    admin: AdminConnection, group: str, topic: str, broker: KnownBroker, queue_id: int, target: ResetTarget
) -> QueueReset:
    low_answer, high_answer = await asyncio.gather(
        admin.ask(
            broker.address, RequestCode.GET_MIN_OFFSET,
            GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, bname=broker.name),
        ),
        admin.ask(
            broker.address, RequestCode.GET_MAX_OFFSET,
            GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id, bname=broker.name),
        ),
    )  # fmt: skip
    low = decode_header(GetMinOffsetResponseHeader, low_answer).offset
    high = decode_header(GetMaxOffsetResponseHeader, high_answer).offset
    wanted = low if target.edge == FIRST else high
    if target.offset is not None:
        wanted = target.offset
    elif target.time_ms is not None:
        header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=target.time_ms, bname=broker.name)
        answer = await admin.ask(broker.address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        wanted = decode_header(SearchOffsetResponseHeader, answer).offset
    current = await committed(admin, group, topic, broker, queue_id)
    return QueueReset(broker.name, queue_id, low, high, current, min(max(wanted, low), high))


async def committed(admin: AdminConnection, group: str, topic: str, broker: KnownBroker, queue_id: int) -> int | None:
    """Return the offset saved for the group, or None."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False, bname=broker.name
    )
    try:
        answer = await admin.ask(broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except QueryNotFoundError:
        return None
    return decode_header(QueryConsumerOffsetResponseHeader, answer).offset


@dataclass(frozen=True, slots=True)
class MemberOffset(Value):
    """The offset that a member reports for one of its queues, and saves next."""

    client_id: str
    broker: str
    queue_id: int
    offset: int


async def consumer_status(admin: AdminConnection, group: str, topic: str) -> tuple[MemberOffset, ...]:
    """Return the offsets that the connected members report. Pull consumers and members that do not answer are missing.

    RocketMQ: DefaultMQAdminExtImpl.getConsumeStatus, which asks one broker, since members connect to all brokers. Here
    every broker is asked, since one that was started later may not know all members yet.
    """
    await require_group_exists(admin, group)
    header = GetConsumerStatusRequestHeader(topic=topic, group=group)

    async def ask(broker: KnownBroker) -> GetConsumerStatusBody:
        try:
            answer = await admin.ask(broker.address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        except SystemFailureError:
            # This is the answer if no member is connected.
            return GetConsumerStatusBody()
        return GetConsumerStatusBody.decode(answer.body)

    said, _ = await from_each(await admin.masters(), ask)
    found = {
        MemberOffset(client_id, queue.broker_name, queue.queue_id, offset)
        for _, body in said
        for client_id, offsets in body.consumer_table.items()
        for queue, offset in offsets.items()
        if queue.topic == topic
    }
    newest = {(one.client_id, one.broker, one.queue_id): one for one in sorted(found, key=lambda one: one.offset)}
    return tuple(newest[key] for key in sorted(newest))


async def reset_offsets(admin: AdminConnection, plan: ResetPlan, target: ResetTarget) -> None:
    """Carry out a plan. Raise IllegalOperationError before any change if a broker cannot do as planned."""
    told = [name for name, way in plan.ways.items() if way == BY_MEMBERS]
    whole = len({(one.broker, one.queue_id) for one in plan.queues}) == len(await _readable(admin, plan.topic))
    if told and (target.offset is not None or not whole):
        raise IllegalOperationError(
            f"broker {', '.join(told)} can only reset whole topics by time while members are connected",
            hint="Stop the consumers of the group first, or set useServerSideResetOffset=true on the broker.",
        )
    masters = {one.name: one for one in await admin.masters()}
    for name in told:
        header = ResetOffsetRequestHeader(
            group=plan.group, topic=plan.topic, timestamp=target.timestamp(), is_force=True
        )
        await admin.ask(masters[name].address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    rest = [queue for queue in plan.queues if plan.ways[queue.broker] != BY_MEMBERS]
    await asyncio.gather(*(_set(admin, plan, masters[queue.broker], queue, target) for queue in rest))


async def _set(
    admin: AdminConnection, plan: ResetPlan, broker: KnownBroker, queue: QueueReset, target: ResetTarget
) -> None:
    if plan.ways[broker.name] == BY_BROKER:
        header = ResetOffsetRequestHeader(
            group=plan.group,
            topic=plan.topic,
            queue_id=queue.queue_id,
            offset=queue.to_offset,
            timestamp=target.timestamp(),
            is_force=True,
        )
        await admin.ask(broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return
    commit = UpdateConsumerOffsetRequestHeader(
        consumer_group=plan.group,
        topic=plan.topic,
        queue_id=queue.queue_id,
        commit_offset=queue.to_offset,
        bname=broker.name,
    )
    await admin.ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
