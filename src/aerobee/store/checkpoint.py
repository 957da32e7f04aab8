"""The `checkpoint` file: how far each part of the store was flushed. RocketMQ: StoreCheckpoint (5.5.0).

    0   8  physicMsgTimestamp     store time of the last log record flushed
    8   8  logicsMsgTimestamp     store time of the last record whose queue units were flushed
    16  8  indexMsgTimestamp      store time of the last record whose index entries were flushed
    24  8  masterFlushedOffset    what the master of this replica had flushed
    32  8  confirmPhyOffset       what readers may see
    40  8  logicsPhysicalOffset   every consume queue holds all of the log below this offset
    48     zeros, 4096 bytes in all

The file is a hint, never the truth: each value is brought within what the log itself shows, and every
change is reported. It is replaced whole (a torn sector could mix two values into one that claims too much);
Apache writes in place and reads ours as its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aerobee.errors import StoreError
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import Done, StateFile

FILE_SIZE: Final = 4096
_LAYOUT: Final = struct.Struct(">6q")
VALUES_SIZE: Final = _LAYOUT.size
CONFIRM_OFFSET_POS: Final = 32
LOGICS_OFFSET_POS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The values of the file."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    def encode(self) -> bytes:
        """Return the 48 bytes that have a meaning."""
        return _LAYOUT.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        )


def decode_checkpoint(data: bytes) -> tuple[Checkpoint, list[str]]:
    """Return the values of a file's bytes, and a sentence for everything that cannot be what was written.

    A value that cannot be true becomes 0, which makes recovery look at more, never at less.
    """
    problems: list[str] = []
    if len(data) < _LAYOUT.size:
        problems.append(f"only {len(data)} bytes long: what is missing counts as 0")
        data = data.ljust(_LAYOUT.size, b"\0")
    values = list(_LAYOUT.unpack_from(data))
    for position, name in enumerate(_NAMES):
        if values[position] < 0 and not (name == "confirmPhyOffset" and values[position] == -1):
            problems.append(f"byte {position * 8}: {name} {values[position]} is negative: taken as 0")
            values[position] = 0
    physic, logics, index, master, confirm, logics_offset = values
    found = Checkpoint(
        physic_msg_timestamp=physic,
        logics_msg_timestamp=logics,
        index_msg_timestamp=index,
        master_flushed_offset=master,
        confirm_phy_offset=max(confirm, 0),
        logics_physical_offset=logics_offset,
    )
    return found, problems


_NAMES: Final = (
    "physicMsgTimestamp",
    "logicsMsgTimestamp",
    "indexMsgTimestamp",
    "masterFlushedOffset",
    "confirmPhyOffset",
    "logicsPhysicalOffset",
)


class CheckpointFile:
    """The checkpoint file. `value` is what it held when opened, or what was last saved."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._state = StateFile(disk, path, keep_backup=False, sealed=False)
        self.existed = disk.exists(path)
        self.problems: list[str] = []
        self.value = Checkpoint()
        if self.existed:
            file = disk.open(path, write=False)
            try:
                self.value, self.problems = decode_checkpoint(file.read(0, FILE_SIZE))
            finally:
                file.close()
        # What the file holds. While a save is under way this may be the value before it.
        self.on_disk = self.value
        self._placed = self.value  # the value of the last save that failed

    def save(self, value: Checkpoint) -> None:
        """Replace the values, durably; blocks: for start and stop."""
        self.value = value
        self._state.save(value.encode().ljust(FILE_SIZE, b"\0"))
        self.on_disk = value

    def settle(self) -> None:
        """Make a value durable that is in place and could not be synced. Call this before the next value is saved."""
        if self._state.settle():
            self.value = self.on_disk = self._placed

    def submit(self, value: Checkpoint, done: Done) -> None:
        """Save as `save` does, synced off the caller's thread; then call `done` on the caller's thread."""
        self.value = value

        def saved(error: OSError | StoreError | None) -> None:
            if self.value is value:  # otherwise another save came in between
                if error is None:
                    self.on_disk = value
                else:
                    self.value, self._placed = self.on_disk, value
            done(error)

        self._state.submit(value.encode().ljust(FILE_SIZE, b"\0"), saved)
