"""`topics.json`: the topics of a broker. RocketMQ: TopicConfigManager, TopicConfigSerializeWrapper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from aerobee.errors import InvalidArgumentError
from aerobee.model.dialect import loads
from aerobee.model.fields import map_of
from aerobee.model.topic import QUEUE_NUMS_MAX, TopicConfig
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Disk
from aerobee.store.metadata.table import MetadataTable, check_name
from aerobee.store.statefile import StateFile


class TopicTable(MetadataTable):
    """Topics by name."""

    file_name = "topics.json"

    def __init__(self, disk: Disk, root: str) -> None:
        super().__init__(disk, root)
        self._topics: dict[str, TopicConfig] = {}
        # The settings of each topic. The dict stays the same one as long as the table lives.
        self.get: Callable[[str], TopicConfig | None] = self._topics.get

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic."""
        return MappingProxyType(self._topics)

    def put(self, config: TopicConfig, now_ms: int) -> bool:
        """Create or replace a topic. Return whether that changed anything."""
        check_topic(config)
        if self._topics.get(config.topic_name) == config:
            return False
        self._topics[config.topic_name] = config
        self.parts.note(config.topic_name, config, TopicConfig.to_json)
        self.bump(now_ms)
        return True

    def delete(self, topic: str, now_ms: int) -> bool:
        """Delete a topic. Return whether it was there."""
        if self._topics.pop(topic, None) is None:
            return False
        self.bump(now_ms)
        return True

    def encode(self) -> dict[str, Any]:
        """Return Apache's object."""
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": {name: config.to_json() for name, config in self._topics.items()},
        }

    def encode_parts(self) -> dict[str, Any]:
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": self.parts.texts(self._topics, TopicConfig.to_json),
        }

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object."""
        topics = self.each(data, "topicConfigTable", _topic)
        self.version = self.read_version(data)
        self._topics.clear()
        self._topics.update(topics)


def check_topic(config: TopicConfig) -> TopicConfig:
    """Return the topic itself if a start would take it up again. Raise InvalidArgumentError if not."""
    check_name(config.topic_name)
    for nums in (config.read_queue_nums, config.write_queue_nums):
        if not 0 <= nums <= QUEUE_NUMS_MAX:
            raise InvalidArgumentError(f"{nums} queues: 0 to {QUEUE_NUMS_MAX} are allowed")
    return config


def _topic(name: str, one: Any) -> TopicConfig:
    return check_topic(TopicConfig.from_json({**one, "topicName": name}))


def static_topics(disk: Disk, root: str) -> list[str]:
    """Return the topics whose queues Apache's broker maps to others. RocketMQ: TopicQueueMappingManager."""
    file = StateFile(disk, join(root, "config", "topicQueueMapping.json"))
    return file.load(lambda content: sorted(map(str, _mappings(content)))) or []


def _mappings(content: bytes) -> Mapping[Any, Any]:
    return map_of(loads(content, size_max=len(content)), "topicQueueMappingInfoMap")
