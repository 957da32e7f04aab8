"""Values of a coordination store: keys, comparisons, operations of a transaction, and events.

They are the part of etcd's model that replicas use, under etcd's names. A revision counts the changes of the whole
store. A key remembers the revisions at which it was created and changed last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from aerobee.errors import AerobeeError


class CoordinationRefusedError(AerobeeError):
    """The coordination store answered that it does not carry out the request. Nothing was changed. `code` is the number
    that gRPC gives to the reason."""


class LeaseMissingError(CoordinationRefusedError):
    """A lease that a request names does not exist."""


class RevisionCompactedError(CoordinationRefusedError):
    """The revision that a request names is no longer kept."""


class CoordinationFullError(CoordinationRefusedError):
    """The store is full. It answers reads only until an operator has made room."""


class CoordinationDeniedError(CoordinationRefusedError):
    """The credentials are wrong, or a token has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A key with its value, as of one revision."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    # 1 when the key is created, and one more with each change.
    version: int = 0
    # The lease that the key ends with, or 0.
    lease: int = 0


class CompareTarget(StrEnum):
    """What a comparison looks at. A key that does not exist has 0 everywhere and no value."""

    VERSION = "VERSION"
    CREATE = "CREATE"
    MOD = "MOD"
    VALUE = "VALUE"
    LEASE = "LEASE"


class CompareRelation(StrEnum):
    """How a comparison compares what is stored with what it names."""

    EQUAL = "EQUAL"
    GREATER = "GREATER"
    LESS = "LESS"
    NOT_EQUAL = "NOT_EQUAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCompare:
    """One condition of a transaction. `operand` is bytes for the value and an int for everything else."""

    key: bytes
    target: CompareTarget = CompareTarget.MOD
    relation: CompareRelation = CompareRelation.EQUAL
    operand: int | bytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKey:
    """Store a value. A lease of 0 means none."""

    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKeys:
    """Delete a key or, with an end, every key from `key` to before `end`."""

    key: bytes
    end: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKeys:
    """Read a key or, with an end, every key from `key` to before `end`, in their order."""

    key: bytes
    end: bytes = b""


TxnOperation = PutKey | DeleteKeys | ReadKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn:
    """Operations that happen together: `success` if every comparison holds, else `failure`."""

    compares: tuple[KeyCompare, ...] = ()
    success: tuple[TxnOperation, ...] = ()
    failure: tuple[TxnOperation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResult:
    """How a transaction ended. `reads` has one entry for each ReadKeys that was carried out, in order."""

    revision: int
    succeeded: bool
    reads: tuple[tuple[KeyValue, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent:
    """One change of a key. After a deletion the key has no value, and its mod revision is the deletion's."""

    key: KeyValue
    is_deletion: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchBatch:
    """What happened up to a revision. It may be nothing: then the batch only tells the revision."""

    revision: int
    events: tuple[KeyEvent, ...] = ()


class WatchSink(Protocol):
    """Receives what a watch sees."""

    def __call__(self, batch: WatchBatch) -> None: ...


class KeyStore(Protocol):
    """A coordination store as one client sees it. Every method raises CoordinationError when no answer came in time,
    and CoordinationRefusedError when the store answered with an error."""

    async def read(self, wanted: ReadKeys) -> tuple[int, tuple[KeyValue, ...]]:
        """Return the store's revision and the keys, by a linearizable read."""

    async def txn(self, txn: Txn) -> TxnResult:
        """Carry out a transaction."""

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        """Open a lease. Return its id and its time to live in seconds, which may be longer than what was asked for."""

    async def keep_alive(self, lease: int) -> int:
        """Begin the lease's time anew. Return its time to live in seconds, or 0 if there is no such lease any more."""

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys. Raise LeaseMissingError if there is no such lease."""

    async def watch(self, wanted: ReadKeys, start_revision: int, sink: WatchSink) -> None:
        """Call the sink for every change from a revision on, in order, until the connection ends (CoordinationError) or
        the store no longer has the revision (RevisionCompactedError). It never returns. A batch never holds a part of
        a revision."""

    async def close(self) -> None:
        """Close the connections."""


def prefix_end(prefix: bytes) -> bytes:
    """Return the end of the range that holds every key with this prefix."""
    for place in range(len(prefix) - 1, -1, -1):
        if prefix[place] < 0xFF:
            return prefix[:place] + bytes([prefix[place] + 1])
    return b"\0"


def is_within(key: bytes, start: bytes, end: bytes) -> bool:
    """Return whether a key lies in a range. An empty end means the one key, and a zero byte means everything behind the
    start."""
    if not end:
        return key == start
    return key >= start and (end == b"\0" or key < end)


def changes(operations: Sequence[TxnOperation]) -> bool:
    """Return whether any of the operations could change something."""
    return any(not isinstance(operation, ReadKeys) for operation in operations)
