"""Tables of Apache's that are kept as the JSON they are: filters and request modes.

Their users read and write plain objects. Fields that nobody here understands survive a save.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aerobee.runtime.seams import Disk
from aerobee.store.metadata.table import MetadataTable, check_name


class PlainTable(MetadataTable):
    """Objects by topic name."""

    field_name: str

    def __init__(self, disk: Disk, root: str) -> None:
        super().__init__(disk, root)
        self.table: dict[str, dict[Any, Any]] = {}

    def get(self, topic: str) -> dict[Any, Any] | None:
        """Return the object of one topic."""
        return self.table.get(topic)

    def put(self, topic: str, value: dict[Any, Any], now_ms: int) -> bool:
        """Create or replace an object. Return whether that changed anything."""
        if self.table.get(check_name(topic)) == value:
            return False
        self.table[topic] = value
        self.bump(now_ms)
        return True

    def delete(self, topic: str, now_ms: int) -> bool:
        """Delete an object. Return whether it was there."""
        if self.table.pop(topic, None) is None:
            return False
        self.bump(now_ms)
        return True

    def encode(self) -> dict[str, Any]:
        """Return Apache's object."""
        return {self.field_name: dict(self.table)}

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object."""
        self.table = self.each(data, self.field_name, _plain)
        self.version = self.read_version(data)


def _plain(topic: str, one: Any) -> dict[Any, Any]:
    check_name(topic)
    if not isinstance(one, dict):
        raise ValueError("not an object")
    return one


class ConsumerFilterTable(PlainTable):
    """`consumerFilter.json`: topic -> {"groupFilterData": {...}, "topic": ...}. RocketMQ:
    ConsumerFilterManager."""

    file_name = "consumerFilter.json"
    field_name = "filterDataByTopic"


class MessageRequestModeTable(PlainTable):
    """`messageRequestMode.json`: topic -> group -> pull or POP. RocketMQ: MessageRequestModeManager."""

    file_name = "messageRequestMode.json"
    field_name = "messageRequestModeMap"


class OrderInfoTable(PlainTable):
    """`consumerOrderInfo.json`: topic@group -> queue -> the last pop in order. RocketMQ: QueueLevelConsumerManager."""

    file_name = "consumerOrderInfo.json"
    field_name = "table"

    def encode(self) -> dict[str, Any]:
        return {"orderInfoCount": len(self.table), "orderedConsumptionLevel": "QUEUE", "table": dict(self.table)}
