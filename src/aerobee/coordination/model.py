"""The model of a coordination store: the part of etcd that replicas use, as a machine. It has no I/O, and time is an
argument.

It does what etcd 3.6 does, and a contract suite runs against both. It has keys with revisions, ranges, transactions
with comparisons, leases that end, and a history for watches that can be compacted. The embedded server serves it, and
the simulation gives it lost answers and delays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from aerobee.coordination.values import (
    CompareRelation,
    CompareTarget,
    CoordinationFullError,
    CoordinationRefusedError,
    DeleteKeys,
    KeyCompare,
    KeyEvent,
    KeyValue,
    LeaseMissingError,
    PutKey,
    ReadKeys,
    RevisionCompactedError,
    Txn,
    TxnOperation,
    TxnResult,
    WatchBatch,
    is_within,
)

# etcd's own bounds (embed.DefaultMaxTxnOps) and ours for keys: a group has fewer than 100 keys of a few hundred bytes.
OPERATIONS_MAX: Final = 128
KEY_BYTES_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 64 * 1024
LEASES_MAX: Final = 10_000
# lease.MaxLeaseTTL of etcd.
TTL_MAX_S: Final = 9_000_000_000
# etcd's floor is one and a half of its election timeout of a second, rounded up.
TTL_FLOOR_S: Final = 2
_FORMAT: Final = 1

_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
_FAILED_PRECONDITION: Final = 9
_RESOURCE_EXHAUSTED: Final = 8
_OUT_OF_RANGE: Final = 11


@dataclass(slots=True)
class _Lease:
    ttl_s: int
    ends_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """How much the model holds. The embedded server keeps everything in one small file, so it is bounded."""

    bytes_max: int = 4 * 1024 * 1024
    # Watches that ask for an older revision are told that it was compacted.
    history_revisions: int = 1000


class _SavedKey(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    cluster: int
    revision: int
    keys: list[_SavedKey]
    leases: dict[int, int]


class KeyModel:
    """A coordination store. `now` is a monotonic time in seconds and never goes back."""

    def __init__(self, *, cluster: int = 1, limits: ModelLimits | None = None) -> None:
        # The id by which clients tell one store from another, as etcd's cluster id.
        self.cluster = cluster
        self.revision = 1
        # The oldest revision that a watch can begin with.
        self.compacted = 0
        self._limits = limits or ModelLimits()
        self._keys: dict[bytes, KeyValue] = {}
        self._leases: dict[int, _Lease] = {}
        self._history: list[tuple[int, tuple[KeyEvent, ...]]] = []
        self._size = 0
        self._next_lease = 0

    # --- reading

    def read(self, wanted: ReadKeys) -> tuple[KeyValue, ...]:
        """Return the keys of a range, in their order."""
        _check_key(wanted.key)
        if not wanted.end:
            found = self._keys.get(wanted.key)
            return () if found is None else (found,)
        inside = sorted(key for key in self._keys if is_within(key, wanted.key, wanted.end))
        return tuple(self._keys[key] for key in inside)

    def leases(self) -> Mapping[int, int]:
        """Return the time to live that each lease was granted."""
        return {number: lease.ttl_s for number, lease in self._leases.items()}

    # --- changing

    def txn(self, txn: Txn) -> TxnResult:
        """Carry out a transaction, whole or not at all. Raise CoordinationRefusedError if it cannot be carried out."""
        self._check(txn)
        succeeded = all(self._holds(compare) for compare in txn.compares)
        operations = txn.success if succeeded else txn.failure
        self._check_room(operations)
        revision = self.revision + 1
        events: list[KeyEvent] = []
        reads: list[tuple[KeyValue, ...]] = []
        for operation in operations:
            match operation:
                case PutKey():
                    events.append(self._put(operation, revision))
                case DeleteKeys():
                    events += self._delete(operation, revision)
                case ReadKeys():
                    reads.append(self.read(operation))
        self._record(revision, events)
        return TxnResult(revision=self.revision, succeeded=succeeded, reads=tuple(reads))

    def grant(self, ttl_s: int, now: float, lease: int = 0) -> tuple[int, int]:
        """Open a lease and return its id and its time to live. An id of 0 asks for a new one."""
        if not 0 < ttl_s <= TTL_MAX_S:
            raise CoordinationRefusedError(
                "too large lease TTL" if ttl_s > 0 else "lease TTL is not positive", code=_OUT_OF_RANGE
            )
        if len(self._leases) >= LEASES_MAX:
            raise CoordinationRefusedError(f"there are {LEASES_MAX} leases already", code=_RESOURCE_EXHAUSTED)
        if not lease:
            lease = self._next_lease = max(self._next_lease, max(self._leases, default=0)) + 1
        if lease in self._leases:
            raise CoordinationRefusedError("lease already exists", code=_FAILED_PRECONDITION)
        ttl_s = max(ttl_s, TTL_FLOOR_S)
        self._leases[lease] = _Lease(ttl_s, now + ttl_s)
        return lease, ttl_s

    def keep_alive(self, lease: int, now: float) -> int:
        """Begin a lease's time anew and return its time to live, or 0 if there is no such lease."""
        found = self._leases.get(lease)
        if found is None:
            return 0
        found.ends_at = now + found.ttl_s
        return found.ttl_s

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys. Raise LeaseMissingError if there is none."""
        self._lease(lease)
        self._end(lease)

    def expire(self, now: float) -> bool:
        """End the leases whose time is over. Return whether there were any."""
        over = [number for number, lease in self._leases.items() if lease.ends_at <= now]
        for number in over:
            self._end(number)
        return bool(over)

    def prolong(self, seconds: float) -> None:
        """Give every lease more time, because nobody could keep it alive while the server did not run."""
        for lease in self._leases.values():
            lease.ends_at += seconds

    def next_end(self) -> float | None:
        """Return when the next lease ends, or None if there is none."""
        return min((lease.ends_at for lease in self._leases.values()), default=None)

    def compact(self, revision: int) -> None:
        """Forget the history before a revision. Raise RevisionCompactedError if that has happened already."""
        if revision > self.revision:
            raise CoordinationRefusedError("mvcc: required revision is a future revision", code=_OUT_OF_RANGE)
        if revision <= self.compacted:
            raise RevisionCompactedError("mvcc: required revision has been compacted", code=_OUT_OF_RANGE)
        self.compacted = revision
        self._history = [entry for entry in self._history if entry[0] >= revision]

    # --- watching

    def since(self, wanted: ReadKeys, start_revision: int, end_revision: int | None = None) -> WatchBatch:
        """Return the events of a range from one revision to another, both included, or up to now. Raise
        RevisionCompactedError if some are forgotten."""
        end_revision = self.revision if end_revision is None else end_revision
        if start_revision < self.compacted:
            raise RevisionCompactedError("mvcc: required revision has been compacted", code=_OUT_OF_RANGE)
        events = [
            event
            for revision, batch in self._history
            if start_revision <= revision <= end_revision
            for event in batch
            if is_within(event.key.key, wanted.key, wanted.end)
        ]
        return WatchBatch(revision=end_revision, events=tuple(events))

    # --- keeping

    def save(self) -> bytes:
        """Return everything that must outlive the process. The time that a lease has left is not kept."""
        keys = [
            _SavedKey(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
            for kv in self._keys.values()
        ]
        saved = _Saved(_FORMAT, self.cluster, self.revision, keys, {n: one.ttl_s for n, one in self._leases.items()})
        return msgspec.json.encode(saved)

    @classmethod
    def load(cls, content: bytes, now: float, *, limits: ModelLimits | None = None) -> KeyModel:
        """Return the model of what was saved. Every lease gets its whole time again, because whoever keeps it could not
        do so meanwhile. Raise ValueError for content that makes no sense."""
        saved = msgspec.json.decode(content, type=_Saved)
        if saved.v != _FORMAT:
            raise ValueError(f"its format {saved.v} is not {_FORMAT}: was it written by a newer release?")
        model = cls(cluster=saved.cluster, limits=limits)
        model.revision = saved.revision
        model.compacted = saved.revision + 1  # the history is not kept
        model._leases = {number: _Lease(ttl_s, now + ttl_s) for number, ttl_s in saved.leases.items()}
        model._next_lease = max(saved.leases, default=0)
        for one in saved.keys:
            if one.mod_revision > saved.revision or one.create_revision > one.mod_revision:
                raise ValueError(f"key {one.key!r} is newer than the store")
            if one.lease and one.lease not in saved.leases:
                raise ValueError(f"key {one.key!r} names a lease that does not exist")
            model._keys[one.key] = KeyValue(
                key=one.key,
                value=one.value,
                create_revision=one.create_revision,
                mod_revision=one.mod_revision,
                version=one.version,
                lease=one.lease,
            )
        model._size = sum(len(kv.key) + len(kv.value) for kv in model._keys.values())
        return model

    # --- inside

    def _lease(self, lease: int) -> _Lease:
        found = self._leases.get(lease)
        if found is None:
            raise LeaseMissingError("requested lease not found", code=_NOT_FOUND)
        return found

    def _check(self, txn: Txn) -> None:
        """Raise CoordinationRefusedError for a transaction that etcd would refuse, before anything is changed."""
        for branch in (txn.compares, txn.success, txn.failure):
            if len(branch) > OPERATIONS_MAX:
                raise CoordinationRefusedError("too many operations in txn request", code=_INVALID_ARGUMENT)
        for compare in txn.compares:
            _check_key(compare.key)
            if isinstance(compare.operand, bytes) != (compare.target is CompareTarget.VALUE):
                raise CoordinationRefusedError(
                    f"{compare.target} is compared with a wrong kind of value", code=_INVALID_ARGUMENT
                )
        for operations in (txn.success, txn.failure):
            self._check_operations(operations)

    def _check_operations(self, operations: tuple[TxnOperation, ...]) -> None:
        puts: set[bytes] = set()
        deletes: list[DeleteKeys] = []
        for operation in operations:
            _check_key(operation.key)
            if isinstance(operation, PutKey):
                if operation.key in puts:
                    raise CoordinationRefusedError("duplicate key given in txn request", code=_INVALID_ARGUMENT)
                puts.add(operation.key)
                if len(operation.value) > VALUE_BYTES_MAX:
                    raise CoordinationRefusedError(
                        f"a value has more than {VALUE_BYTES_MAX} bytes", code=_INVALID_ARGUMENT
                    )
            elif isinstance(operation, DeleteKeys):
                deletes.append(operation)
        if any(is_within(key, delete.key, delete.end) for delete in deletes for key in puts):
            raise CoordinationRefusedError("duplicate key given in txn request", code=_INVALID_ARGUMENT)

    def _check_room(self, operations: tuple[TxnOperation, ...]) -> None:
        """Raise an error if a put names no living lease, or if there is no room for the puts."""
        added = 0
        for operation in operations:
            if isinstance(operation, PutKey):
                if operation.lease:
                    self._lease(operation.lease)
                added += len(operation.key) + len(operation.value)
        if added and self._size + added > self._limits.bytes_max:
            raise CoordinationFullError("mvcc: database space exceeded", code=_RESOURCE_EXHAUSTED)

    def _holds(self, compare: KeyCompare) -> bool:
        found = self._keys.get(compare.key)
        if compare.target is CompareTarget.VALUE:
            if found is None:
                return False  # as etcd: a missing key has no value to compare
            return _related(found.value, compare.relation, compare.operand)
        stored = found or KeyValue(key=compare.key)
        return _related(_NUMBERS[compare.target](stored), compare.relation, compare.operand)

    def _put(self, put: PutKey, revision: int) -> KeyEvent:
        old = self._keys.get(put.key)
        if old is None:
            new = KeyValue(
                key=put.key,
                value=put.value,
                create_revision=revision,
                mod_revision=revision,
                version=1,
                lease=put.lease,
            )
            self._size += len(put.key) + len(put.value)
        else:
            new = replace(old, value=put.value, mod_revision=revision, version=old.version + 1, lease=put.lease)
            self._size += len(put.value) - len(old.value)
        self._keys[put.key] = new
        return KeyEvent(key=new)

    def _delete(self, delete: DeleteKeys, revision: int) -> list[KeyEvent]:
        return [self._remove(kv.key, revision) for kv in self.read(ReadKeys(key=delete.key, end=delete.end))]

    def _remove(self, key: bytes, revision: int) -> KeyEvent:
        old = self._keys.pop(key)
        self._size -= len(old.key) + len(old.value)
        return KeyEvent(key=KeyValue(key=key, mod_revision=revision), is_deletion=True)

    def _end(self, lease: int) -> None:
        del self._leases[lease]
        revision = self.revision + 1
        gone = sorted(key for key, kv in self._keys.items() if kv.lease == lease)
        self._record(revision, [self._remove(key, revision) for key in gone])

    def _record(self, revision: int, events: list[KeyEvent]) -> None:
        """Remember the events of a revision. A transaction that changed nothing has none and uses no revision."""
        if not events:
            return
        self.revision = revision
        self._history.append((revision, tuple(events)))
        if len(self._history) > 2 * self._limits.history_revisions:
            self.compact(self._history[-self._limits.history_revisions][0])


_NUMBERS: Final[Mapping[CompareTarget, Callable[[KeyValue], int]]] = {
    CompareTarget.VERSION: lambda kv: kv.version,
    CompareTarget.CREATE: lambda kv: kv.create_revision,
    CompareTarget.MOD: lambda kv: kv.mod_revision,
    CompareTarget.LEASE: lambda kv: kv.lease,
}


def _related(stored: int | bytes, relation: CompareRelation, operand: int | bytes) -> bool:
    match relation:
        case CompareRelation.EQUAL:
            return stored == operand
        case CompareRelation.NOT_EQUAL:
            return stored != operand
        case CompareRelation.GREATER:
            return operand < stored  # type: ignore[operator]
        case CompareRelation.LESS:
            return stored < operand  # type: ignore[operator]


def _check_key(key: bytes) -> None:
    if not key:
        raise CoordinationRefusedError("key is not provided", code=_INVALID_ARGUMENT)
    if len(key) > KEY_BYTES_MAX:
        raise CoordinationRefusedError(f"a key has more than {KEY_BYTES_MAX} bytes", code=_INVALID_ARGUMENT)
