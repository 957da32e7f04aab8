"""The queue table: up to which place in the log the consume queues are durable, and each queue's bounds there.

This module owns `config/queueTable.0` and `.1` (ours; Apache ignores them), written in turn so that one of them is
whole whatever happens. By the table a start notices a queue file that is missing or was rolled back. The table also
keeps the numbering of a queue whose records have all expired: without it, numbers would start again below what
consumers have committed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from aerobee.hot.log.checksum import crc32
from aerobee.model.fields import int_key, whole_of
from aerobee.runtime.seams import Disk, File
from aerobee.store.deletions import Deletions
from aerobee.store.diskrules import sync_directory, sync_file
from aerobee.store.recordhead import HEAD_SIZE, head_of
from aerobee.store.segment import LogSource

_HEAD: Final = struct.Struct(">8sqII")  # magic, sequence, length, crc32 of these three and of what follows
_SUM_AT: Final = 20
_MAGIC: Final = b"AEROBEEQ"


@dataclass(slots=True)
class QueueTable:
    """All queues as they were when everything below `position` had been flushed."""

    position: int = 0
    # Place, size and store time of the last record below `position`. It proves that the log is still the same.
    last: tuple[int, int, int] | None = None
    # (topic, queue id) -> floor, min, next
    queues: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    # Queues are being built again: only the numbers count, whatever the files hold.
    is_rebuilding: bool = False

    def agrees_with(self, log: LogSource) -> bool:
        """Tell whether the record that the table names last is still where it was."""
        if self.last is None:
            return False
        physical_offset, size, store_timestamp = self.last
        head = head_of(log.read(physical_offset, HEAD_SIZE))
        return (
            head is not None
            and head.physical_offset == physical_offset
            and head.size == size
            and (store_timestamp in (-1, head.store_timestamp))
            and physical_offset + size == self.position
        )

    def rows(self, deletions: Deletions) -> Iterator[tuple[tuple[str, int], tuple[int, int, int]]]:
        """Yield the queues without those deleted since: the table knew nothing newer of their topics."""
        for key, bounds in self.queues.items():
            deleted = deletions.position_of(key[0].encode("ascii"))
            if not deleted or self.position > deleted:
                yield key, bounds

    def encode(self) -> bytes:
        topics: dict[str, dict[int, tuple[int, int, int]]] = {}
        for (topic, queue_id), bounds in self.queues.items():
            topics.setdefault(topic, {})[queue_id] = bounds
        value: dict[str, object] = {"position": self.position, "last": self.last, "queues": topics}
        if self.is_rebuilding:
            value["rebuilding"] = True
        return json.dumps(value, separators=(",", ":")).encode()


def decode_table(data: bytes) -> QueueTable:
    """Return the table that the bytes hold. Raise ValueError (or its like) where they hold none."""
    value = json.loads(data)
    last = value["last"]
    queues = {
        (str(topic), int_key(queue_id)): _three(bounds)
        for topic, entries in value["queues"].items()
        for queue_id, bounds in entries.items()
    }
    return QueueTable(
        position=whole_of(value["position"]),
        last=None if last is None else _three(last),
        queues=queues,
        is_rebuilding=bool(value.get("rebuilding", False)),
    )


def _three(values: Sequence[object]) -> tuple[int, int, int]:
    first, second, third = values
    return whole_of(first), whole_of(second), whole_of(third)


class QueueTableFiles:
    """The two files."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files: list[File] = []
        self._sequence = 0
        self.tables: list[QueueTable] = []  # the whole tables found at open, newest first

    def open(self) -> None:
        self._disk.make_dirs(self._directory)
        paths = [f"{self._directory}/queueTable.{turn}" for turn in (0, 1)]
        is_new = not all(self._disk.exists(path) for path in paths)
        self._files = [self._disk.open(path, create=True) for path in paths]
        if is_new:
            sync_directory(self._disk, self._directory)
            sync_directory(self._disk, self._directory.rpartition("/")[0] or ".")
        found: list[tuple[int, QueueTable]] = []
        for file in self._files:
            entry = read_table(file)
            if entry is not None:
                found.append(entry)
                self._sequence = max(self._sequence, entry[0])
        self.tables = [table for _, table in sorted(found, key=lambda entry: -entry[0])]

    def write(self, content: bytes) -> File:
        """Write over the older of the two files.

        Return it, to be synced when convenient: until then the newer one counts.
        """
        sequence = self._sequence + 1
        file = self._files[sequence % 2]
        head = _HEAD.pack(_MAGIC, sequence, len(content), 0)[:_SUM_AT]
        file.write(0, head + crc32(content, crc32(head)).to_bytes(4, "big") + content)
        self._sequence = sequence
        return file

    def save(self, content: bytes) -> None:
        """Write into both files, durably, one after the other."""
        for _ in self._files:
            sync_file(self.write(content))

    def close(self) -> None:
        while self._files:
            self._files.pop().close()


def read_table(file: File) -> tuple[int, QueueTable] | None:
    """Return sequence and table of one of the files; None where it is not whole."""
    head = file.read(0, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, sequence, size, checksum = _HEAD.unpack(head)
    if magic != _MAGIC or size > file.size():
        return None
    content = file.read(_HEAD.size, size)
    if crc32(content, crc32(head[:_SUM_AT])) != checksum:
        return None
    try:
        return sequence, decode_table(content)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
