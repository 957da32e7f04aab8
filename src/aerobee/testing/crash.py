"""Which of the changes that were not durable survive a power cut."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.platter import SECTOR, Change, NameChange, SectorWrite


class CrashMode(Enum):
    """How the survivors are chosen from all changes, of files and directories, in the order they were
    made."""

    NONE = "none"
    ALL = "all"
    PREFIX = "prefix"
    RANDOM = "random"
    ALL_BUT_FIRST = "all but first"
    LAST_ONLY = "last only"
    SUFFIX = "suffix"  # a prefix in reversed order: the latest reached the platter first
    TORN = "torn"  # a prefix, and of the sector after it some bytes
    TORN_RANDOM = "torn random"  # a random subset, some of its sectors torn


#: These depend on no seed.
FIXED_MODES = (CrashMode.NONE, CrashMode.ALL, CrashMode.ALL_BUT_FIRST, CrashMode.LAST_ONLY)


_SLICES = {
    CrashMode.ALL: slice(None),
    CrashMode.ALL_BUT_FIRST: slice(1, None),
    CrashMode.LAST_ONLY: slice(-1, None),
}


class NamesMode(Enum):
    """What becomes of directory operations: chosen like the rest, or apart."""

    SAME = "same"
    NONE = "none"
    ALL = "all"


class Survivors(NamedTuple):
    """Numbers of the changes kept; for torn sectors, which bytes are new."""

    kept: frozenset[int]
    torn: dict[int, bytes]


def choose_survivors(
    changes: Sequence[Change], mode: CrashMode, seed: int, names: NamesMode = NamesMode.SAME
) -> Survivors:
    entropy = SeededEntropy(seed)
    chosen = changes
    if names is not NamesMode.SAME:
        chosen = [change for change in changes if not isinstance(change, NameChange)]
    kept, torn = _choose(chosen, mode, entropy)
    numbers = {change.seq for change in kept}
    if names is NamesMode.ALL:
        numbers.update(change.seq for change in changes if isinstance(change, NameChange))
    return Survivors(frozenset(numbers), torn)


def _choose(
    changes: Sequence[Change], mode: CrashMode, entropy: SeededEntropy
) -> tuple[Sequence[Change], dict[int, bytes]]:
    count = len(changes)
    if mode is CrashMode.NONE or not count:
        return (), {}
    if mode in _SLICES:
        return changes[_SLICES[mode]], {}
    if mode is CrashMode.PREFIX:
        return changes[: entropy.below(count + 1)], {}
    if mode is CrashMode.SUFFIX:
        return changes[count - entropy.below(count + 1) :], {}
    if mode is CrashMode.TORN:
        kept = changes[: entropy.below(count) + 1]
        last = kept[-1]
        return kept, {last.seq: _mask(entropy)} if isinstance(last, SectorWrite) else {}
    share = (entropy.below(9) + 1) / 10
    kept = [change for change in changes if entropy.uniform() < share]
    if mode is CrashMode.RANDOM:
        return kept, {}
    written = [change for change in kept if isinstance(change, SectorWrite)]
    return kept, {change.seq: _mask(entropy) for change in written if entropy.uniform() < 0.3}


def _mask(entropy: SeededEntropy) -> bytes:
    """Return a mask of the first bytes, the last bytes, or any."""
    cut = entropy.below(SECTOR - 1) + 1
    shape = entropy.below(3)
    if shape == 0:
        return b"\1" * cut + bytes(SECTOR - cut)
    if shape == 1:
        return bytes(cut) + b"\1" * (SECTOR - cut)
    return bytes(byte & 1 for byte in entropy.token(SECTOR))
