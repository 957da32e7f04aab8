"""Where topics live, as the client knows it: a machine fed with route data, asked for queues and addresses.

RocketMQ: MQClientInstance.topicRouteData2TopicPublishInfo, topicRouteData2TopicSubscribeInfo,
findBrokerAddressInSubscribe; ClientMetadata.topicRouteData2EndpointsForStaticTopic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aerobee.model.fields import int_key, int_of
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.queue import MessageQueue
from aerobee.model.route import MASTER_ID, TopicRouteData

# As in RocketMQ's PermName.
PERM_WRITE = 2
PERM_READ = 4

# RocketMQ: MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX, METADATA_SCOPE_GLOBAL
LOGICAL_BROKER_PREFIX = "__syslo__"
NO_LOGICAL_BROKER = "__syslo__none__"
_GLOBAL_SCOPE = "__global__"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's queues for senders and for readers.

    A static topic's queues name a logical broker; `endpoints` tells which real one serves each now.
    """

    topic: str
    data: TopicRouteData
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    endpoints: Mapping[MessageQueue, str] = field(default_factory=dict)

    def broker_of(self, queue: MessageQueue) -> str:
        """The name of the broker group that serves the queue."""
        return self.endpoints.get(queue, queue.broker_name) if self.endpoints else queue.broker_name


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """The queues a route makes, in Apache's order."""
    endpoints = _static_endpoints(topic, data)
    if data.order_topic_conf:
        writes = tuple(
            MessageQueue(topic, broker, i) for broker, count in _order_conf(data.order_topic_conf) for i in range(count)
        )
    elif endpoints:
        writes = tuple(sorted(endpoints, key=lambda queue: queue.queue_id))
    else:
        masters = {broker.broker_name for broker in data.broker_datas if broker.master is not None}
        writes = tuple(
            MessageQueue(topic, queues.broker_name, i)
            for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
            if queues.perm & PERM_WRITE and queues.broker_name in masters
            for i in range(queues.write_queue_nums)
        )
    if endpoints:
        reads = tuple(sorted(endpoints))
    else:
        reads = tuple(
            sorted(
                MessageQueue(topic, queues.broker_name, i)
                for queues in data.queue_datas
                if queues.perm & PERM_READ
                for i in range(queues.read_queue_nums)
            )
        )
    return TopicRoute(topic, data, writes, reads, endpoints)


def _order_conf(text: str) -> list[tuple[str, int]]:
    """`broker-a:4;broker-b:4`; a piece of another form is left out."""
    result: list[tuple[str, int]] = []
    for piece in text.split(";"):
        broker, _, count = piece.partition(":")
        queues = int_or(count.strip(), None, 0, INT32_MAX)
        if broker and queues is not None:
            result.append((broker, queues))
    return result


def _static_endpoints(topic: str, data: TopicRouteData) -> dict[MessageQueue, str]:
    scopes: dict[str, list[Mapping[str, Any]]] = {}
    for info in (data.topic_queue_mapping_by_broker or {}).values():
        if isinstance(info, Mapping) and info.get("scope") is not None:
            scopes.setdefault(str(info["scope"]), []).append(info)
    result: dict[MessageQueue, str] = {}
    for scope, infos in scopes.items():
        suffix = scope[2:] if scope == _GLOBAL_SCOPE else scope
        owner: dict[int, str] = {}
        # The mapping of the highest epoch wins a queue.
        for info in sorted(infos, key=lambda info: int_of(info, "epoch")):
            for queue_id in info.get("currIdMap") or {}:
                owner[int_key(queue_id)] = str(info.get("bname"))
        for i in range(max(int_of(info, "totalQueues") for info in infos)):
            queue = MessageQueue(topic, LOGICAL_BROKER_PREFIX + suffix, i)
            result[queue] = owner.get(i, NO_LOGICAL_BROKER)
    return result


class RouteTable:
    """Every route known, and the addresses of every broker in them."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, Mapping[int, str]] = {}

    def put(self, topic: str, data: TopicRouteData) -> TopicRoute | None:
        """The new route where it differs from the one before, else None."""
        for broker in data.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        old = self.routes.get(topic)
        if old is not None and old.data == data:
            return None
        route = self.routes[topic] = topic_route(topic, data)
        self._forget_offline()
        return route

    def remove(self, topic: str) -> bool:
        """Whether there was one."""
        found = self.routes.pop(topic, None) is not None
        self._forget_offline()
        return found

    def _forget_offline(self) -> None:
        """Brokers that no route names any more. RocketMQ: MQClientInstance.cleanOfflineBroker."""
        named = {broker.broker_name for route in self.routes.values() for broker in route.data.broker_datas}
        for name in [name for name in self._brokers if name not in named]:
            del self._brokers[name]

    def master(self, broker_name: str) -> str | None:
        """Where to send."""
        addresses = self._brokers.get(broker_name)
        return addresses.get(MASTER_ID) if addresses else None

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, only: bool = False) -> str | None:
        """Where to read: that broker, else the next slave, else (unless `only`) any of the group."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        found = addresses.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = addresses.get(broker_id + 1)
        if found is None and not only:
            found = addresses[min(addresses)]
        return found

    def name_at(self, address: str) -> str | None:
        """The broker group an address belongs to."""
        for name, addresses in self._brokers.items():
            if address in addresses.values():
                return name
        return None

    def masters(self) -> list[str]:
        """The address of every master."""
        return [addresses[MASTER_ID] for addresses in self._brokers.values() if MASTER_ID in addresses]

    def addresses(self) -> list[str]:
        """The address of every broker, slaves too."""
        return [address for addresses in self._brokers.values() for address in addresses.values()]
