"""The files of the key index read from outside: how many slots they have, their headers, their entries in order."""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from typing import Final

from aerobee.hot.log.layout import INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from aerobee.runtime.seams import File
from aerobee.store.config import StoreConfig
from aerobee.store.indexfile import IndexHeader, decode_header
from aerobee.store.offline.directory import StoreDirectory

_NAME_SIZE: Final = 17
_ENTRIES_AT_ONCE: Final = 50_000
# RocketMQ's defaults, and most settings, have four entries for each slot.
_ENTRIES_PER_SLOT: Final = 4


@dataclass(frozen=True, slots=True)
class IndexFileView:
    """One file. `slot_count` is 0 where it cannot be told."""

    path: str
    name: str
    size: int
    slot_count: int
    entry_count: int
    # Whether the slot count is only inferred from the file's length.
    is_guess: bool
    header: IndexHeader

    @property
    def entries_at(self) -> int:
        return INDEX_HEADER_SIZE + self.slot_count * INDEX_SLOT_SIZE

    def entry_at(self, number: int) -> int:
        return self.entries_at + number * INDEX_ENTRY_SIZE


def find_index_files(store: StoreDirectory) -> list[IndexFileView]:
    """Return the files of `index/`, oldest first. Names that are no times are passed over."""
    found: list[IndexFileView] = []
    for name in store.disk.listdir(store.path("index")):
        if len(name) != _NAME_SIZE or not (name.isascii() and name.isdecimal()):
            continue
        path = store.path("index", name)
        try:
            file = store.disk.open(path, write=False)
        except FileNotFoundError:
            continue
        try:
            size = file.size()
            head = file.read(0, INDEX_HEADER_SIZE).ljust(INDEX_HEADER_SIZE, b"\0")
        finally:
            file.close()
        header = decode_header(head)
        header.count = max(header.count, 1)  # RocketMQ: IndexHeader.load
        slots, entries, is_guess = _geometry(store.config, size)
        found.append(IndexFileView(path, name, size, slots, entries, is_guess, header))
    return found


def _geometry(config: StoreConfig | None, size: int) -> tuple[int, int, bool]:
    """Return slots and entries of a file of this length."""
    told = config if config is not None else StoreConfig()
    slots, entries = told.max_hash_slot_num, told.max_index_num
    if config is not None or size == INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + entries * INDEX_ENTRY_SIZE:
        return slots, entries, False
    unit = INDEX_SLOT_SIZE + _ENTRIES_PER_SLOT * INDEX_ENTRY_SIZE
    count, rest = divmod(size - INDEX_HEADER_SIZE, unit)
    return (count, count * _ENTRIES_PER_SLOT, True) if count > 0 and not rest else (0, 0, True)


def read_entries(file: File, view: IndexFileView, number: int) -> bytes:
    """Return entries from `number` on, as many as are read at once; none at the end."""
    several = min(view.header.count - number, _ENTRIES_AT_ONCE)
    if several <= 0:
        return b""
    data = file.read(view.entry_at(number), several * INDEX_ENTRY_SIZE)
    return data[: len(data) - len(data) % INDEX_ENTRY_SIZE]


def read_slots(file: File, view: IndexFileView) -> list[int]:
    """Return all slots of a file."""
    slots: array[int] = array("i")
    slots.frombytes(file.read(INDEX_HEADER_SIZE, view.slot_count * INDEX_SLOT_SIZE))
    if sys.byteorder == "little":
        slots.byteswap()
    return slots.tolist()
