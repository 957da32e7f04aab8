"""Who a replica is: `config/replica` with its id, incarnation, the highest epoch it has seen, and its epochs.

An incarnation stands for a log that has lost nothing. A start that cannot prove the log whole draws a new one, and the
in-sync set, which names incarnations, no longer contains the replica.

Each start of a process is noted here before it joins the group, and the group keeps the one that joined last. So a copy
of the directory is found out: another start has joined since. A copy that was made while a process used the directory,
or after a kill, has another number on its disk. It becomes a new replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from aerobee.errors import StoreError
from aerobee.model.numbers import parse_int
from aerobee.replication.epochs import Epochs
from aerobee.replication.frames import EpochList, EpochNumber, Offset, Word
from aerobee.replication.values import Epoch
from aerobee.runtime.seams import Disk, Entropy
from aerobee.store.checkpoint import CheckpointFile
from aerobee.store.config import StoreConfig
from aerobee.store.durablemark import DurableMark
from aerobee.store.readonly import REPLICA_FILE
from aerobee.store.segment import segment_starts
from aerobee.store.statefile import StateFile

_FORMAT: Final = 1
_INCARNATION_SIZE: Final = 16
# Starts that are remembered until one has joined.
_STARTS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What `config/replica` holds."""

    cluster: str
    group: str
    # 0 until the coordinator has given one.
    id: int = 0
    incarnation: str = ""
    # The highest epoch that the replica has seen. It is stored before anything of that epoch is acknowledged.
    epoch: int = 0
    epochs: tuple[Epoch, ...] = ()
    # The start of the machine in which the replica ran last, and whether every write was synced then.
    boot_id: str = ""
    sync_flush: bool = False
    # Where the log ended at an orderly stop, -1 while the replica runs and after it was killed.
    clean_end: int = -1
    # Set when a sync failed: what the log holds is in doubt.
    suspect: bool = False
    # The start of a process that joined the group last, and those after it that may have joined.
    starts: tuple[str, ...] = ()
    # The number that the disk gave to the directory, 0 where none is known.
    directory: int = 0


class _Stored(msgspec.Struct, kw_only=True):
    v: int
    cluster: Word
    group: Word
    id: Offset
    incarnation: Word
    epoch: EpochNumber
    epochs: EpochList
    boot: Word
    sync: bool
    end: int
    suspect: bool = False
    starts: list[Word] = []
    dir: int = 0


def encode_identity(identity: Identity) -> bytes:
    return msgspec.json.encode(
        _Stored(
            v=_FORMAT,
            cluster=identity.cluster,
            group=identity.group,
            id=identity.id,
            incarnation=identity.incarnation,
            epoch=identity.epoch,
            epochs=[(one.number, one.start) for one in identity.epochs],
            boot=identity.boot_id,
            sync=identity.sync_flush,
            end=identity.clean_end,
            suspect=identity.suspect,
            starts=list(identity.starts),
            dir=identity.directory,
        )
    )


def decode_identity(content: bytes) -> Identity:
    """Return what was stored. Raise ValueError for content that makes no sense."""
    stored = msgspec.json.decode(content, type=_Stored)
    if stored.v != _FORMAT:
        raise ValueError(f"its format {stored.v} is not {_FORMAT}: was it written by a newer release?")
    epochs = tuple(Epoch(number=number, start=start) for number, start in stored.epochs)
    Epochs(epochs)
    return Identity(
        cluster=stored.cluster,
        group=stored.group,
        id=stored.id,
        incarnation=stored.incarnation,
        epoch=stored.epoch,
        epochs=epochs,
        boot_id=stored.boot,
        sync_flush=stored.sync,
        clean_end=stored.end,
        suspect=stored.suspect,
        starts=tuple(stored.starts),
        directory=stored.dir,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is known before the store is opened."""

    identity: Identity
    # The limit to open the store with. None: the directory was that of a single broker, and all of its log counts.
    confirm_limit: int | None
    # The log must reach this far, or it has lost its tail.
    known_end: int
    # Why this start draws a new incarnation, empty where it keeps the old one.
    renewed: str = ""


def prepare(
    disk: Disk,
    root: str,
    config: StoreConfig,
    entropy: Entropy,
    *,
    cluster: str,
    group: str,
    boot_id: str,
    start_id: str = "",
    number_of: Callable[[str], int] = lambda path: 0,
) -> Prepared:
    """Load the identity of the replica in this directory, before its store is opened, or make one.

    `start_id` is drawn for each start of a process. `number_of` returns what the disk numbers a directory by: it stays
    when the directory is moved, and a copy has another one. Raise StoreError if the directory belongs to another group.
    From here on the directory counts as in use.
    """
    file = identity_file(disk, root)
    found = file.load(decode_identity)
    if found is not None and (found.cluster, found.group) != (cluster, group):
        raise StoreError(
            f"{root} belongs to group {found.group} of cluster {found.cluster}, not to {group} of {cluster}",
            hint="name the directory of this group, or an empty one",
        )
    has_log = bool(segment_starts(disk, config.store_path_commit_log or f"{root}/commitlog"))
    known_end = _known_end(disk, root)
    if start_id:
        disk.make_dirs(f"{root}/config")
    directory = number_of(f"{root}/config")
    if found is None:
        identity = Identity(cluster=cluster, group=group)
        limit = None if has_log else 0
        why = "the directory has no identity of a replica"
    else:
        identity = found
        limit = CheckpointFile(disk, f"{root}/checkpoint").value.confirm_phy_offset
        known_end = max(known_end, found.clean_end)
        why = why_renewed(found, boot_id, is_log_gone=known_end > 0 and not has_log)
        if is_copied_in_use(found, directory):
            why = "the directory is a copy that was made while a broker used it, or after a kill"
            # Who it is a copy of may be alive.
            identity = replace(found, id=0, starts=())
    starts = (*identity.starts[:1], *identity.starts[1:][-_STARTS_MAX:], start_id) if start_id else ()
    identity = replace(
        identity, boot_id=boot_id, sync_flush=config.sync_flush, clean_end=-1, starts=starts, directory=directory
    )
    if why:
        identity = renewed(identity, entropy)
    file.save(encode_identity(identity))
    return Prepared(identity=identity, confirm_limit=limit, known_end=known_end, renewed=why)


def why_renewed(found: Identity, boot_id: str, *, is_log_gone: bool) -> str:
    """Return why a start with what was stored must draw a new incarnation, or "" if it need not."""
    if found.suspect and not found.sync_flush:
        # Where every write is synced, nothing was acknowledged that the failed sync held.
        return "a sync of the log failed before the last stop"
    if is_log_gone:
        return "the log is gone"
    if found.clean_end < 0 and found.boot_id != boot_id and not found.sync_flush:
        return "the machine was started anew after a stop that was not orderly, and not every write was synced"
    return ""


def is_copied_in_use(found: Identity, directory: int) -> bool:
    """Tell whether the directory is a copy that may lack what its original had, or still gets."""
    return found.clean_end < 0 and 0 not in (found.directory, directory) and found.directory != directory


def renewed(identity: Identity, entropy: Entropy) -> Identity:
    """Return the identity with a new incarnation."""
    return replace(identity, incarnation=entropy.token(_INCARNATION_SIZE).hex(), suspect=False)


def identity_file(disk: Disk, root: str) -> StateFile:
    return StateFile(disk, f"{root}/{REPLICA_FILE}")


def _known_end(disk: Disk, root: str) -> int:
    """Return how far the log was synced when the directory was last in use."""
    mark = DurableMark(disk, f"{root}/config")
    mark.peek()
    cut = StateFile(disk, f"{root}/truncate", keep_backup=False).load(lambda content: parse_int(content.strip(), 0))
    return mark.offset if cut is None else min(mark.offset, cut)
