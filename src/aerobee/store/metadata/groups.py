"""`subscriptionGroup.json`: consumer groups and the topics each may not read. RocketMQ:
SubscriptionGroupManager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from aerobee.model.fields import int_of
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.runtime.seams import Disk
from aerobee.store.metadata.table import MetadataTable, check_name


class GroupTable(MetadataTable):
    """Consumer groups by name."""

    file_name = "subscriptionGroup.json"

    def __init__(self, disk: Disk, root: str) -> None:
        super().__init__(disk, root)
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        # The settings of each group. The dict stays the same one as long as the table lives.
        self.get: Callable[[str], SubscriptionGroupConfig | None] = self._groups.get
        self._forbidden: dict[str, dict[str, int]] = {}
        # The bits of what is forbidden, by group and topic. This dict stays the same one too: each pull asks it.
        self.forbidden: Mapping[str, Mapping[str, int]] = MappingProxyType(self._forbidden)

    @property
    def groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        """Return every group."""
        return MappingProxyType(self._groups)

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> bool:
        """Create or replace a group. Return whether that changed anything."""
        check_name(config.group_name)
        if self._groups.get(config.group_name) == config:
            return False
        self._groups[config.group_name] = config
        self.parts.note(config.group_name, config, SubscriptionGroupConfig.to_json)
        self.bump(now_ms)
        return True

    def delete(self, group: str, now_ms: int) -> bool:
        """Delete a group. Return whether it was there."""
        forbidden = self._forbidden.pop(group, None)
        if self._groups.pop(group, None) is None and forbidden is None:
            return False
        self.bump(now_ms)
        return True

    def put_forbidden(self, group: str, topics: Mapping[str, int], now_ms: int) -> bool:
        """Replace what a group may not read; an empty mapping lifts all. Whether that changed anything."""
        check_name(group)
        wanted = {check_name(topic): bits for topic, bits in topics.items() if bits > 0}
        if self._forbidden.get(group, {}) == wanted:
            return False
        if wanted:
            self._forbidden[group] = wanted
        else:
            del self._forbidden[group]
        self.bump(now_ms)
        return True

    def encode(self) -> dict[str, Any]:
        """Return Apache's object."""
        return self._object({name: config.to_json() for name, config in self._groups.items()})

    def encode_parts(self) -> dict[str, Any]:
        return self._object(self.parts.texts(self._groups, SubscriptionGroupConfig.to_json))

    def _object(self, groups: Mapping[str, object]) -> dict[str, Any]:
        return {
            "dataVersion": self.version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self._forbidden.items()},
            "subscriptionGroupTable": groups,
        }

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object."""
        groups = self.each(data, "subscriptionGroupTable", _group)
        forbidden = self.each(data, "forbiddenTable", _forbidden)
        self.version = self.read_version(data)
        self._groups.clear()
        self._groups.update(groups)
        self._forbidden.clear()
        self._forbidden.update(forbidden)


def _group(name: str, one: Any) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig.from_json({**one, "groupName": check_name(name)})


def _forbidden(group: str, topics: Any) -> dict[str, int]:
    check_name(group)
    return {check_name(str(topic)): int_of(topics, topic) for topic in topics}
