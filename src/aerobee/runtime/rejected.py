"""Entries of state files that cannot be used. They are kept in `<file>.rejected`, one line of JSON each, so that a
start goes on without them and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aerobee.model.dialect import dumps
from aerobee.runtime.seams import Disk

REJECTED: Final = ".rejected"


@dataclass(frozen=True, slots=True)
class Rejected:
    """An entry that cannot be used: where it stood, why, and what it was."""

    key: str
    reason: str
    entry: object


def set_aside(disk: Disk, path: str, found: Sequence[Rejected], now_ms: int) -> None:
    """Append entries of the file `path` to `<path>.rejected`, durably. Aerobee does not read them again."""
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    lines = b"".join(
        dumps({"time": f"{moment:%Y-%m-%dT%H:%M:%SZ}", "key": one.key, "reason": one.reason, "entry": one.entry})
        + b"\n"
        for one in found
    )
    file = disk.open(path + REJECTED, create=True)
    try:
        size = file.size()
        # After a line that a crash cut short, a new line is begun.
        torn = size and file.read(size - 1, 1) != b"\n"
        file.write(size, b"\n" + lines if torn else lines)
        file.sync()
    finally:
        file.close()
    disk.sync_dir(path.rpartition("/")[0] or ".")


def count_set_aside(disk: Disk, path: str) -> int:
    """Return how many entries of the file `path` are in `<path>.rejected`."""
    if not disk.exists(path + REJECTED):
        return 0
    file = disk.open(path + REJECTED, write=False)
    try:
        return sum(1 for line in file.read(0, file.size()).split(b"\n") if line)
    finally:
        file.close()
