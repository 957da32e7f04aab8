"""The topics of the route table: the queues of each topic on each broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from aerobee.model.route import QueueData
from aerobee.model.topic import TOPIC_UNIT, TOPIC_UNIT_SUB

# The queues of a static topic on one broker, as JSON. RocketMQ: TopicQueueMappingInfo.
Mapped = Mapping[str, Any]


class TopicQueues:
    """Queues by topic and broker, and the topics of each broker, so that a broker is removed quickly."""

    def __init__(self) -> None:
        self.revision = 0
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._mappings: dict[str, dict[str, Mapped]] = {}

    def put(self, topic: str, queue: QueueData) -> None:
        brokers = self._queues.setdefault(topic, {})
        if brokers.get(queue.broker_name) != queue:
            brokers[queue.broker_name] = queue
            self._topics_of.setdefault(queue.broker_name, set()).add(topic)
            self.revision += 1

    def put_mapping(self, topic: str, broker_name: str, mapping: Mapped) -> None:
        by_broker = self._mappings.setdefault(topic, {})
        if by_broker.get(broker_name) != mapping:
            by_broker[broker_name] = mapping
            self.revision += 1

    def drop(self, topic: str, broker_name: str) -> None:
        brokers = self._queues[topic]
        del brokers[broker_name]
        if not brokers:
            del self._queues[topic]
        topics = self._topics_of[broker_name]
        topics.discard(topic)
        if not topics:
            del self._topics_of[broker_name]
        self._drop_mapping(topic, broker_name)
        self.revision += 1

    def drop_broker(self, broker_name: str) -> None:
        topics = self._topics_of.pop(broker_name, set())
        for topic in topics:
            brokers = self._queues[topic]
            if len(brokers) == 1:
                del self._queues[topic]
            else:
                del brokers[broker_name]
        self.revision += len(topics)
        for topic in [t for t, by_broker in self._mappings.items() if broker_name in by_broker]:
            self._drop_mapping(topic, broker_name)

    def _drop_mapping(self, topic: str, broker_name: str) -> None:
        by_broker = self._mappings.get(topic)
        if by_broker is not None and by_broker.pop(broker_name, None) is not None and not by_broker:
            del self._mappings[topic]

    def set_perm(self, broker_name: str, *, keep: int, add: int) -> int:
        """Change the permission of a broker's queues. Return the number of its topics."""
        topics = self.of_broker(broker_name)
        for topic in topics:
            queue = self._queues[topic][broker_name]
            perm = queue.perm & keep | add
            if perm != queue.perm:
                self.put(topic, replace(queue, perm=perm))
        return len(topics)

    def has(self, topic: str, broker_name: str) -> bool:
        return broker_name in self._queues.get(topic, ())

    def has_mapping(self, topic: str, broker_name: str) -> bool:
        return broker_name in self._mappings.get(topic, ())

    def queues(self, topic: str) -> Mapping[str, QueueData]:
        return self._queues.get(topic, {})

    def mappings(self, topic: str) -> Mapping[str, Mapped]:
        return self._mappings.get(topic, {})

    @property
    def count(self) -> int:
        return len(self._queues)

    def names(self) -> list[str]:
        return sorted(self._queues)

    def count_of(self, broker_name: str) -> int:
        return len(self._topics_of.get(broker_name, ()))

    def of_broker(self, broker_name: str) -> frozenset[str]:
        return frozenset(self._topics_of.get(broker_name, ()))

    def by_unit(self, unit: bool | None = None, unit_sub: bool | None = None) -> list[str]:
        """Return the topics with these flags, as one of their brokers tells them. RocketMQ: getUnitTopics."""
        found = []
        for topic, queues in self._queues.items():
            flag = queues[min(queues)].topic_sys_flag
            if unit in (None, bool(flag & TOPIC_UNIT)) and unit_sub in (None, bool(flag & TOPIC_UNIT_SUB)):
                found.append(topic)
        return sorted(found)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Return every pair of topic and broker."""
        return ((topic, broker) for topic, brokers in self._queues.items() for broker in brokers)

    def validate(self) -> None:
        assert set(self.pairs()) == {(t, b) for b, topics in self._topics_of.items() for t in topics}
        assert all(self._queues.values()) and all(self._topics_of.values()) and all(self._mappings.values())
        assert all(self._queues[t][b].broker_name == b for t, b in self.pairs())
