"""The version of a table that a broker registers. The name server compares versions to see a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.model.fields import int_of


@dataclass(frozen=True, slots=True)
class DataVersion:
    """A version. State version, then counter, then timestamp say which is newer. RocketMQ: DataVersion.compare."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after one more change. RocketMQ: DataVersion.nextVersion."""
        return DataVersion(self.counter + 1, now_ms, state_version)

    def compare(self, other: DataVersion) -> int:
        """Return -1, 0 or 1 where this version is older than, the same as or newer than the other."""
        mine = (self.state_version, self.counter, self.timestamp)
        theirs = (other.state_version, other.counter, other.timestamp)
        return (mine > theirs) - (mine < theirs)

    def to_json(self) -> dict[str, Any]:
        """Return Apache's JSON object."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> DataVersion:
        """Read Apache's JSON object. Absent fields are 0 (4.x has no state version)."""
        data = data or {}
        return cls(int_of(data, "counter"), int_of(data, "timestamp"), int_of(data, "stateVersion"))


INITIAL = DataVersion()
