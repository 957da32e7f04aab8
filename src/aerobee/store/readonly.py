"""What a reader beside a broker may take for certain: how far the log of a directory is known to be synced."""

from __future__ import annotations

from aerobee.runtime.seams import Disk
from aerobee.store.checkpoint import FILE_SIZE, Checkpoint, decode_checkpoint
from aerobee.store.durablemark import DurableMark


def durable_end(disk: Disk, root: str) -> int | None:
    """The offset up to which Aerobee synced the log in `root`; None where somebody else had the store last."""
    mark = DurableMark(disk, f"{root}/config")
    if not any(mark.peek()):
        return None
    value = Checkpoint()
    try:
        file = disk.open(f"{root}/checkpoint", write=False)
    except FileNotFoundError:
        pass
    else:
        try:
            value, _ = decode_checkpoint(file.read(0, FILE_SIZE))
        finally:
            file.close()
    return mark.offset if mark.believes(value.encode()) else None
