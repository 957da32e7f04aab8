"""The note of a store whose broker took over from another one, and the files that go back to Apache's broker.

A name server keeps the master with the higher state version. Apache's brokers with static roles have 0, so a broker
that took over registers with 1: an old master that is started by mistake is not listed in its place.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aerobee.broker.delay import TimerCheckpoint, TimerProgress
from aerobee.errors import StoreError
from aerobee.model.dialect import loads_object
from aerobee.model.fields import int_key, whole_of
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import StateFile, unseal

_NOTE: Final = "takenOver"
# What both brokers keep in the same form.
_STATE_FILES: Final = (
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "messageRequestMode.json",
)  # fmt: skip
_LONG: Final = struct.Struct(">q")
_READ_MS_POS: Final = 0
_MASTER_TAKEN_POS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """From whom a store was taken over, and when."""

    master: str
    at_ms: int
    state_version: int = 1


class TakeOverNote:
    """The file `config/takenOver` of a store."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._file = StateFile(disk, join(root, "config", _NOTE))
        self._disk = disk

    def load(self) -> TakeOver | None:
        return self._file.load(_decoded)

    def save(self, note: TakeOver) -> None:
        content = {"master": note.master, "at": note.at_ms, "stateVersion": note.state_version}
        self._file.save(json.dumps(content).encode())

    def remove(self) -> None:
        """Forget the takeover: the old master leads again."""
        for path in (self._file.path, self._file.backup_path):
            if self._disk.exists(path):
                self._disk.unlink(path)


def _decoded(content: bytes) -> TakeOver:
    data: Mapping[str, Any] = json.loads(content)
    state_version = whole_of(data["stateVersion"])
    if not 0 < state_version < 1 << 31:
        raise ValueError(f"stateVersion {state_version} is no version")
    return TakeOver(master=str(data["master"]), at_ms=whole_of(data["at"]), state_version=state_version)


def saved_offsets(disk: Disk, theirs: str, name: str) -> dict[str, dict[int, int]]:
    """Return the offsets of one of Apache's state files: by group and topic, or of the delay levels under one key.

    Apache saves them every few seconds, and not always at its stop, so they may be older than what it told last.
    """
    path = join(theirs, "config", name)
    if not disk.exists(path):
        return {}
    table = loads_object(unseal(_content(disk, path))).get("offsetTable", {})
    if not all(isinstance(entry, Mapping) for entry in table.values()):
        table = {"": table}
    return {
        str(key): {int_key(queue): whole_of(offset) for queue, offset in queues.items()}
        for key, queues in table.items()
    }


def saved_timers(disk: Disk, theirs: str) -> TimerCheckpoint | None:
    """Return how far timed messages were delivered according to Apache's own file, None where it has none."""
    path = join(theirs, "config", "timercheck")
    return TimerCheckpoint.decode(_content(disk, path)) if disk.exists(path) else None


def raise_to(ours: dict[int, int], theirs: Mapping[int, int]) -> None:
    """Raise each offset to the other one where that is higher: both were true once, and the higher one is newer."""
    for queue, offset in theirs.items():
        ours[queue] = max(offset, ours.get(queue, 0))


def give_state_back(disk: Disk, ours: str, theirs: str) -> list[str]:
    """Copy topics, groups, offsets and the progress of delays and timed messages from our store to Apache's.

    Both brokers are stopped. Return the names of the files that were written.
    """
    written = []
    for name in _STATE_FILES:
        source = join(ours, "config", name)
        if disk.exists(source):
            target = StateFile(disk, join(theirs, "config", name), sealed=False)
            target.save(_content(disk, source))
            written.append(name)
    progress = StateFile(disk, join(ours, "timers", "progress")).load(TimerProgress.decode)
    check = join(theirs, "config", "timercheck")
    if progress is not None and disk.exists(check):
        precision_ms = max(1, progress.rules.precision_ms)
        file = disk.open(check)
        try:
            file.write(_READ_MS_POS, _LONG.pack(max(0, progress.resume_key - progress.resume_key % precision_ms)))
            file.write(_MASTER_TAKEN_POS, _LONG.pack(progress.queue_offset))
            file.sync()
        except OSError as error:
            raise StoreError(f"{check} cannot be written: {error}") from error
        finally:
            file.close()
        written.append("timercheck")
    return written


def _content(disk: Disk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()
