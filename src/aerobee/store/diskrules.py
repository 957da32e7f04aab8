"""Two rules of the store about its disk: a failed sync is final, and some space stays free.

The space that stays free is what the store needs to stop cleanly and to start again. What can wait or be built again
(new messages, the index) leaves it free. What a stop must write (queue units, queue table, checkpoint, topics, offsets)
may take it.
"""

from __future__ import annotations

from typing import Final

from aerobee.errors import DiskFullError, StoreFencedError
from aerobee.runtime.seams import Disk, File
from aerobee.runtime.shortage import is_passing

# Tables of 10,000 topics with their queues, written beside the old ones, take about half of it.
_KEPT_MAX: Final = 8 * 1024 * 1024
_KEPT_SHARE: Final = 16


def sync_file(file: File) -> None:
    """Sync a file, blocking. A failure is final: what the page cache holds can no longer be trusted."""
    try:
        file.sync()
    except (OSError, DiskFullError) as error:
        raise StoreFencedError(f"sync of {file.path} failed: {error}") from error


def sync_directory(disk: Disk, path: str) -> None:
    """Sync a directory's names, blocking. A failure is as final as that of a file.

    One failure is not: where the directory could not be opened for want of a descriptor, no sync was begun, and the
    OSError passes.
    """
    try:
        disk.sync_dir(path)
    except OSError as error:
        if is_passing(error):
            raise
        raise StoreFencedError(f"sync of directory {path} failed: {error}") from error


def kept_free(total: int) -> int:
    """Return the bytes that stay free on a file system of `total` bytes."""
    return min(_KEPT_MAX, total // _KEPT_SHARE)


def require_room(disk: Disk, path: str, size: int) -> int:
    """Return the room there is beside `path`. Raise DiskFullError where `size` bytes do not fit into it."""
    total, free = disk.space(path.rpartition("/")[0])
    room = free - kept_free(total)
    if room < size:
        raise DiskFullError(
            f"no space to write {path}: the rest is kept for the store's own stop", hint="free space on the disk"
        )
    return room
