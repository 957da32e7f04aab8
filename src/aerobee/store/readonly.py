"""What a broker and a reader of its directory agree on: how far the log is synced, and what was deleted or archived.

An archive holds `_manifest/<broker>/<segment>-<end>.json` for each segment that was taken and verified.
"""

from __future__ import annotations

from typing import Final

from aerobee.errors import WrongStoreError
from aerobee.model.dialect import loads_object
from aerobee.model.fields import map_of
from aerobee.model.numbers import parse_int
from aerobee.model.topic import TopicConfig
from aerobee.runtime.seams import Disk
from aerobee.store.checkpoint import FILE_SIZE, Checkpoint, decode_checkpoint
from aerobee.store.copies import require_no_copy
from aerobee.store.deletions import Deletions
from aerobee.store.durablemark import DurableMark
from aerobee.store.format import require_known_format
from aerobee.store.statefile import StateFile

MANIFESTS: Final = "_manifest"
# What a replica knows of itself. A single broker's directory has no such file.
REPLICA_FILE: Final = "config/replica"
_UNESCAPED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ")


def durable_end(disk: Disk, root: str) -> int | None:
    """Return the offset up to which Aerobee synced the log in `root`; None where somebody else had the store last.

    Raise StoreError where a newer version of Aerobee wrote the directory, or where it is a backup: a backup has the end
    of its log elsewhere, so a reader would miss it.
    """
    require_known_format(disk, root)
    require_no_copy(disk, root)
    mark = DurableMark(disk, f"{root}/config")
    if not any(mark.peek()):
        return None
    return mark.offset if mark.believes(_checkpoint(disk, root).encode()) else None


def require_no_replica(disk: Disk, root: str) -> None:
    """Raise WrongStoreError if `root` is a replica's. What a broker alone stored there would be lost to its group."""
    if disk.exists(f"{root}/{REPLICA_FILE}"):
        raise WrongStoreError(
            f"{root} is the directory of a replica, and this broker is told of no group",
            hint="Set coordinatorAddr, or start `aerobee up` with --replicas. To make it a broker without replicas for"
            f" good, remove {REPLICA_FILE} and {REPLICA_FILE}.bak there: the group then does not take it back.",
        )


def confirmed_end(disk: Disk, root: str) -> int | None:
    """Return the offset up to which a group is known to have confirmed the log in `root`; None where `root` is no
    replica's. Another master may take back what lies above."""
    if not disk.exists(f"{root}/{REPLICA_FILE}"):
        return None
    return _checkpoint(disk, root).confirm_phy_offset


def _checkpoint(disk: Disk, root: str) -> Checkpoint:
    try:
        file = disk.open(f"{root}/checkpoint", write=False)
    except FileNotFoundError:
        return Checkpoint()
    try:
        return decode_checkpoint(file.read(0, FILE_SIZE))[0]
    finally:
        file.close()


def deleted_topics(disk: Disk, root: str) -> dict[bytes, int]:
    """Return the deleted topics, each with the place in the log below which nothing of it counts any more."""
    deletions = Deletions(disk, root)
    deletions.load()
    return deletions.positions()


def topic_generations(disk: Disk, root: str) -> dict[str, str]:
    """Return the topics of a store with their generations: '' for a topic without one. A store may have no table."""
    file = StateFile(disk, f"{root}/config/topics.json")
    table = map_of(file.load(loads_object) or {}, "topicConfigTable")
    return {name: TopicConfig.from_json({**one, "topicName": name}).generation for name, one in table.items()}


def manifest_directory(broker: str) -> str:
    """Return a broker's directory among the manifests: its name, escaped as Spark escapes a value in a path."""
    return "".join(char if char in _UNESCAPED or ord(char) > 127 else f"%{ord(char):02X}" for char in broker)


def manifest_name(start: int, end: int) -> str:
    """Return the name of the file that says a segment is archived."""
    return f"{start:020d}-{end:020d}.json"


def parse_manifest_name(name: str) -> tuple[int, int] | None:
    """Return (start, end) of the segment that a manifest's name says is archived; None for other files."""
    if len(name) != 46 or name[20] != "-" or not name.endswith(".json"):
        return None
    start, end = name[:20], name[21:41]
    return (parse_int(start), parse_int(end)) if (start + end).isascii() and (start + end).isdecimal() else None
