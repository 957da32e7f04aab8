"""Deletions: which topics were deleted, each with the place where the log ended at that moment.

This module owns `config/deletedTopics.json` (ours; Apache ignores it). The records of a deleted topic stay in the log
until they expire, and everything derived from the log is built again at times: this table keeps them from coming back.
Whatever of a topic lies below its place is gone. What lies at or above the place belongs to a topic made since. The
table has one entry for a name, with the highest place, and none once the log begins above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from aerobee.hot.log.record import Draft
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import StateFile

FILE_NAME: Final = "deletedTopics.json"
_KEY: Final = "deletedBelow"


class Deletions:
    """The table, in memory and on disk."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._file = StateFile(disk, f"{root}/config/{FILE_NAME}")
        self._positions: dict[bytes, int] = {}
        # No record at or above this place was ever deleted. Most readers need to know no more.
        self.highest = 0

    def load(self, log_start: int = 0) -> None:
        """Read what was noted; an entry that the log has left behind is forgotten."""
        self._set(self._file.load(_decode) or {}, log_start)

    def positions(self) -> dict[bytes, int]:
        """Return every deleted topic with the place in the log below which nothing of it counts."""
        return dict(self._positions)

    def position_of(self, topic: bytes) -> int:
        """Return the place below which nothing of a topic counts; 0 for a topic that was never deleted."""
        return self._positions.get(topic, 0)

    def covers(self, topic: bytes, physical_offset: int) -> bool:
        """Tell whether a record at this place was deleted with its topic."""
        return physical_offset < self._positions.get(topic, 0)

    def kept(self, topic: bytes, offsets: Sequence[int]) -> Sequence[int]:
        """Return those places of a topic's records that were not deleted with the topic."""
        below = self._positions.get(topic, 0)
        return [offset for offset in offsets if offset >= below] if below else offsets

    def without(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Return the records that were not deleted."""
        position_of = self._positions.get
        return [draft for draft in drafts if draft.physical_offset >= position_of(draft.topic, 0)]

    def note(self, topics: Iterable[bytes], log_start: int, log_end: int) -> None:
        """Delete the topics as of now, durably. Everything below `log_end` must be synced: a log that lost its tail
        would give the same places to other records."""
        changed = self._positions | dict.fromkeys(topics, log_end)
        self._save({topic: at for topic, at in changed.items() if at > log_start})

    def cut(self, log_end: int) -> None:
        """Note that the log ends here now: what will be written behind this place was not deleted."""
        if self.highest > log_end:
            self._save({topic: min(at, log_end) for topic, at in self._positions.items()})

    def _save(self, positions: dict[bytes, int]) -> None:
        if positions != self._positions:
            entries = {topic.decode("utf-8", "surrogateescape"): at for topic, at in positions.items()}
            self._file.save(json.dumps({_KEY: entries}, separators=(",", ":")).encode())
            self._set(positions, 0)

    def _set(self, positions: dict[bytes, int], log_start: int) -> None:
        self._positions = {topic: at for topic, at in positions.items() if at > log_start}
        self.highest = max(self._positions.values(), default=0)


def _decode(content: bytes) -> dict[bytes, int]:
    """Return the deletions that a file holds. Raise ValueError (or its like) for what makes no sense."""
    found: dict[bytes, int] = {}
    for topic, at in json.loads(content)[_KEY].items():
        if isinstance(at, bool) or not isinstance(at, int) or at < 0:
            raise ValueError(f"{at!r} is no place in a log")
        found[topic.encode("utf-8", "surrogateescape")] = at
    return found
