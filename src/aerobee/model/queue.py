"""A queue of a topic on a broker group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.model.dialect import DialectError, ObjectKey, loads
from aerobee.model.fields import int_of, str_of


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """A queue, ordered by topic, broker name and queue id as in Apache's code: allocation depends on the order."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    def to_key(self) -> ObjectKey:
        """Return Apache's JSON object as the key of a table."""
        return ObjectKey((("brokerName", self.broker_name), ("queueId", self.queue_id), ("topic", self.topic)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MessageQueue:
        """Read Apache's JSON object."""
        return cls(str_of(data, "topic"), str_of(data, "brokerName"), int_of(data, "queueId"))

    @classmethod
    def from_key(cls, key: object) -> MessageQueue:
        """Read the key of a table: an object, or an object's JSON text (older clients quote it)."""
        if isinstance(key, ObjectKey):
            return cls.from_json(key.fields())
        if isinstance(key, str):
            data = loads(key.encode())
            if isinstance(data, dict):
                return cls.from_json(data)
        raise DialectError("a table's key is not a message queue")
