"""The durable mark: how far the log was synced, as last known to be true.

This module owns `config/durableMark` (ours; Apache ignores it), written after each sync of the log. Recovery needs it
to tell a torn tail, which was never synced, from damage to what was synced. The file has three slots, each in a sector
of its own: one that is durable and left alone, one that a sync under way makes durable, and one that is written
meanwhile. So a power cut that tears everything not yet synced still leaves one slot whole.
"""

from __future__ import annotations

import struct
from typing import Final

from aerobee.hot.log.checksum import crc32
from aerobee.runtime.seams import Disk, File
from aerobee.store.diskrules import sync_directory, sync_file

_SLOT: Final = struct.Struct(">8sqqqII")  # magic, sequence, offset, sealed from, checkpoint before and now
_SUM: Final = struct.Struct(">I")
_SLOT_SPACING: Final = 4096
_SLOTS: Final = 3
_MAGIC: Final = b"AEROBEED"


class DurableMark:
    """The mark on disk.

    It is written without waiting: a mark that is lost is only less exact. It is never ahead of what was synced.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/durableMark"
        self._file: File | None = None
        self._sequence = 0
        self._durable = 0
        self._frozen: int | None = None
        self._current = 1
        self._is_changed = False
        self.offset = 0
        # From here on every record carries the whole-record checksum, so a record without it is torn. -1 means nowhere.
        self.sealed_from = -1
        # The checksums of `checkpoint` when the mark was made. If the file has another, Apache had this store since.
        self.checkpoints = (0, 0)

    def open(self) -> None:
        directory = self._path.rpartition("/")[0]
        self._disk.make_dirs(directory)
        is_new = not self._disk.exists(self._path)
        self._file = self._disk.open(self._path, create=True)
        if is_new:
            sync_directory(self._disk, directory)
        self._take(self._file)

    def peek(self) -> list[bool]:
        """Read without creating or holding the file; whether each slot is whole, none where there is no file."""
        if not self._disk.exists(self._path):
            return []
        file = self._disk.open(self._path, write=False)
        try:
            return self._take(file)
        finally:
            file.close()

    def _take(self, file: File) -> list[bool]:
        whole: list[bool] = []
        for slot in range(_SLOTS):
            data = file.read(slot * _SLOT_SPACING, _SLOT.size + _SUM.size)
            whole.append(False)
            if (
                len(data) == _SLOT.size + _SUM.size
                and crc32(data[: _SLOT.size]) == _SUM.unpack_from(data, _SLOT.size)[0]
            ):
                magic, sequence, offset, sealed_from, before, now = _SLOT.unpack_from(data)
                if magic == _MAGIC and sequence > self._sequence:
                    self._sequence, self.offset, self.checkpoints = sequence, offset, (before, now)
                    self.sealed_from = sealed_from
                    self._durable, self._current = slot, (slot + 1) % _SLOTS
                whole[-1] = magic == _MAGIC
        return whole

    @property
    def file(self) -> File:
        assert self._file is not None
        return self._file

    def believes(self, checkpoint: bytes) -> bool:
        """Tell whether the checkpoint is one of ours, so that nobody else had the log meanwhile."""
        return crc32(checkpoint) in self.checkpoints

    def write(self, offset: int) -> None:
        """Note that the log is synced up to `offset`."""
        self._sequence += 1
        self.offset = offset
        data = _SLOT.pack(_MAGIC, self._sequence, offset, self.sealed_from, *self.checkpoints)
        self.file.write(self._current * _SLOT_SPACING, data + _SUM.pack(crc32(data)))
        self._is_changed = True

    def begin_sync(self) -> int | None:
        """Note that the file is given to a sync. Pass the result to `synced` when that sync has ended well."""
        if self._frozen is not None or not self._is_changed:
            return None
        self._frozen, self._is_changed = self._current, False
        self._current = sum(range(_SLOTS)) - self._durable - self._frozen
        return self._frozen

    def synced(self, slot: int | None) -> None:
        if slot is not None and slot == self._frozen:
            self._durable, self._frozen = slot, None

    def note_writer(self, log_end: int, is_ours: bool, with_crc: bool) -> None:
        """Note who writes behind `log_end`: a writer that seals every record, or one that may not."""
        if not with_crc:
            self.sealed_from = -1
        elif not is_ours or not 0 <= self.sealed_from <= log_end:
            self.sealed_from = log_end

    def truncated(self, offset: int) -> None:
        """Note that the log ends here now. A writer that seals goes on sealing. The next save makes this durable."""
        self.sealed_from = min(self.sealed_from, offset)

    def note_foreign(self, at: int, synced: int, sealed: bool) -> None:
        """Note that records of another writer come. If they may carry no checksum, the note is durable first."""
        if sealed:
            if self.sealed_from < 0:
                self.sealed_from = at
        elif self.sealed_from >= 0:
            self.sealed_from = -1
            self.save(synced)

    def is_sealed(self, at: int) -> bool:
        """Tell whether every record from here on carries its checksum."""
        return 0 <= self.sealed_from <= at

    def note_checkpoint(self, present: bytes, following: bytes) -> None:
        """Note the checkpoint before it is replaced.

        The note is durable first: a power cut leaves either checkpoint.
        """
        self.checkpoints = (crc32(present), crc32(following))

    def save(self, offset: int) -> None:
        """Write the mark into every slot, durably: after a truncation no older mark may count."""
        self.write(offset)
        sync_file(self.file)
        self._durable = self._current
        for step in (1, 2):
            self._current = (self._durable + step) % _SLOTS
            self.write(offset)
        sync_file(self.file)
        self._frozen, self._is_changed = None, False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
