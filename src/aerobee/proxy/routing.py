"""QueryRoute, QueryAssignment, Heartbeat and SyncLiteSubscription: the calls about routes and clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aerobee.model.topic import PERM_READ, PERM_WRITE
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import (
    PbHeartbeatRequest,
    PbHeartbeatResponse,
    PbQueryAssignmentRequest,
    PbQueryAssignmentResponse,
    PbQueryRouteRequest,
    PbQueryRouteResponse,
    PbSyncLiteSubscriptionRequest,
    PbSyncLiteSubscriptionResponse,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbAssignment, PbBroker, PbEndpoints, PbMessageQueue, PbResource
from aerobee.proxy.backend import Route, route_or_refuse
from aerobee.proxy.rules import NO_LITE_TOPICS, accepted_types, group_of, topic_of
from aerobee.proxy.status import OK, RefusedCallError

if TYPE_CHECKING:
    from aerobee.proxy.service import Caller

# A client beats every ten seconds. What comes sooner is not told to the brokers: after a second, and later for one with
# large settings, which each heartbeat repeats. The largest make it nine seconds.
_BEAT_S: Final = 1.0
_BEAT_BYTES_PER_S: Final = 32_768


def _endpoints(endpoints: PbEndpoints | None) -> PbEndpoints:
    """Return the endpoints that the client came by: every front serves the whole cluster."""
    if (
        endpoints is None
        or not endpoints.addresses
        or endpoints.scheme not in (enums.IPV4, enums.IPV6, enums.DOMAIN_NAME)
    ):
        raise RefusedCallError(Code.ILLEGAL_ACCESS_POINT, "the endpoints of the request name no address")
    if len(endpoints.addresses) > 100:
        raise RefusedCallError(Code.ILLEGAL_ACCESS_POINT, "the endpoints of the request are too many")
    return endpoints


async def query_route(caller: Caller, request: PbQueryRouteRequest) -> bytes:
    """Return the queues of a topic."""
    topic, endpoints = topic_of(request.topic), _endpoints(request.endpoints)
    route = await route_or_refuse(caller.backend, topic)
    types = accepted_types(await caller.backend.message_type(topic, route))
    queues = _queues(route, PbResource("", topic), endpoints, types)
    return await caller.in_parts(queues, lambda status, part: PbQueryRouteResponse(status, part))


def _queues(route: Route, topic: PbResource, endpoints: PbEndpoints, types: list[int]) -> Iterator[PbMessageQueue]:
    """Yield the queues of every broker: those to read only, to write only, and both. RocketMQ: RouteActivity."""
    for one in route.data.queue_datas:
        if one.broker_name not in route.addresses:
            continue
        broker = PbBroker(one.broker_name, 0, endpoints)
        read = one.read_queue_nums if one.perm & PERM_READ else 0
        write = one.write_queue_nums if one.perm & PERM_WRITE else 0
        both = min(read, write)
        counts = ((enums.READ, read - both), (enums.WRITE, write - both), (enums.READ_WRITE, both))
        queue_id = 0
        for permission, count in counts:
            for _ in range(count):
                yield PbMessageQueue(topic, queue_id, permission, broker, types)
                queue_id += 1


async def query_assignment(caller: Caller, request: PbQueryAssignmentRequest) -> bytes:
    """Return what a push consumer is to receive from: each broker as a whole, or each queue of an orderly group."""
    topic, group = topic_of(request.topic), group_of(request.group)
    endpoints = _endpoints(request.endpoints)
    route = await route_or_refuse(caller.backend, topic)
    config = await caller.backend.group(group, [topic])
    orderly = config is not None and config.consume_message_orderly
    readable = [one for one in route.data.queue_datas if one.broker_name in route.addresses and one.perm & PERM_READ]

    def assignments() -> Iterator[PbAssignment]:
        for one in readable:
            broker = PbBroker(one.broker_name, 0, endpoints)
            for queue_id in range(one.read_queue_nums) if orderly else (-1,):
                yield PbAssignment(PbMessageQueue(PbResource("", topic), queue_id, enums.READ, broker, []))

    if not any(one.read_queue_nums or not orderly for one in readable):
        raise RefusedCallError(Code.FORBIDDEN, f"no queue of topic {topic} may be read")
    return await caller.in_parts(assignments(), lambda status, part: PbQueryAssignmentResponse(status, part))


async def heartbeat(caller: Caller, request: PbHeartbeatRequest) -> PbHeartbeatResponse:
    """Tell the brokers that the client is there."""
    client = caller.known
    if client is None or client.settings is None:
        raise RefusedCallError(Code.UNRECOGNIZED_CLIENT_TYPE, "this client has told no settings")
    if client.group:
        group = group_of(request.group or PbResource("", client.group))
        if await caller.backend.group(group, client.topics) is None:
            raise RefusedCallError(Code.ILLEGAL_CONSUMER_GROUP, f"group not found: {group}")
    if client.seen_s - client.beaten_s >= _BEAT_S + client.settings_bytes // _BEAT_BYTES_PER_S:
        client.beaten_s = client.seen_s
        await client.beat()
    return PbHeartbeatResponse(OK)


async def sync_lite_subscription(
    caller: Caller, request: PbSyncLiteSubscriptionRequest
) -> PbSyncLiteSubscriptionResponse:
    """Refuse lite topics, which no broker of Aerobee has."""
    topic_of(request.topic)
    group_of(request.group)
    raise RefusedCallError(Code.NOT_IMPLEMENTED, NO_LITE_TOPICS)
