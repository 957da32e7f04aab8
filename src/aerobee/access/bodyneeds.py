"""Needs of requests that say in their body what they are about. Large bodies are read in slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aerobee.access.policies import ResourceKind
from aerobee.access.rows import CREATE, SUB, UPDATE, AccessWorld, Need, Slowly, group, reading, topic
from aerobee.access.verdicts import Claim
from aerobee.errors import AerobeeError
from aerobee.model.dialect import loads_object
from aerobee.model.fields import str_of
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.groups import (
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupList,
)
from aerobee.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from aerobee.protocol.bodies.lock import LockBatchRequestBody
from aerobee.protocol.bodies.pop import BatchAckMessageRequestBody
from aerobee.protocol.bodies.topics import CreateTopicListRequestBody
from aerobee.protocol.command import Command


def _once(needs: Iterable[Need]) -> list[Need]:
    return list(dict.fromkeys(needs))


def heartbeat_needs(command: Command, world: AccessWorld) -> Slowly:
    """Return what the consumers in a heartbeat need. Producers need nothing until they send."""
    data = yield from HeartbeatData.decode_slices(command.body)
    found: list[Need] = []
    for consumer in data.consumer_data_set:
        found.append(group(consumer.group_name, SUB))
        for one in consumer.subscription_data_set:
            found.append(topic(world, one.topic, SUB))
        yield
    return _once(found)


def lock_needs(command: Command, world: AccessWorld) -> Slowly:
    """Return what locking or unlocking queues needs."""
    body = yield from LockBatchRequestBody.decode_slices(command.body)
    return [
        group(body.consumer_group, SUB),
        *(topic(world, name, SUB) for name in sorted({queue.topic for queue in body.mq_set})),
    ]


def check_needs(command: Command, world: AccessWorld) -> list[Need]:
    """Return what CHECK_CLIENT_CONFIG needs."""
    body = CheckClientRequestBody.decode(command.body)
    found = [group(body.group, SUB)]
    if body.subscription_data is not None:
        found.append(topic(world, body.subscription_data.topic, SUB))
    return found


def assignment_needs(command: Command, world: AccessWorld) -> list[Need]:
    """Return what QUERY_ASSIGNMENT needs."""
    body = QueryAssignmentRequestBody.decode(command.body)
    return [group(body.consumer_group, SUB), topic(world, body.topic, SUB)]


def mode_needs(command: Command, world: AccessWorld) -> list[Need]:
    """Return what SET_MESSAGE_REQUEST_MODE needs."""
    body = SetMessageRequestModeRequestBody.decode(command.body)
    return [group(body.consumer_group, UPDATE), topic(world, body.topic, UPDATE, retry=(UPDATE,))]


def topic_list_needs(command: Command, world: AccessWorld) -> Slowly:
    """Return what making or changing several topics needs."""
    body = yield from CreateTopicListRequestBody.decode_slices(command.body)
    # A list without an entry asks for a topic without a name, which no literal entry matches.
    names = sorted({one.topic_name for one in body.topic_config_list}) or [""]
    return [(Claim(ResourceKind.TOPIC, one, (CREATE, UPDATE) if world.has_topic(one) else (CREATE,)),) for one in names]


def _group_change(world: AccessWorld, name: str) -> Need:
    return (Claim(ResourceKind.GROUP, name, (CREATE, UPDATE) if world.has_group(name) else (CREATE,)),)


def group_needs(command: Command, world: AccessWorld) -> list[Need]:
    """Return what making or changing a group needs."""
    return [_group_change(world, SubscriptionGroupConfig.from_json(loads_object(command.body)).group_name)]


def group_list_needs(command: Command, world: AccessWorld) -> Slowly:
    """Return what making or changing several groups needs."""
    body = yield from SubscriptionGroupList.decode_slices(command.body)
    return [_group_change(world, one) for one in sorted({one.group_name for one in body.group_config_list}) or [""]]


def ack_needs(command: Command, world: AccessWorld) -> list[Need]:
    """Return what acknowledging several messages at once needs."""
    body = BatchAckMessageRequestBody.decode(command.body)
    # One that names nothing asks for a group without a name, which no literal entry matches.
    return _once(_of_acks(body, world)) or [group("", SUB)]


def _of_acks(body: BatchAckMessageRequestBody, world: AccessWorld) -> Iterator[Need]:
    for ack in body.acks:
        yield from reading(world, ack.topic, ack.consumer_group)


def lite_control_needs(command: Command, world: AccessWorld) -> list[Need]:
    """Return what LITE_SUBSCRIPTION_CTL needs. RocketMQ: LiteSubscriptionCtlRequestBody."""
    data = loads_object(command.body)
    entries = data.get("subscriptionSet")
    if not isinstance(entries, list) or not entries or not all(isinstance(one, dict) for one in entries):
        raise AerobeeError("the request names no subscription")
    found: list[Need] = []
    for one in entries:
        found += [group(str_of(one, "group"), SUB), topic(world, str_of(one, "topic"), SUB)]
    return _once(found)
