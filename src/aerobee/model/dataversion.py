"""The version of a table a broker registers: what the name server compares to see a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.model.fields import int_of


@dataclass(frozen=True, slots=True)
class DataVersion:
    """State version, then counter, then timestamp decide which is newer. RocketMQ: DataVersion.compare."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after one more change. RocketMQ: DataVersion.nextVersion."""
        return DataVersion(self.counter + 1, now_ms, state_version)

    def compare(self, other: DataVersion) -> int:
        """-1, 0 or 1."""
        mine = (self.state_version, self.counter, self.timestamp)
        theirs = (other.state_version, other.counter, other.timestamp)
        return (mine > theirs) - (mine < theirs)

    def to_json(self) -> dict[str, Any]:
        """Apache's object."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> DataVersion:
        """From Apache's object; absent fields are 0 (4.x has no state version)."""
        data = data or {}
        return cls(int_of(data, "counter"), int_of(data, "timestamp"), int_of(data, "stateVersion"))


# A frozen value, so one is enough for every default.
INITIAL = DataVersion()
