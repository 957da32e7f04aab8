"""Adapts a route to the client that asks for it: acting masters and zones."""

from __future__ import annotations

from dataclasses import replace

from aerobee.model.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from aerobee.model.topic import PERM_WRITE

# The brokers of a group use such a topic and must see their true ids. RocketMQ: TopicValidator.
_MEMBER_SYNC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


def show_acting_masters(topic: str, route: TopicRouteData) -> TopicRouteData:
    """Return the route with the smallest slave of a read-only group without a master shown as its master.

    RocketMQ: RouteInfoManager.pickupTopicRouteData.
    """
    if topic.startswith(_MEMBER_SYNC_PREFIX):
        return route
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    return replace(
        route,
        broker_datas=tuple(_with_acting_master(b, queues.get(b.broker_name)) for b in route.broker_datas),
    )


def _with_acting_master(broker: BrokerData, queue: QueueData | None) -> BrokerData:
    addrs = broker.broker_addrs
    if not broker.enable_acting_master or not addrs or MASTER_ID in addrs:
        return broker
    if queue is None or queue.perm & PERM_WRITE:
        return broker
    acting = min(addrs)
    others = {broker_id: addr for broker_id, addr in addrs.items() if broker_id != acting}
    return replace(broker, broker_addrs={MASTER_ID: addrs[acting], **others})


def only_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Return the brokers of the client's zone, and all groups without a master, which can still be read.

    RocketMQ: ZoneRouteRPCHook.filterByZoneName.
    """
    wanted = zone_name.casefold()
    kept = tuple(
        b for b in route.broker_datas if MASTER_ID not in b.broker_addrs or (b.zone_name or "").casefold() == wanted
    )
    removed = [b for b in route.broker_datas if b not in kept]
    names = {b.broker_name for b in removed}
    addrs = {addr for b in removed for addr in b.broker_addrs.values()}
    return replace(
        route,
        broker_datas=kept,
        queue_datas=tuple(q for q in route.queue_datas if q.broker_name not in names),
        filter_server_table={a: f for a, f in route.filter_server_table.items() if a not in addrs},
    )
