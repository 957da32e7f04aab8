"""How to tell that a directory is a backup or a restore that did not end, and so no store for a broker.

A broker that started there would find no log, begin an empty one, and change the backup.
"""

from __future__ import annotations

from typing import Final

from aerobee.errors import WrongStoreError
from aerobee.runtime.seams import Disk

# The file that says what belongs to a backup.
MANIFEST: Final = "backup.json"
# The log of a store that is being restored. It gets its own name at the end.
RESTORING: Final = "restoring"


def holds_backup(disk: Disk, root: str) -> bool:
    """Return whether a directory is a backup."""
    return disk.exists(f"{root.rstrip('/')}/{MANIFEST}")


def require_no_copy(disk: Disk, root: str) -> None:
    """Raise WrongStoreError if a directory is a backup, or a store that was not restored to its end."""
    if holds_backup(disk, root):
        raise WrongStoreError(
            f"{root} is a backup, not a store (it holds {MANIFEST})",
            hint=f"make a store of it: aerobee store restore {root} --to DIR",
        )
    if disk.exists(f"{root}/{RESTORING}"):
        raise WrongStoreError(
            f"{root} was not restored to its end (it holds {RESTORING}/)",
            hint="delete it, and restore the backup again",
        )
