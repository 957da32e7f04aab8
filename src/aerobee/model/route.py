"""The route of a topic: its queues on each broker group and the addresses of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aerobee.model.dataversion import DataVersion
from aerobee.model.fields import bool_of, int_key, int_of, map_of, objects_of, str_of, tables_of

MASTER_ID = 0


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
class BrokerLiveInfo:
    """A registered broker as the name server remembers it. RocketMQ: RouteInfoManager, BrokerLiveInfo."""

    last_update_timestamp: int
    heartbeat_timeout_millis: int
    data_version: DataVersion
    ha_server_addr: str = ""
