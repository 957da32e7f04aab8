"""The faults of a recording disk, set by the number of the call that fails."""

from __future__ import annotations

import errno as errnos
import os
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aerobee.errors import DiskFullError

#: The calls that are counted. `read` counts File.read and Disk.read; `sync` counts each file.
KINDS = (
    "open", "write", "read", "reserve", "truncate", "sync",
    "rename", "unlink", "make_dirs", "remove_dir", "sync_dir", "lock",
)  # fmt: skip
#: The calls that can change what a power cut leaves.
CHANGING_KINDS = tuple(kind for kind in KINDS if kind not in ("read", "lock"))


class DiskCall(NamedTuple):
    """A call of the disk. `number` counts from 1."""

    number: int
    kind: str
    path: str
    offset: int
    size: int


class FaultKind(Enum):
    """The kinds of faults."""

    ERROR = "error"
    FLIP = "flip"  # a read returns one bit wrong
    SHORT = "short"  # a read returns fewer bytes than the file has
    LIE = "lie"  # a sync succeeds and makes nothing durable


@dataclass
class Fault:
    """A fault of the `nth` call of this kind from now on (of any kind where it is None).

    The `times` - 1 calls behind it fail too; where `times` is None, all calls behind it fail.
    """

    nth: int
    kind: str | None
    what: FaultKind
    times: int | None
    errno: int
    amount: int
    path: str | None
    hits: int = 0

    def meets(self, kind: str, path: str) -> bool:
        """Count the call; return whether it must fail."""
        if self.kind is not None and self.kind != kind:
            return False
        if self.path is not None and self.path not in path:
            return False
        self.nth -= 1
        if self.nth > 0 or (self.times is not None and self.nth <= -self.times):
            return False
        self.hits += 1
        return True


class DiskFaults:
    """The faults that are armed."""

    def __init__(self) -> None:
        self.armed: list[Fault] = []

    def arm(self, fault: Fault) -> Fault:
        if fault.kind is not None and fault.kind not in KINDS:
            raise ValueError(f"no such kind of call: {fault.kind}")
        if fault.nth < 1:
            raise ValueError("calls are counted from 1")
        self.armed.append(fault)
        return fault

    def meet(self, kind: str, path: str) -> Fault | None:
        met = None
        for fault in self.armed:
            if fault.meets(kind, path) and met is None:
                met = fault
        return met


def error_of(fault: Fault, kind: str, path: str) -> OSError | DiskFullError:
    """Return the error that the real disk raises: a sync never raises DiskFullError."""
    error = OSError(fault.errno, os.strerror(fault.errno), path)
    if fault.errno in (errnos.ENOSPC, errnos.EDQUOT) and kind not in ("sync", "sync_dir"):
        full = DiskFullError(f"no space to write {path}", hint="free space on the disk")
        full.__cause__ = error
        return full
    return error
