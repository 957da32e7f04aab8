"""How to tell whether a store directory holds data of RocketMQ's RocksDB stores, which Aerobee does not read.

Apache's 5.5.0 broker makes an empty database in every store, whether it uses one or not: such a directory is
no reason to refuse. RocketMQ: DefaultMessageStore, MessageRocksDBStorage.
"""

from __future__ import annotations

from typing import Final

from aerobee.errors import WrongStoreError
from aerobee.runtime.seams import Disk

# Queues, timers or transactions lie here when the broker was told to use RocksDB. Aerobee would not see them.
_DIRECTORIES: Final = ("rocksdbstore", "consumequeue_rocksdb")


def require_no_rocksdb(disk: Disk, root: str) -> None:
    """Raise WrongStoreError if a database of the store has data."""
    found = rocksdb_with_data(disk, root)
    if found is not None:
        raise WrongStoreError(
            f"{found} holds data of RocketMQ's RocksDB store, which is not supported",
            hint="let RocketMQ move it back to files, or remove the directory if it is not needed",
        )


def rocksdb_with_data(disk: Disk, root: str) -> str | None:
    """Return the directory whose database has a table or a log with content; None where none has."""
    for name in _DIRECTORIES:
        if _holds_data(disk, f"{root}/{name}"):
            return f"{root}/{name}"
    return None


def _holds_data(disk: Disk, directory: str) -> bool:
    for name in disk.listdir(directory):
        if name.endswith(".sst"):
            return True
        if name.endswith(".log"):
            file = disk.open(f"{directory}/{name}", write=False)
            written = file.size()
            file.close()
            if written:
                return True
    return False
