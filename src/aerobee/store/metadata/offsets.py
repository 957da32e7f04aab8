"""`consumerOffset.json` and `delayOffset.json`: how far consumer groups and delay levels have come.

RocketMQ: ConsumerOffsetManager, ScheduleMessageService. Tables are changed in place by their owners, many
times a second; the file is written every few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aerobee.model.fields import int_key, whole_of
from aerobee.runtime.seams import Disk
from aerobee.store.metadata.table import MetadataTable

SEPARATOR: Final = "@"


class ConsumerOffsetTable(MetadataTable):
    """The next offset to consume, by `topic@group` and queue."""

    file_name = "consumerOffset.json"

    def __init__(self, disk: Disk, root: str) -> None:
        super().__init__(disk, root)
        self.table: dict[str, dict[int, int]] = {}

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset of one queue."""
        queues = self.table.get(topic + SEPARATOR + group)
        return None if queues is None else queues.get(queue_id)

    def put(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set one queue's offset."""
        self.table.setdefault(topic + SEPARATOR + group, {})[queue_id] = offset

    def delete(self, topic: str, group: str) -> bool:
        """Forget a group's offsets of a topic; whether there were any."""
        return self.table.pop(topic + SEPARATOR + group, None) is not None

    def encode(self) -> dict[str, Any]:
        """Return Apache's object. Apache writes the groups' topics and the pulled offsets too, and reads neither."""
        return self._object({key: dict(queues) for key, queues in self.table.items()})

    def encode_parts(self) -> dict[str, Any]:
        return self._object(self.parts.texts(self.table, dict))

    def _object(self, offsets: Mapping[str, object]) -> dict[str, Any]:
        topics_of: dict[str, list[str]] = {}
        for key in self.table:
            topic, _, group = key.partition(SEPARATOR)
            topics_of.setdefault(group, []).append(topic)
        return {
            "dataVersion": self.version.to_json(),
            "groupTopicMap": topics_of,
            "offsetTable": offsets,
            "pullOffsetTable": {},
        }

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object, of 4.x too."""
        table = self.each(data, "offsetTable", self._queues)
        self.version = self.read_version(data)
        # The table is changed in place: the broker's rules hold this very dict.
        self.table.clear()
        self.table.update(table)

    def _queues(self, key: str, queues: Any) -> dict[int, int]:
        """Return the offsets of a group's queues. An offset that cannot be used leaves the others."""
        return dict(self.each({key: queues}, key, _offset).values())


class DelayOffsetTable(MetadataTable):
    """The next offset to deliver of each delay level's queue.

    `rescan_from` is ours: the place in the log from where on deliveries may be missing from the table (None where
    Apache wrote the file). Apache ignores the field.
    """

    file_name = "delayOffset.json"

    def __init__(self, disk: Disk, root: str) -> None:
        super().__init__(disk, root)
        self.table: dict[int, int] = {}
        self.rescan_from: int | None = None

    def get(self, level: int) -> int | None:
        """Return the offset of one level."""
        return self.table.get(level)

    def put(self, level: int, offset: int) -> None:
        """Set one level's offset."""
        self.table[level] = offset

    def encode(self) -> dict[str, Any]:
        """Return Apache's object, and our field beside it."""
        data: dict[str, Any] = {"dataVersion": self.version.to_json(), "offsetTable": dict(self.table)}
        if self.rescan_from is not None:
            data["rescanFrom"] = self.rescan_from
        return data

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object; before 5.0 it had no version."""
        levels = self.each(data, "offsetTable", _offset)
        own = {"rescanFrom": data.get("rescanFrom")}
        rescan_from = self.each({"": own}, "", lambda _, value: whole_of(value)).get("rescanFrom")
        self.version = self.read_version(data)
        self.table.clear()
        self.table.update(levels.values())
        self.rescan_from = rescan_from


def _offset(key: str, offset: Any) -> tuple[int, int]:
    """Return queue id or level, and the offset of it."""
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ValueError(f"offset {offset!r} is not a whole number")
    return int_key(key), whole_of(offset)
