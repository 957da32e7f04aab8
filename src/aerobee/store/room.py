"""How much of a disk the store leaves free for itself: what it needs to stop cleanly, and to start again.

Owns the rule. Whatever can wait or be built again (new messages, the index) leaves this much; what a stop must write
(queue units, queue table, checkpoint, topics, offsets) may take it.
"""

from __future__ import annotations

from typing import Final

from aerobee.errors import DiskFullError
from aerobee.runtime.seams import Disk

# Tables of 10,000 topics with their queues, written beside the old ones, take about half of it.
_KEPT_MAX: Final = 8 * 1024 * 1024
_KEPT_SHARE: Final = 16


def kept_free(total: int) -> int:
    """Return the bytes that stay free on a file system of `total`."""
    return min(_KEPT_MAX, total // _KEPT_SHARE)


def room_for(disk: Disk, directory: str) -> int:
    """Return how many bytes may be taken now without touching what is kept; below 0 where that is touched."""
    total, free = disk.space(directory)
    return free - kept_free(total)


def require_room(disk: Disk, path: str, size: int) -> int:
    """Return the room there is beside `path`; raise DiskFullError where `size` bytes do not fit into it."""
    room = room_for(disk, path.rpartition("/")[0])
    if room < size:
        raise DiskFullError(
            f"no space to write {path}: what is left is kept for the store's own stop", hint="free space on the disk"
        )
    return room
