"""The version of what Aerobee keeps in a store directory beside RocketMQ's own files (`config/storeFormat.json`).

A version that does not know one of these files would ignore it, and could bring back what the file says is gone. So a
directory of a newer version is refused. Apache's broker ignores the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from aerobee.errors import StoreError, WrongStoreError
from aerobee.model.dialect import loads_object
from aerobee.model.fields import int_of
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import StateFile

# 0: no file (before there was one). 1: deleted topics are noted with their position.
FORMAT: Final = 1


def require_known_format(disk: Disk, root: str) -> int:
    """Return the directory's format; raise WrongStoreError where a newer version of Aerobee wrote it.

    A damaged file says nothing of a newer version, and the next start of ours writes it again.
    """
    try:
        found = _file(disk, root).load(_decode) or 0
    except StoreError:
        return 0
    if found > FORMAT:
        raise WrongStoreError(
            f"{root} was written by a newer version of Aerobee (store format {found}, known here: {FORMAT})",
            hint="run the newer version, or restore a backup that this version made",
        )
    return found


def note_format(disk: Disk, root: str, found: int) -> None:
    """Say durably that this version writes the directory from now on; `found` is what it said before."""
    if found < FORMAT:
        _file(disk, root).save(json.dumps({"format": FORMAT}).encode())


def _file(disk: Disk, root: str) -> StateFile:
    return StateFile(disk, f"{root}/config/storeFormat.json")


def _decode(content: bytes) -> int:
    data: Mapping[str, object] = loads_object(content)
    return int_of(data, "format")
