"""The route of a topic: its queues on each broker group and the addresses of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.model.fields import bool_of, int_key, int_of, map_of, objects_of, str_of, tables_of
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import PERM_READ, PERM_WRITE

MASTER_ID = 0

# RocketMQ: MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX, METADATA_SCOPE_GLOBAL
LOGICAL_BROKER_PREFIX: Final = "__syslo__"
NO_LOGICAL_BROKER: Final = "__syslo__none__"
_GLOBAL_SCOPE: Final = "__global__"


@dataclass(frozen=True, slots=True)
class QueueData:
    """A topic's queues on one broker group."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QueueData:
        """Read Apache's JSON object (4.x clients say topicSynFlag)."""
        flag = "topicSysFlag" if "topicSysFlag" in data else "topicSynFlag"
        return cls(
            str_of(data, "brokerName"),
            int_of(data, "readQueueNums"),
            int_of(data, "writeQueueNums"),
            int_of(data, "perm"),
            int_of(data, flag),
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A broker group with the addresses of its master (id 0) and slaves."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        data: dict[str, Any] = {
            "brokerAddrs": dict(self.broker_addrs),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
        }
        if self.zone_name is not None:
            data["zoneName"] = self.zone_name
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BrokerData:
        """Read Apache's JSON object."""
        addresses = {int_key(k): str(v) for k, v in map_of(data, "brokerAddrs").items()}
        zone = str_of(data, "zoneName") or None
        return cls(
            str_of(data, "cluster"),
            str_of(data, "brokerName"),
            addresses,
            bool_of(data, "enableActingMaster"),
            zone,
        )

    @property
    def master(self) -> str | None:
        """The master's address, or None."""
        return self.broker_addrs.get(MASTER_ID)

    def address(self) -> str | None:
        """Return the master's address, or that of the slave with the lowest id."""
        found = self.master
        if found is None and self.broker_addrs:
            found = self.broker_addrs[min(self.broker_addrs)]
        return found


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """The route of one topic."""

    queue_datas: Sequence[QueueData] = ()
    broker_datas: Sequence[BrokerData] = ()
    order_topic_conf: str | None = None
    filter_server_table: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # The queue mapping of each broker group of a static topic, as Apache's object.
    topic_queue_mapping_by_broker: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        data: dict[str, Any] = {
            "brokerDatas": [broker.to_json() for broker in self.broker_datas],
            "filterServerTable": {k: list(v) for k, v in self.filter_server_table.items()},
        }
        if self.order_topic_conf is not None:
            data["orderTopicConf"] = self.order_topic_conf
        data["queueDatas"] = [queue.to_json() for queue in self.queue_datas]
        if self.topic_queue_mapping_by_broker is not None:
            data["topicQueueMappingByBroker"] = dict(self.topic_queue_mapping_by_broker)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TopicRouteData:
        """Read Apache's JSON object."""
        mapping = data.get("topicQueueMappingByBroker")
        return cls(
            tuple(QueueData.from_json(item) for item in objects_of(data, "queueDatas")),
            tuple(BrokerData.from_json(item) for item in objects_of(data, "brokerDatas")),
            str_of(data, "orderTopicConf") or None,
            {str(k): tuple(v) for k, v in map_of(data, "filterServerTable").items() if isinstance(v, list)},
            tables_of(data, "topicQueueMappingByBroker") if mapping is not None else None,
        )


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic that producers may write and consumers may read, in Apache's order.

    This is the only place that turns a route into queues, and the only one that knows static topics: their queues name
    a logical broker, and `endpoints` says which real broker group serves each queue now.
    """

    topic: str
    data: TopicRouteData
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    endpoints: Mapping[MessageQueue, str] = field(default_factory=dict)

    @classmethod
    def of(cls, topic: str, data: TopicRouteData) -> TopicRoute:
        """Return the queues of a route."""
        endpoints = _static_endpoints(topic, data)
        return cls(topic, data, _write_queues(topic, data, endpoints), _read_queues(topic, data, endpoints), endpoints)

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker group that serves the queue."""
        return self.endpoints.get(queue, queue.broker_name) if self.endpoints else queue.broker_name


def _write_queues(topic: str, data: TopicRouteData, endpoints: Mapping[MessageQueue, str]) -> tuple[MessageQueue, ...]:
    if data.order_topic_conf:
        return tuple(
            MessageQueue(topic, broker, i) for broker, count in _order_conf(data.order_topic_conf) for i in range(count)
        )
    if endpoints:
        return tuple(sorted(endpoints, key=lambda queue: queue.queue_id))
    masters = {broker.broker_name for broker in data.broker_datas if broker.master is not None}
    return tuple(
        MessageQueue(topic, queues.broker_name, i)
        for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & PERM_WRITE and queues.broker_name in masters
        for i in range(queues.write_queue_nums)
    )


def _read_queues(topic: str, data: TopicRouteData, endpoints: Mapping[MessageQueue, str]) -> tuple[MessageQueue, ...]:
    if endpoints:
        return tuple(sorted(endpoints))
    return tuple(
        sorted(
            MessageQueue(topic, queues.broker_name, i)
            for queues in data.queue_datas
            if queues.perm & PERM_READ
            for i in range(queues.read_queue_nums)
        )
    )


def _order_conf(text: str) -> list[tuple[str, int]]:
    """Parse `broker-a:4;broker-b:4`. A piece of another form is left out."""
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
