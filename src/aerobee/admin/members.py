"""What the members of a group tell about themselves, and the offsets of one group for another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import connection_of, group_lag, require_group_exists
from aerobee.admin.values import Value
from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.errors.codes import IllegalOperationError
from aerobee.protocol.bodies.running import ConsumerRunningInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.group import GetConsumerRunningInfoRequestHeader
from aerobee.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from aerobee.protocol.versions import version_name


@dataclass(frozen=True, slots=True)
class MemberQueue(Value):
    """A queue that a member has. `waiting` counts the messages that it has received and not processed."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    waiting: int
    locked: bool
    last_pull_ms: int
    last_consume_ms: int


@dataclass(frozen=True, slots=True)
class MemberState(Value):
    """A connected consumer. `problem` is the reason why it did not tell more."""

    client_id: str
    address: str
    language: str
    version: str
    queues: tuple[MemberQueue, ...]
    properties: Mapping[str, str]
    stack: str | None
    problem: str | None = None
    # Topics with their filters. All members of a group must have the same ones, or messages are missed.
    subscriptions: Mapping[str, str] = field(default_factory=dict)


async def members_of(admin: AdminConnection, group: str, *, stack: bool = False) -> tuple[MemberState, ...]:
    """Return what each connected member tells, with its stacks of threads if asked for."""
    await require_group_exists(admin, group)
    masters = await admin.masters()
    found = await connection_of(admin, masters, group)
    if found is None:
        return ()

    async def state(client_id: str, address: str, language: str, version: int) -> MemberState:
        info, problem = None, None
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=stack)
        for broker in masters:
            try:
                answer = await admin.ask(broker.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
                info, problem = ConsumerRunningInfo.decode(answer.body), None
                break
            except AerobeeError as error:
                problem = error.message
        info = info or ConsumerRunningInfo()
        queues = [
            MemberQueue(
                queue.topic, queue.broker_name, queue.queue_id, at.commit_offset, at.cached_msg_count, at.locked,
                at.last_pull_timestamp, at.last_consume_timestamp,
            )
            for queue, at in info.mq_table.items()
        ]  # fmt: skip
        queues.sort(key=lambda one: (one.topic, one.broker, one.queue_id))
        subscribed = {one.topic: one.sub_string for one in info.subscription_set}
        return MemberState(
            client_id, address, language, version_name(version), tuple(queues), info.properties, info.jstack, problem,
            subscribed,
        )  # fmt: skip

    asked = (state(one.client_id, one.client_addr, one.language, one.version) for one in found.connection_set)
    return tuple(sorted(await asyncio.gather(*asked), key=lambda one: one.client_id))


@dataclass(frozen=True, slots=True)
class CloneQueue(Value):
    """A queue whose offset is cloned. `before` is the target's offset, None if it has none."""

    topic: str
    broker: str
    queue_id: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class ClonePlan(Value):
    """What a clone would do. `members` counts the connected members of the target."""

    source: str
    target: str
    members: int
    queues: tuple[CloneQueue, ...]


async def plan_clone(admin: AdminConnection, source: str, target: str, *, topic: str | None = None) -> ClonePlan:
    """Return which offsets of `source` would be saved for `target`, in one topic or in all but retry topics."""
    if source == target:
        raise InvalidArgumentError(f"{source} is both the source and the target")
    await require_group_exists(admin, source)
    await require_group_exists(admin, target)
    theirs = await group_lag(admin, source, topic=topic)
    ours = {
        (one.topic, one.broker, one.queue_id): one.consumer_offset for one in (await group_lag(admin, target)).queues
    }
    problems = theirs.problems
    if problems:
        raise TransportError("; ".join(problems))
    found = await connection_of(admin, await admin.masters(), target)
    queues = tuple(
        CloneQueue(
            one.topic, one.broker, one.queue_id, ours.get((one.topic, one.broker, one.queue_id)), one.consumer_offset
        )
        for one in theirs.queues
        if not one.topic.startswith("%RETRY%") and one.consumer_offset >= 0
    )
    return ClonePlan(source, target, 0 if found is None else len(found.connection_set), queues)


async def clone_offsets(admin: AdminConnection, plan: ClonePlan) -> None:
    """Save the offsets of a plan. Refused while the target has members, which would overwrite them."""
    if plan.members:
        raise IllegalOperationError(
            f"group {plan.target} has {plan.members} members, which would overwrite the offsets",
            hint="Stop its consumers first.",
        )
    masters = {one.name: one for one in await admin.masters()}
    for queue in plan.queues:
        broker = masters.get(queue.broker)
        if broker is None:
            raise TransportError(f"broker {queue.broker} has no master now")
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=plan.target,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=queue.after,
            bname=queue.broker,
        )
        await admin.ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
